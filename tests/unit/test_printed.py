"""Names and messages as they are printed."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metamori._area import ffi
from metamori.errors import MetamoriError, sentence
from metamori.printed import columns, cut, line_text, name_text
from metamori.runtime.area.scope import outside, outside_text


@pytest.mark.parametrize("name, printed", [
    (b"plain name", "plain name"), ("Größe 大".encode(), "Größe 大"), (b"back\\slash's", "back\\slash's"),
    (b"a\nb", "$'a\\nb'"), (b"\x1b[31m", "$'\\e[31m'"), (b"it's\t", "$'it\\'s\\t'"), (b"caf\xe9", "$'caf\\xe9'"),
    ("a\u202eb".encode(), "$'a\\u202eb'"), ("a\x9bb".encode(), "$'a\\u009bb'"), (b"\x7f", "$'\\x7f'"),
])
def test_a_name_is_quoted_only_where_it_has_to_be(name: bytes, printed: str) -> None:
    assert name_text(name) == printed


@pytest.mark.parametrize("error, printed", [
    (OSError(28, "No space left on device"), "No space left on device"),
    (OSError(28, "No space left on device", b"/a\nb"), "$'/a\\nb': No space left on device"),
    (OSError(28, "No space left on device", 5), "No space left on device"), (OSError("said"), "said"),
    (MetamoriError("ours"), "ours"),
])
def test_a_failed_call_is_a_sentence(error: Exception, printed: str) -> None:
    assert sentence(error) == printed


def test_a_shell_takes_a_quoted_name_back() -> None:
    name = bytes(each for each in range(1, 256) if each != ord("/"))
    done = subprocess.run(["bash", "-c", f"printf %s {name_text(name)}"], capture_output=True, check=True)
    assert done.stdout == name


@given(st.binary())
def test_nothing_unseen_is_left(name: bytes) -> None:
    text = name_text(name)
    assert all(letter.isprintable() or letter >= "\xa0" for letter in text)
    assert "\n" not in line_text(name.decode("utf-8", "surrogateescape"))


@given(st.text(), st.integers(1, 40))
def test_what_is_cut_fits(text: str, width: int) -> None:
    short = cut(text, width)
    assert columns(short) <= width
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_files_in_the_root_folder() -> None:
    rows = [SimpleNamespace(folder=ffi.new("char[]", folder), files=files)
            for folder, files in [(b"", 2), (b"/tmp", 1), (b"", 0)]]
    area: Any = SimpleNamespace(head=SimpleNamespace(outside_files=3, outside=rows))
    assert outside_text(*outside(area)) == "3 files (2 in /, 1 in /tmp)"
