"""Trees of processes killed at any moment of a checkpoint or a restart: the older index is whole, and all come back."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from comeback import Memory, built, descendants, killed_again
from lab import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("installed")
PROGRAMS = (("tree.c", "kin"), ("tree.c", "memory"), ("tree.c", "files"), ("sysv.c", "work"))


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
    case = Memory(folder, [built(folder, source), what])
    known = case.run_and_kill("60ms", random_.randint(1, 4))
    for _ in range(kills):
        (killed_again if random_.random() < 0.5 else killed_restart)(case, random_, random_.choice(known))
        known = with_memory(case)
    for index in (known[-1], random_.choice(known)):
        case.goes_on(index)
    assert case.verb("verify").returncode == 0


@pytest.mark.parametrize("seed", range(4))
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
    case = Memory(tmp_path, [built(tmp_path, source), what])
    run = case.start("--every", "10ms")
    try:
        wait_until(lambda: len(case.images()) >= 2 or run.poll() is not None, f"images: {case.errors()}")
        time.sleep(random_.random() * 0.02)
        victims = [run.pid, *descendants(run.pid)]
        random_.shuffle(victims)
        for pid in victims:
            case.kill_all([pid] if pid != run.pid else [])
            if pid == run.pid:
                run.kill()
            time.sleep(random_.choice((0, 0.001, 0.01)))
        case.kill_all(descendants(run.pid))
        run.wait(PATIENCE)
    finally:
        run.kill()
    known = with_memory(case)
    assert case.verb("verify").returncode == 0
    case.goes_on(known[-1])
    case.goes_on(known[0])
