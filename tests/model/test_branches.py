"""Random programs whose history is a tree: many rollbacks in one run, and unlinks and renames between them.

Every index is then read by `restore --to` and by moving there. Other than for test_model.py, files were there before
the run, and the first that hears of one may be a rollback, of which no record tells.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from honest import assert_honest, tree_of
from lab import Lab
from player import natively, play
from programs import BEFORE, branches
from test_model import to_the_last
from world import World

OPTIONS = [[], ["--isolate"], ["--isolate", "--cache-size", "0"], ["--mode", "single"]]
NAMES = ["default", "isolate", "small-cache", "single"]

FOUND = {
    # the restore gave the file a number, which no record told of
    "removed before any index knows it": ["checkpoint", "unlink f1", "restore @0", "restore @0"],
    "made, removed and gone back from": [
        "open f3 rw,creat", "write 3 70000 1", "unlink f3", "checkpoint", "unlink f1", "restore @0", "restore @0",
        "pread 3 70000 0", "rename f0 f1", "restore @0", "checkpoint"],
    # what the store kept of one that has another name made it a link too many
    "one name of two": ["link f1 f2", "checkpoint", "unlink f1", "restore @0", "tree"],
    # grown after it was gone back to, in isolation: the home was taken to hold what it grew by
    "grown after a rollback": ["checkpoint", "open f0 rw", "restore @0", "truncate f0 12288", "checkpoint"],
}


def everything(lab: Lab, lines: Sequence[str], options: list[str], seed: int = 0) -> None:
    """The history has 0 too, and what the run had when it ended."""
    single = "single" in options
    natively(lab, BEFORE)
    session = lab.start(*options)
    played = play(session, list(to_the_last(list(lines))) if single else lines, before=BEFORE)
    assert session.end() == 0, session.stderr()
    assert session.stderr() == ""
    assert tree_of(lab.work) == played.world.state.names.tree(), "after the end"
    before = World(before=BEFORE).state.names.tree()
    end = max(entry["index"] for entry in lab.log()["checkpoints"])
    trees = {0: before, **dict(played.checkpoints), end: tree_of(lab.work)}
    assert_honest(lab.store, lab.work, trees, gone=single, untracked=before, rng=random.Random(seed))


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("name", FOUND)
def test_found(lab: Lab, name: str, options: list[str]) -> None:
    everything(lab, FOUND[name], options)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", [100, 125, 203, 207])
def test_branches(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, branches(seed, 200), options, seed)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
@pytest.mark.parametrize("seed", range(40000, 40050))
def test_many_branches(lab: Lab, seed: int, options: list[str]) -> None:
    everything(lab, branches(seed, 300 + seed % 50 * 25), options, seed)
