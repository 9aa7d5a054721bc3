"""A job of three runs on two machines against plain trees: files that all share, and files on each one's own disk."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from lab import Lab, Tree
from machines import Machine, net
from test_job_disks import Disks, There, kill_all
from test_job_model import NAMES, act, seen_in

pytest.importorskip("zmq")

__all__ = ["net"]                          # pytest finds it here
STEPS = 40
Seen = dict[int, dict[str, Tree]]


class Model(Disks):
    """Links are counted by names, as in the other model of jobs."""

    def own(self, machine: Machine) -> Tree:
        return seen_in(self.disk(machine))

    def all(self) -> dict[str, Tree]:
        shared = {path: entry for path, entry in seen_in(self.work).items() if not path.startswith("own")}
        return {"shared": shared} | {one.name: self.own(one) for one in self.net[1:]}


@pytest.fixture
def model(lab: Lab, net: list[Machine]) -> Iterator[Model]:
    made = Model(lab.folder, lab.driver)
    made.begin(net)
    yield made
    made.unmount()


def play(model: Model, random_: random.Random, kills: bool, seen: Seen, ends: bool = False) -> None:
    """One job. ends: runs do meanwhile. A disk whose machine has no run is at each index as of the last before: what it
    is then is not asked."""
    n1, n2 = model.net[1:]
    ranks = [There(model, one).ready() for one in (n1, n1, n2)]
    held: dict[There, set[str]] = {rank: set() for rank in ranks}
    for _ in range(STEPS):
        if random_.random() < 0.12:
            there = {"shared", *(rank.machine.name for rank in ranks)}
            seen[model.checkpoint()] = {name: tree for name, tree in model.all().items() if name in there}
        elif kills and len(ranks) > 1 and random_.random() < 0.05:
            ranks.pop(random_.randrange(len(ranks))).kill()
        elif ends and len(ranks) > 1 and random_.random() < 0.06:
            ranks.pop(random_.randrange(len(ranks))).end()
        elif random_.random() < 0.04:
            ranks.append(There(model, random_.choice([n1, n2])).ready())
            held[ranks[-1]] = set()
        else:
            act(random_, ranks, held, ("", "own"))
    if kills and random_.random() < 0.5:
        for one in model.net[1:]:
            kill_all(one)
        model.do(random_.choice(model.net), "log")
    else:
        for rank in ranks:
            rank.ask("exit", "0")
        said = "".join(rank.end() for rank in ranks)
        assert "Traceback" not in said, said
    seen[max(model.there())] = model.all()


def back(model: Model, random_: random.Random, index: int, seen: Seen, what: str) -> None:
    """By a restore on each; or by one here and the runs that start there."""
    if random_.random() < 0.5:
        for one in random_.sample(model.net[1:], 2):
            model.do(one, "restore", index)
        what += f", restore {index} on each"
    else:
        model.do(model.net[0], "restore", index)
        model.pass_by()
        what += f", restore {index} and runs"
    model.assert_all(seen[index], what)


def check(model: Model, seed: int, kills: bool, jobs: int = 1, ends: bool = False) -> None:
    """jobs: one after another, each from any index."""
    random_ = random.Random(seed)
    what = f"seed {seed}"
    if random_.random() < 0.5:             # the files are older than the job
        for folder in (model.work, *map(model.disk, model.net[1:])):
            (folder / "d").mkdir()
            for name in NAMES[:4]:
                (folder / name).write_bytes(os.urandom(10000))
    seen: Seen = {0: model.all()}
    for number in range(jobs):
        if number:
            back(model, random_, random_.choice(sorted(seen)), seen, what)
        play(model, random_, kills, seen, ends)
    for index in (*sorted(seen), *random_.sample(sorted(seen), len(seen))):
        back(model, random_, index, seen, what)
    model.do(model.net[0], "prune", "--keep-last", random_.randint(1, len(seen)))
    for index in random_.sample(sorted(model.there()), len(model.there())):
        if index in seen:
            back(model, random_, index, seen, f"{what}, pruned")
    for one in model.net:
        model.do(one, "verify")


def test_a_folder_that_another_run_removed(model: Model) -> None:
    """Whoever made it ends last and misses it: nobody else has taken it away."""
    seen: Seen = {0: model.all()}
    maker, other, elsewhere = (There(model, model.net[at]).ready() for at in (1, 1, 2))
    maker.do("mkdir", "own/d")
    seen[model.checkpoint()] = model.all()
    other.do("rmdir", "own/d")
    seen[model.checkpoint()] = model.all()
    for rank in (other, elsewhere, maker):
        rank.end()
    for index, tree in seen.items():
        model.do(model.net[0], "restore", index)
        model.pass_by()
        model.assert_all(tree, f"restore {index} and runs")


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_every_index_on_each_disk(model: Model, seed: int) -> None:
    check(model, seed, kills=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_jobs(model: Model, seed: int) -> None:
    check(model, seed, kills=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6000, 6040))
def test_many_jobs_whose_runs_end(model: Model, seed: int) -> None:
    check(model, seed, kills=seed % 4 > 0, ends=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4000, 4020))
def test_many_jobs_one_after_another(model: Model, seed: int) -> None:
    check(model, seed, kills=seed % 2 == 1, jobs=3)
