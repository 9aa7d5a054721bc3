"""The run that counts is killed at each step of a checkpoint: some runs have written their parts of it then, some not.

Each of many files has another history: who made it, what is done to it, and by whom, before that checkpoint, after it,
and before the next ones. What is there when a checkpoint is taken is what its index must give back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from lab import Lab, Tree, wait_until
from ranks import end
from test_job import counter
from test_job_ends import Held, asked
from test_job_model import checkpoint, seen_in

pytest.importorskip("zmq")

DEEDS = ["append", "append", "write", "empty", "cut", "unlink", "unlink", "rename", "link", "link", "anew", "chmod"]
STEPS = ["say cut", "say go", "miss go", "write late", "write never", "fold", "undo", "commit", "committed"]
FATES = ["", "end", "kill", "begin", "end other", "kill other"]      # of the first that is left, or of the other one
FILES = 60


def other_name(name: str) -> str:
    return name.removesuffix(".new") if name.endswith(".new") else f"{name}.new"


def do(rank: Any, deed: str, name: str, text: str) -> None:
    """It may be refused by the kernel."""
    if deed in ("rename", "link"):
        rank.do(deed, name, other_name(name))
    elif deed == "write":                  # by a descriptor that stays open
        rank.do("write", name, 4000, text * 40)
    elif deed in ("empty", "cut"):
        rank.do("truncate", name, 4500 if deed == "cut" else 0)
    elif deed == "chmod":
        rank.do("chmod", name, 0o600)
    else:
        if deed in ("unlink", "anew"):
            rank.do("unlink", name)
        if deed in ("append", "anew"):
            rank.do("append", name, text)


class Scene:
    """Three runs, of which the first counts. `seen`: what each index must give back."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.random = lab, random.Random(seed)
        self.seen: dict[int, Tree] = {}
        self.ranks = [Held(lab).ready() for _ in range(3)]
        assert counter(lab, self.ranks) is self.ranks[0]
        for number in range(FILES):
            self.random.choice(self.ranks).do("append", f"f{number}", f"f{number}" * 2000)
        checkpoint(lab, self.seen)

    def act(self, share: float, text: str, ranks: list[Any] | None = None) -> None:
        """With so many of the files, by any of the runs."""
        for number in range(FILES):
            if self.random.random() < share:
                for _ in range(self.random.choice([1, 1, 2])):
                    name = self.random.choice([f"f{number}", f"f{number}.new"])
                    do(self.random.choice(ranks or self.ranks), self.random.choice(DEEDS), name, text)

    def has_written(self, rank: Any) -> bool:
        return len(list(self.lab.store.glob(f"nodes/*.{rank.process.pid}/checkpoints/*.meta*"))) > len(self.seen)

    def leave(self, rank: Any, how: str) -> None:
        rank.kill() if how == "kill" else rank.end()
        self.ranks.remove(rank)


def killed_at(step: str, scene: Scene, deeds: Callable[[list[Any]], None]) -> None:
    """The one that counts. Nobody asks again before the deeds are done."""
    first, one, other = scene.ranks
    late, point = (other, step.split()[0]) if step.startswith("write") else (other, step)
    if not step.startswith(("write", "miss")):
        late = first
    late.arm(point)
    verb = asked(scene.lab)
    late.wait(point)
    if late is other:
        wait_until(lambda: scene.has_written(one), "one has written")
    verb.kill()
    verb.communicate()
    scene.leave(first, "kill")
    waiting = {"say cut": [one, other], "say go": [one, other], "miss go": [other]}.get(step, [])
    for rank in waiting:                   # it would by itself, seconds later
        rank.arm("give up")
    for rank in waiting:
        wait_until(lambda rank=rank: (rank.holds / "gave up").exists(), "it gives up")
        (rank.holds / "give up").unlink(missing_ok=True)
    deeds([one, other])
    if step == "write never":
        scene.leave(other, "kill")
        deeds([one])
    elif late is other:
        other.go(point)


def play(lab: Lab, step: str, fate: str, seed: int) -> None:
    scene = Scene(lab, seed)
    scene.act(0.7, "before")
    killed_at(step, scene, lambda ranks: scene.act(0.5, "after", ranks))
    how, _, who = fate.partition(" ")
    if how == "begin":
        scene.ranks.append(Held(lab).ready())
    elif fate and len(scene.ranks) > 1:
        scene.leave(scene.ranks[1 if who else 0], how)
    scene.act(0.4, "more")
    for text in ("later", "last"):
        checkpoint(lab, scene.seen)
        scene.act(0.4, text)
    at_end = seen_in(lab.work)
    said = end(scene.ranks)
    assert "Traceback" not in said and "lost" not in said, said
    scene.seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = at_end
    for index, tree in scene.seen.items():
        lab.restore(index)
        lab.assert_state(tree, f"{step}, {fate}, seed {seed}, restore {index}")
    lab.verb("verify")


@pytest.mark.in_turn("step", 2)
@pytest.mark.parametrize(("step", "fate"), [
    ("say go", "kill"), ("fold", "kill other"), ("undo", "begin"),
    pytest.param("miss go", "end other", marks=pytest.mark.slow),
    pytest.param("write late", "end", marks=pytest.mark.slow)])
def test_the_one_that_counts_is_killed_in_a_checkpoint(lab: Lab, step: str, fate: str) -> None:
    play(lab, step, fate, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("step", STEPS)
def test_at_every_step_of_a_checkpoint(lab: Lab, step: str, fate: str, seed: int) -> None:
    play(lab, step, fate, seed)
