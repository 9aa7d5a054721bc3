"""Checkpoints of programs that start and end threads all the time: each succeeds, and the program continues from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from comeback import Memory, built
from lab import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("installed")
POOL = """
import os
from multiprocessing.pool import ThreadPool
from threading import Thread
def some():
    while not os.path.exists("enough"):
        with ThreadPool(8) as pool:
            assert sum(pool.map(abs, range(20))) == 190
all = [Thread(target=some) for _ in range(4)]
for each in all: each.start()
for each in all: each.join()
"""


def check(case: Memory) -> None:
    before = case.run_and_kill("100ms", 6)
    known = case.branch(before[-1], "100ms")
    run = case.restart_in_background(known[-1], "--every", "100ms")
    try:
        wait_until(lambda: set(case.images()) - {*known, *before} or run.poll() is not None, case.errors())
        (case.work / "enough").touch()
        assert run.wait(PATIENCE * 2) == 0, case.errors()
    finally:
        case.kill_with(run)


@pytest.mark.parametrize("what", ["chain", "join"])
def test_threads_that_start_threads(tmp_path: Path, what: str) -> None:
    """A thousand that just ended were too many to ask; of chains, there was always one more."""
    check(Memory(tmp_path, [built(tmp_path, "churn.c"), what], ends=False))


def test_pools(tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    check(Memory(tmp_path, ["/usr/bin/python3", script], ends=False))
