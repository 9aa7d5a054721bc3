"""Whom the kernel tells of an end, or of a key: who takes orphans, who waits, a terminal's foreground group."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import Memory, built
from lab import PATIENCE

pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.parametrize("what", ["orphans", "waits", "terminal"])
def test_they_are_told(tmp_path: Path, what: str) -> None:
    """The program takes a checkpoint where all stand, and one when half of it has happened."""
    case = Memory(tmp_path, [built(tmp_path, "adopted.c"), what])
    assert case.native.status == 6, case.native
    assert case.start().wait(PATIENCE) == 6, case.errors()
    assert case.images() == [1, 2], case.errors()
    case.everywhere([1, 2])
