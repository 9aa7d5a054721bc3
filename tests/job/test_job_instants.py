"""Runs of a job that never stand still for a checkpoint: at each index the files of each are those of one moment."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from busy import Player, steps
from hang import descendants
from lab import Lab, Tree
from test_job_model import seen_in

pytest.importorskip("zmq")

COUNT = 400
RUNS = 3


def moments(folder: Path, seed: int) -> list[Tree]:
    """What its files are after each of its steps, the last time."""
    folder.mkdir()
    player, found = Player(str(folder)), [seen_in(folder)]
    for step in steps(seed, COUNT):
        player.do(step)
        found.append(seen_in(folder))
    player.close()
    return found


def begin(start: list[str], seed: int, folder: str, **how: Any) -> subprocess.Popen[str]:
    """busy.py. start: the command line of the run, up to the program's."""
    words = [sys.executable, str(Path(__file__).parent / "busy.py"), str(seed), str(COUNT), folder]
    return subprocess.Popen([*start, "--", *words], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **how)


class Runs:
    """Each in a folder of its own, of which no other knows."""

    def __init__(self, lab: Lab, seed: int, *options: str) -> None:
        self.lab, self.folders = lab, [lab.work / f"r{number}" for number in range(RUNS)]
        self.moments = [moments(lab.folder / f"native.{number}", seed * RUNS + number) for number in range(RUNS)]
        self.processes = []
        for number, folder in enumerate(self.folders):
            folder.mkdir(exist_ok=True)
            self.processes.append(begin(lab.argv("run", *options), seed * RUNS + number, folder.name, cwd=lab.work,
                                        env=lab.env))
        for each in self.processes:
            assert each.stdout and each.stdout.readline() == "ready\n", each.stderr and each.stderr.read()

    def end(self) -> str:
        return "".join(each.communicate(timeout=120)[1] for each in self.processes)

    def at(self, number: int, since: int) -> int:
        """How many steps its files are at, of those from `since` on; -1: they were never so."""
        now = seen_in(self.folders[number])
        return next((at for at in range(since, COUNT + 1) if self.moments[number][at] == now), -1)


def works(process: subprocess.Popen[str]) -> bool:
    """Whether it has still something to do."""
    assert process.stdout
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    return not poll.poll(0)


def kill(process: subprocess.Popen[str]) -> None:
    """`metamori run` and its program. All are stopped first: what one starts meanwhile would go on."""
    process.send_signal(signal.SIGSTOP)
    stopped = set[int]()
    while more := {*descendants(process.pid)} - stopped:
        for pid in more:
            _send(pid, signal.SIGSTOP)
        stopped |= more
    for pid in stopped:
        _send(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):     # it has ended meanwhile
        os.kill(pid, number)


def check(lab: Lab, seed: int, kills: bool) -> None:
    random_ = random.Random(seed)
    runs = Runs(lab, seed, "--job", "--every", f"{random_.choice([50, 100, 200])}ms")
    while any(works(each) for each in runs.processes):
        time.sleep(random_.random() * 0.2)
        if kills and random_.random() < 0.2 and len(runs.processes) > 1:
            kill(runs.processes.pop(random_.randrange(len(runs.processes))))
        elif random_.random() < 0.3:
            lab.verb("checkpoint", cwd=lab.work)
    if kills and random_.random() < 0.5:
        while runs.processes:
            kill(runs.processes.pop())
    said = runs.end()
    assert "lost" not in said and "Traceback" not in said, said
    known = sorted(index["index"] for index in lab.log()["checkpoints"])
    final = [seen_in(folder) for folder in runs.folders]
    done = [0] * RUNS
    for index in known:                    # in order: no run goes back
        lab.restore(index)
        for number in range(RUNS):
            at = runs.at(number, done[number])
            assert at >= 0, f"seed {seed}, index {index}: r{number} was never so after step {done[number]}"
            done[number] = at
    assert [seen_in(folder) for folder in runs.folders] == final
    first: dict[int, list[Tree]] = {}
    for index in random_.sample(known, len(known)):
        lab.restore(index)
        first[index] = [seen_in(folder) for folder in runs.folders]
    for index in known:
        lab.restore(index)
        assert [seen_in(folder) for folder in runs.folders] == first[index]
    lab.verb("verify")


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(2))
def test_no_run_stands_still(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_no_run_of_many_stands_still(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 2 == 1)
