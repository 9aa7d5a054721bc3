"""Runs one after another in one store, which end or are killed, with restores and prunes between: each index is what
the program saw there. Two folders are tracked, and names go out of them and in (rover.py)."""

from __future__ import annotations

import os
import pickle
import random
import sys
from pathlib import Path

import pytest
import rover
from lab import Lab


class Sessions:
    """What is known of each index, by who saw it."""

    def __init__(self, lab: Lab, seed: int, back: bool) -> None:
        self.lab, self.random, self.back = lab, random.Random(seed), back
        self.folders = [str(lab.work), str(lab.folder / "second")]
        self.outside, self.pictures = lab.folder / "outside", lab.folder / "pictures"
        for folder in (self.folders[1], self.outside, self.pictures):
            os.makedirs(folder)
        del lab.env["METAMORI_TRACK"]
        lab.env["PYTHONPATH"] += f":{Path(__file__).parent}"
        self.isolated = self.random.random() < 0.3
        self.known: dict[int, rover.Picture] = {0: {}}

    def now(self) -> rover.Picture:
        return rover.picture(self.folders)

    def must_be(self, want: rover.Picture, what: str) -> None:
        have = self.now()
        assert have == want, what + "".join(
            f"\n{path}: have {have.get(path)}, want {want.get(path)}"
            for path in sorted(have.keys() | want.keys()) if have.get(path) != want.get(path))

    def run(self, seed: int) -> None:
        """And what is there afterwards: after a kill, with isolation, that is as of the last commit."""
        end = self.random.choice(["exit", "kill all", "kill all", "kill"])
        options = ["--track", self.folders[1], *["--isolate"] * self.isolated]
        if self.random.random() < 0.15:
            options += ["--keep-last", "3"]
        last = self.pictures / "last"
        last.unlink(missing_ok=True)
        done = self.lab.run([sys.executable, rover.__file__, seed, self.random.choice([20, 60, 120]), end,
                             int(self.back), self.pictures, self.outside, *self.folders], *options)
        assert last.exists() and b"Traceback" not in done.stderr, done.stderr.decode()
        head = self.lab.log()["head"]      # completes it
        for path in self.pictures.glob("[0-9]*"):
            self.known[int(path.name)] = pickle.loads(path.read_bytes())
        if end == "exit" or not self.isolated:
            self.must_be(pickle.loads(last.read_bytes()), f"after {end}")
        self.known[head] = self.now()

    def indexes(self) -> list[int]:
        return [each["index"] for each in self.lab.log()["checkpoints"] if "(pruned)" not in each["message"]]

    def restore(self, index: int) -> None:
        self.lab.restore(index)
        if index in self.known:
            self.must_be(self.known[index], f"restore {index}")
        self.known[index] = self.now()

    def between(self) -> None:
        for _ in range(self.random.randrange(1, 7)):
            what = self.random.random()
            if what < 0.15:
                self.lab.verb("prune", "--keep-last", self.random.randrange(1, 6))
            elif what < 0.25:
                self.lab.verb("verify")
            else:
                self.restore(self.random.choice(self.indexes()))
        for index in self.indexes():
            if self.random.random() < 0.5:
                self.restore(index)


def play(lab: Lab, seed: int, back: bool) -> None:
    sessions = Sessions(lab, seed, back)
    for number in range(5):
        sessions.run(seed * 100 + number)
        sessions.between()
    lab.verb("verify")


@pytest.mark.in_turn("seed", 2)
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("back", [False, True], ids=["", "back"])
@pytest.mark.parametrize("seed", range(3))
def test_sessions(somewhere: Lab, seed: int, back: bool) -> None:
    play(somewhere, seed, back)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("back", [False, True], ids=["", "back"])
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_sessions(somewhere: Lab, seed: int, back: bool) -> None:
    play(somewhere, seed, back)
