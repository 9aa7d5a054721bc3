"""Who prunes a live run's checkpoints is killed half way; then something else than a checkpoint comes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing

import pytest
from honest import Verb, told, verb
from lab import Lab

from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint.session import Session
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store


class Killed(BaseException):
    pass


def stop(lab: Lab, monkeypatch: pytest.MonkeyPatch, what: str, nth: int, error: BaseException,
         work: Callable[[], object]) -> object:
    """Work that goes, or fails, at its nth rename, or unlink, after the prune file is there."""
    left, real = [nth], getattr(Door, what)

    def stopped(door: Door, path: bytes, *more: bytes) -> None:
        if os.path.exists(lab.store / "prune"):
            left[0] -= 1
            if left[0] == 0:
                raise error
        real(door, path, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Door, what, stopped)
        try:
            return work()
        except Killed:
            return None
        finally:
            assert (lab.store / "prune").exists()


@pytest.mark.parametrize("how", ["inside", "outside"])
@pytest.mark.parametrize(("what", "nth"), [("rename", 1), ("rename", 2), ("unlink", 1), ("unlink", 2)])
def test_then_a_restore(lab: Lab, monkeypatch: pytest.MonkeyPatch, what: str, nth: int, how: str) -> None:
    """Who found the disk full is killed while it prunes. What the restore records would have the name of one of its,
    whose old records go when it is completed: that comes first."""
    content = os.urandom(100_000)
    (lab.work / "f").write_bytes(content)
    session = lab.start("--keep-last", 1)
    session.must(["open f rw", "pwrite 3 5000 4096 1", "checkpoint"])
    with closing(Area(str(lab.store))) as area:        # the next checkpoint prunes nothing yet
        area.head.keep_last = 9
    session.must(["pwrite 3 5000 8192 2", "checkpoint"])
    want = session.ask("pread 3 100000 0")
    for size in (90_000, 80_000):          # each cuts off, and so saves, some of what is in place
        session.must([f"ftruncate 3 {size}"])
        assert session.ask("restore 2") == "0"
    with closing(Area(str(lab.store))) as area:
        area.head.keep_last = 1
        with Store.open(str(lab.store)) as store, area.session_lock():
            stop(lab, monkeypatch, what, nth, Killed(), lambda: auto_prune.has_made_room(Session(store, area)))
        area.head.keep_last = 9
    session.must(["ftruncate 3 70000"])
    if how == "inside":
        assert session.ask("restore 2") == "0"
    else:
        lab.restore(2, "--force")
    assert not (lab.store / "prune").exists()
    assert session.ask("pread 3 100000 0") == want
    session.must(["checkpoint", "ftruncate 3 0"])
    assert session.end() == 0
    said = told(lab.store)
    assert (said.lost, said.problems) == (set(), [])
    lab.restore(0)
    assert (lab.work / "f").read_bytes() == content
    native = lab.start(native=True)
    for index in (2, 3, 2) if how == "inside" else (2,):   # the other has recorded what was there as 3
        lab.restore(index)
        native.must(["open f rw"])
        assert native.ask("pread 3 100000 0") == want, index
        native.must(["close 3"])


def test_what_fails_half_way_is_not_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lab.start("--keep-last", 1)
    session.must(["open f w,creat", "write 3 70000 1", "checkpoint", "pwrite 3 70000 0 2"])
    said = stop(lab, monkeypatch, "unlink", 1, OSError(errno.EIO, os.strerror(errno.EIO)),
                lambda: verb(lab.store, "checkpoint"))
    assert isinstance(said, Verb) and (said.code, said.out) == (0, "2\n")
    assert said.err == ("metamori: the next checkpoint completes what could not be pruned to its end: "
                        "Input/output error\n")
    session.must(["checkpoint"])
    assert not (lab.store / "prune").exists()
    assert session.end() == 0
    assert told(lab.store).problems == []
