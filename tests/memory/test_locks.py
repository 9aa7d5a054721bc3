"""Mutexes by whose content the kernel knows their owner: they need the numbers that processes and threads had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import PATIENCE

pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not choose the numbers of processes")
def test_robust_and_lent_ones_come_back(tmp_path: Path) -> None:
    case = Memory(tmp_path, [built(tmp_path, "locks.c")], ends=False)
    assert case.start().wait(PATIENCE) == 7, case.errors()
    expected = sorted((tmp_path / "out").read_bytes().splitlines())    # who goes first is not certain
    assert [each.rpartition(b": ")[2] for each in expected].count(b"yes") == 5 and len(expected) == 7, expected
    for _ in range(2):
        done = case.verb("restart", "1")
        assert (done.returncode, sorted(done.stdout.splitlines())) == (7, expected), done
