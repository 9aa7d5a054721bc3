"""Runs that never stand still for a checkpoint, on two machines with disks of their own, against their own steps."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from lab import Tree
from machines import net
from test_job_disks import kill_all
from test_job_disks_model import Model, model
from test_job_instants import COUNT, begin, kill, moments, works
from test_job_model import seen_in

__all__ = ["model", "net"]                 # pytest finds them here
FOLDERS = [(1, "own/r0"), (1, "own/r1"), (2, "own/r2"), (2, "r3")]     # and on which machine


class Runs:
    """By their numbers; those that were killed are not in `processes` any more."""

    def __init__(self, lab: Model, seed: int, every: str) -> None:
        self.lab = lab
        self.moments = [moments(lab.folder / f"native.{number}", seed * len(FOLDERS) + number)
                        for number in range(len(FOLDERS))]
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for number, (machine, folder) in enumerate(FOLDERS):
            self.folder(number).mkdir()
            self.processes[number] = begin(
                lab.on(lab.net[machine], "run", "--job", "--every", every), seed * len(FOLDERS) + number, folder)
        for each in self.processes.values():
            assert each.stdout and each.stdout.readline() == "ready\n", each.stderr and each.stderr.read()

    def folder(self, number: int) -> Path:
        machine, folder = FOLDERS[number]
        return Path(f"/proc/{self.lab.net[machine].holder.pid}/root{self.lab.work}/{folder}")

    def seen(self) -> list[Tree]:
        return [seen_in(self.folder(number)) for number in range(len(FOLDERS))]

    def restore(self, index: int) -> list[Tree]:
        for machine in self.lab.net[1:]:
            self.lab.do(machine, "restore", index)
        return self.seen()


def check(lab: Model, seed: int, kills: bool) -> None:
    random_ = random.Random(seed)
    runs = Runs(lab, seed, f"{random_.choice([100, 200])}ms")
    while any(works(each) for each in runs.processes.values()):
        time.sleep(random_.random() * 0.3)
        if kills and random_.random() < 0.15 and len(runs.processes) > 1:
            kill(runs.processes.pop(random_.choice(list(runs.processes))))
    if kills and random_.random() < 0.5:
        for machine in lab.net[1:]:
            kill_all(machine)
        said = lab.do(random_.choice(lab.net), "log").stderr
    else:
        said = "".join(each.communicate(timeout=120)[1] for each in runs.processes.values())
    assert "lost" not in said and "Traceback" not in said, said
    final, known = runs.seen(), sorted(lab.there())
    done, found = [0] * len(FOLDERS), dict[int, list[Tree]]()
    for index in known:                    # in order: no run goes back
        found[index] = runs.restore(index)
        for number, now in enumerate(found[index]):
            at = next((at for at in range(done[number], COUNT + 1) if runs.moments[number][at] == now), -1)
            assert at >= 0, f"seed {seed}, {index}: {FOLDERS[number]} was never so after step {done[number]}"
            done[number] = at
    assert found[known[-1]] == final
    for index in random_.sample(known, len(known)):
        assert runs.restore(index) == found[index], f"seed {seed}, {index} once more"
    for machine in lab.net:
        lab.do(machine, "verify")


def test_no_run_stands_still(model: Model) -> None:
    check(model, 3, kills=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_run_of_many_stands_still(model: Model, seed: int) -> None:
    check(model, seed, kills=seed % 3 > 0)
