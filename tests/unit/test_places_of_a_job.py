"""Places in the order of a job's runs."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from metamori.runtime.checkpoint.job_stamps import ORDER, require_later, take_place
from metamori.store.io.os_io import Door


def test_a_python_without_the_name_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As conda has it: built for a C library of before the lock."""
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    path = tmp_path / "order"
    path.touch()
    assert [take_place(Door(), os.fsencode(path)) for _ in range(2)] == [1, ORDER.size + 1]


class Full(Door):
    def pwrite(self, fd: int, data: object, offset: int) -> None:
        raise OSError(errno.ENOSPC, "no room")


@pytest.mark.parametrize("door", [Door(), Full()])
def test_without_a_line_it_is_between_those_that_have_one(tmp_path: Path, door: Door) -> None:
    """Another has the lock, or there is no room."""
    path = tmp_path / "order"
    path.touch()
    for _ in range(2):                     # the first in an empty file
        with path.open("r+b") as other:
            if type(door) is Door:
                fcntl.lockf(other, fcntl.LOCK_EX)
            before = path.stat().st_size
            place = take_place(door, os.fsencode(path))
        assert path.stat().st_size == before
        assert place < take_place(Door(), os.fsencode(path)) < take_place(door, os.fsencode(path))


def test_later_than_what_a_power_cut_took(tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.touch()
    require_later(Door(), os.fsencode(path), 1000)
    assert take_place(Full(), os.fsencode(path)) > 1000
