"""Random programs whose history is a tree: many rollbacks in one run, and unlinks and renames between them.

Every index is then read by `restore --to` and by moving there. Other than for test_random_programs.py, files were there
before the run, and the first that hears of one may be a rollback, of which no record tells.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from files_model import Names
from honest import assert_honest, tree_of
from lab import Lab
from player import natively, play
from programs import BEFORE, branches
from test_random_programs import to_the_last
from world import World

OPTIONS = [[], ["--isolate"], ["--isolate", "--cache-size", "0"], ["--mode", "single"]]
NAMES = ["default", "isolate", "small-cache", "single"]

FOUND = {
    # the restore gave the file a number, which no record told of
    "removed before any index knows it": ["checkpoint", "unlink f1", "restore @0", "restore @0"],
    "one that is gone, and one that comes back twice": [
        "open f3 rw,creat", "write 3 70000 1", "unlink f3", "checkpoint", "unlink f1", "restore @0", "restore @0"],
    # what the store kept of one that has another name made it a link too many
    "one name of two": ["link f1 f2", "checkpoint", "unlink f1", "restore @0", "tree"],
    # grown after it was gone back to, in isolation: the file was taken to hold what it grew by
    "grown after a rollback": [
        "checkpoint", "open f0 rw", "restore @0", "truncate f0 12288", "checkpoint", "truncate f0 100"],
}


class Story:
    """One store, and all that its indexes have to be."""

    def __init__(self, lab: Lab) -> None:
        natively(lab, BEFORE)
        self.lab, first = lab, World(before=BEFORE).state.names
        self.names: dict[int, Names] = {0: first}
        self.now, self.before = first, first.tree()

    def run(self, lines: Sequence[str], options: Sequence[str]) -> None:
        session = self.lab.start(*options)
        played = play(session, lines, world=World(True, names=self.now))
        assert session.end() == 0, session.stderr()
        assert session.stderr() == ""
        self.now = played.world.state.names
        assert tree_of(self.lab.work) == self.now.tree(), "after the end"
        self.names |= {index: saved.names for (index, _), saved in zip(played.checkpoints, played.world.saved)}
        self.names[max(entry["index"] for entry in self.lab.log()["checkpoints"])] = self.now

    def go_to(self, index: int) -> None:
        self.lab.restore(index)
        self.now = self.names[index]

    def check(self, rng: random.Random, single: bool = False) -> None:
        trees = {index: names.tree() for index, names in self.names.items()}
        assert_honest(self.lab.store, self.lab.work, trees, gone=single, untracked=self.before, rng=rng)


def everything(lab: Lab, lines: Sequence[str], options: list[str], seed: int = 0) -> None:
    single, story = "single" in options, Story(lab)
    story.run(list(to_the_last(list(lines))) if single else lines, options)
    story.check(random.Random(seed), single)


def several_runs(lab: Lab, seed: int, length: int) -> None:
    """Each begins at some index, by default or in isolation."""
    rng, story = random.Random(seed), Story(lab)
    for turn in range(3):
        story.run(branches(seed * 10 + turn, length, story.now), rng.choice(OPTIONS[:3]))
        if rng.random() < 0.7:
            story.go_to(rng.choice(sorted(story.names)))
    story.check(rng)


@pytest.mark.in_turn("name")
@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("name", FOUND)
def test_found(lab: Lab, name: str, options: list[str]) -> None:
    everything(lab, FOUND[name], options)


@pytest.mark.parametrize("second", OPTIONS[:3], ids=NAMES[:3])
@pytest.mark.parametrize("first", OPTIONS[:3], ids=NAMES[:3])
def test_what_an_earlier_run_put_home(lab: Lab, first: list[str], second: list[str]) -> None:
    """Isolated, then gone back to in isolation: bytes in place, above the limit that the index knows, were zeros."""
    story = Story(lab)
    story.run(["open d0/b rw,creat,trunc", "pwrite 3 6990 31421 737"], first)
    story.run(["checkpoint", "open d0/b rw,creat", "restore @0", "tree", "pread 3 40000 0", "pwrite 3 10 33000 1",
               "checkpoint", "ftruncate 3 1000", "restore @0", "tree", "restore @1", "tree", "ftruncate 3 50000",
               "checkpoint", "restore @0", "tree"], second)
    story.check(random.Random(0))


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", [100, 125, 203, 207])
def test_branches(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, branches(seed, 200), options, seed)


@pytest.mark.parametrize("seed", [5, 7, 107])
def test_several_runs(lab: Lab, seed: int) -> None:
    several_runs(lab, seed, 100)


@pytest.mark.in_turn("options")
@pytest.mark.parametrize("options", OPTIONS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_after_many_rollbacks(lab: Lab, seed: int, options: list[str]) -> None:
    """The program alone, or `metamori run` with it: what it had then is an index too."""
    story = Story(lab)
    session, world = lab.start(*options), World(True, names=story.now)
    played = play(session, branches(seed, 150), world=world)
    session.kill_all() if seed % 2 else session.kill_program()
    story.names |= {index: saved.names for (index, _), saved in zip(played.checkpoints, world.saved)}
    story.names.setdefault(max(entry["index"] for entry in lab.log()["checkpoints"]), world.state.names)
    story.check(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", range(40000, 40050))
def test_many_branches(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, branches(seed, 300 + seed % 50 * 25), options, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50000, 50100))
def test_many_several_runs(lab: Lab, seed: int) -> None:
    several_runs(lab, seed, 300)
