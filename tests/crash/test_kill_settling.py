"""A process that takes a checkpoint is killed between two lines of Python, the others of the run go on. When it is
written and the run area does not count from it yet, no system call is there at which the other tests could stop it."""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import CodeType, FrameType
from typing import Any

import pytest
from honest import assert_honest
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.runtime.checkpoint import snapshot
from metamori.runtime.checkpoint.delta import Fold
from metamori.runtime.checkpoint.shared_mappings import Capture
from metamori.store.read.store import Store

SETTLING = snapshot.settle_cut.__code__
PLACES = {"looking": Capture.of, "cut": snapshot.advance, "folding": Fold.records, "writing": Store.commit_checkpoint,
          "settling": snapshot.settle_cut}


def stopped_in(code: CodeType, store: str, at: int = 1, fails: bool = False) -> int:
    """How the process ends that takes a checkpoint and is killed at its `at`th line there, or finds the disk full."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    seen = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code is code and event == "line":
            seen += 1
            if seen == at and fails:
                raise OSError(errno.ENOSPC, "full")
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
        return look if frame.f_code is code else None

    sys.settrace(look)
    try:
        take(store, "killed")
    finally:
        os._exit(seen)


@pytest.mark.in_turn("at")
@pytest.mark.parametrize("at", [4, 7, 12, 14])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_the_next_one_is_whole(lab: Lab, options: list[str], at: int) -> None:
    """A file was cut and grew again: below the index that it grows from the old bytes were shown."""
    session = lab.start(*options)
    session.must(["open a rw,creat", "write 3 20000 1", "open b rw,creat", "write 4 20000 2", "checkpoint",
                  "pwrite 3 20000 0 21", "checkpoint", "ftruncate 3 5000", "pwrite 3 100 15000 3", "pwrite 4 300 100 4",
                  "open c rw,creat", "write 5 5000 5", "rename c d"])
    want = session.ask("tree")
    assert stopped_in(SETTLING, str(lab.store), at) == signal.SIGKILL
    index = lab.checkpoint()
    session.must(["pwrite 3 20000 0 11", "pwrite 4 20000 0 12", "unlink d"])
    last = int(session.ask("checkpoint"))
    end = session.ask("tree")
    assert session.end() == 0
    trees = {index: want, index - 1: want, last: end}
    assert_honest(lab.store, lab.work, {each: tree for each, tree in trees.items() if each > 2})


@pytest.mark.in_turn("place", "how")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("how", ["killed", "full"])
@pytest.mark.parametrize("place", PLACES)
def test_what_was_stored_through_a_mapping(lab: Lab, place: str, how: str, options: list[str]) -> None:
    """The file is mapped no more at that checkpoint, which lets go of it: the next one has to look at it all the same,
    also at what calls changed in between. What was stored was missing there, in silence."""
    session = lab.start(*options)
    session.must(["open a rw,creat", "write 3 30000 1", "map 3 30000 rw shared 0", "poke 0 30000 0 2",
                  "open gone rw,creat", "write 4 9000 3", "map 4 9000 rw shared 0", "unlink gone", "checkpoint",
                  "poke 0 5000 9000 7", "unmap 0 30000 0", "poke 1 5000 100 8", "unmap 1 9000 0"])
    first = session.ask("tree")
    ended = stopped_in(PLACES[place].__code__, str(lab.store), fails=how == "full")
    assert ended == signal.SIGKILL if how == "killed" else ended > 0, ended
    session.must(["pwrite 3 100 10000 4", "ftruncate 3 25000", "pwrite 3 3000 27000 5", "pwrite 4 10 4000 6"])
    want, gone = session.ask("tree"), session.ask("pread 4 9000 0")
    index = lab.checkpoint()
    session.must(["pwrite 3 30000 0 11", "pwrite 4 9000 0 12", "map 3 30000 rw shared 0", "poke 0 30000 0 13"])
    last, end = int(session.ask("checkpoint")), session.ask("tree")
    assert session.ask(f"restore {index}").startswith("0")
    assert (session.ask("tree"), session.ask("pread 4 9000 0")) == (want, gone)
    assert session.end() == 0
    assert first != want
    assert_honest(lab.store, lab.work, {index: want, last: end})
