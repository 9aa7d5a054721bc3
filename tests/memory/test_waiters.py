"""Who waits in the kernel for what another process has, when a checkpoint is taken, waits for it when both are back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import PATIENCE, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed")]
needs_numbers = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not choose the numbers of processes")


@pytest.mark.parametrize("what", ["named", pytest.param("unlinked", marks=pytest.mark.slow),
                                  pytest.param("queue", marks=pytest.mark.slow)])
def test_they_wait_for_the_same(tmp_path: Path, what: str) -> None:
    """What is found by its name, also by a process that begins later, is what they wait for; and a name that was gone
    stays so. The program takes its checkpoints itself, and is killed behind the third."""
    case = Memory(tmp_path, [built(tmp_path, "waiters.c"), what])
    found = case.run_and_kill("600000ms", 3)
    assert found == [1, 2, 3]
    case.everywhere(found[1:])


@needs_numbers
@pytest.mark.slow
def test_mutexes_of_which_the_kernel_knows_the_owner(tmp_path: Path) -> None:
    """They need the numbers that processes had: at odd indexes (comeback.py), and when whoever takes orphans has waited
    for those that were killed."""
    case = Memory(tmp_path, [built(tmp_path, "waiters.c"), "mutex"])
    run = case.start()
    wait_until(lambda: len(case.images()) == 3 or run.poll() is not None, f"images: {case.errors()}")
    had = case.of_the_run()
    case.kill_with(run)
    run.wait(PATIENCE)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in had), "their numbers are free")
    for index in (3, 1, 3):
        case.goes_on(index)
