"""Two tests that would trip over each other's files."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path("data.txt")


@pytest.mark.usefixtures("undone")
@pytest.mark.parametrize("name", ["first", "second"])
def test_it_finds_the_file_as_it_was(name: str) -> None:
    assert DATA.read_text() == "the original\n"
    DATA.write_text(f"what the {name} test wrote\n")
    Path("new.txt").touch(exist_ok=False)
