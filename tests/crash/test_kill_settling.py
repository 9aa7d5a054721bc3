"""A process that takes a checkpoint is killed when it is written and the run area does not count from it yet, between
two lines of Python: no system call is there at which the other tests could stop it. The others of the run go on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

import pytest
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.runtime import cut

SETTLING = cut.settle_cut.__code__


def killed_while_settling(store: str, at: int) -> int:
    """The process that does it; killed at its `at`th line there."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    seen = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code is SETTLING and event == "line":
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
        return look if frame.f_code is SETTLING else None

    sys.settrace(look)
    try:
        take(store, "killed")
    finally:
        os._exit(0)


@pytest.mark.parametrize("at", [4, 7, 12, 14])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_the_next_one_is_whole(lab: Lab, options: list[str], at: int) -> None:
    """A file was cut and grew again: below the index that it grows from the old bytes were shown."""
    session = lab.start(*options)
    session.must(["open a rw,creat", "write 3 20000 1", "open b rw,creat", "write 4 20000 2", "checkpoint",
                  "pwrite 3 20000 0 21", "checkpoint", "ftruncate 3 5000", "pwrite 3 100 15000 3", "pwrite 4 300 100 4",
                  "open c rw,creat", "write 5 5000 5", "rename c d"])
    want = session.ask("tree")
    assert killed_while_settling(str(lab.store), at) == signal.SIGKILL
    index = lab.checkpoint()
    session.must(["pwrite 3 20000 0 11", "pwrite 4 20000 0 12", "unlink d"])
    last = int(session.ask("checkpoint"))
    end = session.ask("tree")
    assert session.end() == 0
    reader = lab.start(native=True)
    for each, tree in [(index, want), (index - 1, want), (last, end)]:
        if each > 2:
            lab.restore(each)
            assert reader.ask("tree") == tree, f"restore {each} of {index}"
    lab.verb("verify")
