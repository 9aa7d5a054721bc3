"""calls.def is THE list: every spelling that libc exports for a call in it is in it too, and all are exported."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# of libaio and liburing, which may come and go: no part of the list that is looked up in libc
FOREIGN = {"io_submit", "io_uring_setup",
           *("io_uring_queue_init" + more for more in ("", "_params", "_mem"))}
LIBRARY = ROOT / "metamori" / "libmetamori.so"
LIBC = next((path for path in (Path("/lib/x86_64-linux-gnu/libc.so.6"), Path("/lib/aarch64-linux-gnu/libc.so.6"))
             if path.exists()), None)
_SPELLING = re.compile(r"^_*(?:IO_|libc_)?(\w+?)(?:64)?(?:v2)?(?:_chk|_2|_nocancel)?$")


def listed() -> set[str]:
    text = (ROOT / "shim_c" / "src" / "calls.def").read_text()
    return set(re.findall(r"^CALL\(\w+, [^,]+, (\w+),", text, re.MULTILINE)) | set(
        re.findall(r"^ALIAS\(\w+, (\w+),", text, re.MULTILINE))


def exported(library: Path) -> dict[str, str]:
    """Symbol -> version, of what a library defines."""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    pairs = [line.split()[-1].replace("@@", "@").partition("@") for line in lines]
    return {name: version for name, _, version in pairs}


def stem(name: str) -> str:
    """The call that a spelling is of."""
    found = _SPELLING.match(name)
    return found[1] if found else name


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_no_spelling_is_forgotten() -> None:
    calls = listed()
    stems = {stem(name) for name in calls}
    public = {name for name, version in exported(LIBC).items() if version != "GLIBC_PRIVATE"}
    # exit: ends the process through _exit's system call after destructors of ours have run
    assert {name for name in public if stem(name) in stems} - calls == {"exit"}


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_nothing_is_listed_that_libc_does_not_have() -> None:
    assert listed() - set(exported(LIBC)) == set()


@pytest.mark.skipif(not LIBRARY.exists(), reason="the library is not built")
def test_the_library_exports_the_list_and_its_interface() -> None:
    ours = {name for name in exported(LIBRARY) if not name.startswith("metamori_")}
    assert ours == listed() | FOREIGN
