"""Each operation of the store's one door fails once, in Python: in the completion of a killed run, which is a
checkpoint and a commit, in a restore back and forth, in a prune. The verb says so, and the next ones find nothing bad.

`make test` takes some of the operations, `make kills` every one with every error. EINTR is not among them: Python
repeats a call that a signal interrupted, so that the door never hears of it.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from killed import Killed
from slices import PARTS, Tried
from test_move_faults import FailingDoor
from trial import Verb, verb

from metamori.cli import progress

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENOMEM)
VERBS = {"complete": ("log",), "back": ("restore", 0), "forth": ("restore", 2), "prune": ("prune", "--keep-last", 1)}
Files = dict[str, bytes]


class Door:
    """The killed run of killed.py, completed, at index 1, or as the verb needs it; and what its indexes are."""

    def __init__(self, folder: Path, name: str, patch: pytest.MonkeyPatch) -> None:
        self.case, self.name, self.patch = Killed(folder), name, patch
        self.prepare("forth")
        self.trees = {index: self.at(index) for index in (0, 1, 2)}
        self.count = self.failing(1 << 30, 0)[1]
        assert self.count > 20

    def prepare(self, name: str) -> None:
        self.case.again()
        if name != "complete":
            self.must("log")
        if name == "forth":
            self.must("restore", 1)

    def must(self, *words: object) -> Verb:
        done = verb(self.case.store, *words)  # type: ignore[arg-type]
        assert done.code == 0, (words, done)
        return done

    def files(self) -> Files:
        return {path.name: path.read_bytes() for path in self.case.work.iterdir()}

    def at(self, index: int) -> Files:
        self.must("restore", index)
        return self.files()

    def failing(self, nth: int, number: int) -> tuple[Verb, int]:
        """The verb, whose nth operation fails; how many it made."""
        self.prepare(self.name)
        door = FailingDoor(nth, lambda: OSError(number, os.strerror(number)))
        with self.patch.context() as patch:
            patch.setattr(progress, "door", lambda: door)
            done = verb(self.case.store, *VERBS[self.name])  # type: ignore[arg-type]
        self._ended()
        return done, door.count

    def _ended(self) -> None:
        """The verb's process would have ended by now, and its lock with it."""
        for name in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{name}") == str(self.case.store / "lock"):
                os.close(int(name))

    def attempt(self, point: tuple[int, int]) -> None:
        nth, number = point
        done, _ = self.failing(nth, number)
        assert done.code in (0, 1, 12) and (done.code == 0 or done.err), done
        self.must("verify")
        known = {each["index"]: each["message"] for each in json.loads(self.must("log", "--json").out)["checkpoints"]}
        kept = {index for index, message in known.items() if not message.endswith("(pruned)")}
        assert kept >= ({2} if self.name == "prune" else {0, 1, 2}), (done, known)
        for index in sorted(kept & {0, 1, 2}):
            assert self.at(index) == self.trees[index], (done, index)
        self.must("verify")


@pytest.fixture
def door_of(tmp_path: Path, installed: None, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda name: Door(tmp_path, name, monkeypatch)


@pytest.mark.parametrize("name", VERBS)
def test_some_operations_fail(door_of, name: str) -> None:  # type: ignore[no-untyped-def]
    door = door_of(name)
    for turn, nth in enumerate(range(2, door.count, max(1, door.count // 6))):
        door.attempt((nth, ERRORS[turn % len(ERRORS)]))


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_fails(door_of, tried: Tried, name: str, part: int) -> None:  # type: ignore[no-untyped-def]
    door = door_of(name)
    tried([(nth, number) for nth in range(1, door.count + 1) for number in ERRORS], part, door.attempt)
