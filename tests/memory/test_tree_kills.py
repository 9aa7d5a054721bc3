"""Trees of processes killed at any moment of a checkpoint or a restart: the older index is whole, and all come back."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from comeback import Memory, built, killed_again
from lab import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("installed")
PROGRAMS = (("tree.c", "kin"), ("tree.c", "memory"), ("tree.c", "files"), ("sysv.c", "work"), ("growth.c", ""))


def test_children_that_come_and_go(tmp_path: Path) -> None:
    """Each checkpoint meets some that end, begin, become another program, or are killed."""
    case = Memory(tmp_path, [built(tmp_path, "tree.c"), "churn"])
    case.everywhere(case.run_and_kill("20ms", 12), most=6)


def with_memory(case: Memory) -> list[int]:
    return [entry["index"] for entry in case.log()["checkpoints"] if entry["memory"]]


def killed_restart(case: Memory, random_: random.Random, index: int) -> None:
    """At some moment of it, or soon after."""
    run = case.restart_in_background(index)
    try:
        time.sleep(random_.random() * 0.5)
        case.kill_with(run)
        run.wait(PATIENCE)
    finally:
        run.kill()


def chain(folder: Path, seed: int, kills: int) -> None:
    random_ = random.Random(seed)
    source, what = PROGRAMS[seed % len(PROGRAMS)]
    case = Memory(folder, [built(folder, source), what or str(seed)])
    known = case.run_and_kill("60ms", random_.randint(1, 4))
    for _ in range(kills):
        (killed_again if random_.random() < 0.5 else killed_restart)(case, random_, random_.choice(known))
        known = with_memory(case)
    for index in (known[-1], random_.choice(known)):
        case.goes_on(index)
    assert case.verb("verify").returncode == 0


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(5))
def test_a_few_kills(tmp_path: Path, seed: int) -> None:
    chain(tmp_path, seed, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_chains(tmp_path: Path, seed: int) -> None:
    chain(tmp_path, seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_killed_in_any_order_while_it_is_saved(tmp_path: Path, seed: int) -> None:
    """One of them first, or who saves them; the others a moment later."""
    random_ = random.Random(seed)
    source, what = PROGRAMS[seed % len(PROGRAMS)]
    case = Memory(tmp_path, [built(tmp_path, source), what or str(seed)])
    run = case.start("--every", "10ms")
    try:
        wait_until(lambda: len(case.images()) >= 2 or run.poll() is not None, f"images: {case.errors()}")
        time.sleep(random_.random() * 0.02)
        known = case.images()              # what comes later may be of a tree that lacks one
        while victims := [*([run.pid] if run.poll() is None else []), *case.of_the_run()]:
            with suppress(ProcessLookupError):
                os.kill(random_.choice(victims), signal.SIGKILL)
            time.sleep(random_.choice((0, 0.001, 0.01)))
    finally:
        run.kill()
    assert case.verb("verify").returncode == 0
    for index in (known[-1], known[0]):
        case.goes_on(index)
