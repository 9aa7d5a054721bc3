"""Places in the order of a job's runs."""

from __future__ import annotations

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
    assert [take_place(Door(), os.fsencode(path)) for _ in range(2)] == [0, ORDER.size]


def test_none_while_another_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.touch()
    child = os.fork()
    if child == 0:
        with path.open("r+b") as other:
            fcntl.lockf(other, fcntl.LOCK_EX)
            os._exit(take_place(Door(), os.fsencode(path)) != -1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.stat().st_size == 0


def test_later_than_what_a_power_cut_took(tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.touch()
    require_later(Door(), os.fsencode(path), 1000)
    assert take_place(Door(), os.fsencode(path)) == 1001
