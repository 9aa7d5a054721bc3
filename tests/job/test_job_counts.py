"""The one that counts goes on whatever a checkpoint ends with."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import RANK, Rank, checkpoint, end
from test_job import everything_back

pytest.importorskip("zmq")

from metamori.errors import MetamoriError, StoreBusy
from metamori.runtime.job import counter, disks, folder, start
from metamori.runtime.job.counter import Counter
from metamori.runtime.job.member import ask
from metamori.runtime.job.places import Place
from metamori.runtime.job.wire import Server
from metamori.runtime.lifecycle import child_loop
from metamori.store.read.store import Store

FAILS = """
import os, sys, threading
import zmq
from metamori.cli.main import main
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.job import counter, member, start

def once(of, name, error):
    call = getattr(of, name)
    def fails(*args, **named):
        if threading.current_thread().name.startswith("metamori") and os.path.exists(os.environ["FAILS"]):
            if "AGAIN" not in os.environ:
                os.unlink(os.environ["FAILS"])
            raise error
        return call(*args, **named)
    setattr(of, name, fails)

if os.environ["WHERE"] == "reach":
    def nobody(*args):
        raise OSError(24, "Too many open files")
    member.Client, start.JOIN_S = nobody, 0.5
else:
    once(*{"freeze": (Session, "_freeze", MemoryError("no memory")),
           "line": (member.Member, "_take", zmq.ZMQError(0, "no line")),
           "hear": (counter.Counter, "_hear", zmq.ZMQError(0, "no line"))}[os.environ["WHERE"]])
sys.exit(main())
"""


ANEW = "metamori: the run that counts begins anew, or another does: ZMQError: no line\n"


class Fails(Rank):
    """One that meets what nobody expects, once, at the next checkpoint."""

    def __init__(self, lab: Lab, where: str) -> None:
        words = lab.argv("run", "--job")
        variables = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
        self.process = subprocess.Popen(
            [words[0], "-c", FAILS, *words[3:], "--", sys.executable, "-c", RANK], cwd=lab.work, text=True,
            env=variables | {"WHERE": where, "FAILS": str(lab.folder / "fails")}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_mistake_of_ours_ends_one_checkpoint_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended who counted, who kept the lock: the next who asked waited for nobody."""
    store = Store.create_or_open(str(tmp_path / "store"))
    store.lock()
    os.mkdir(store.layout.nodes)
    one = Counter(store, "job", 1, durable=False, say=print)

    def take(message: str) -> int:
        assert message != "first", "a mistake of ours"
        return 7

    monkeypatch.setattr(one, "take", take)
    one.start()
    try:
        with pytest.raises(MetamoriError, match="no checkpoint was taken: AssertionError: a mistake of ours"):
            ask(store.path, "first")
        assert ask(store.path, "second") == 7
    finally:
        one.stop()
        store.close()


@pytest.mark.parametrize("amid", [False, True])
def test_who_has_lost_the_lock_counts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amid: bool) -> None:
    """Its machine had hung for so long that the filesystem gave the lock to another; amid the work on a record."""
    store = Store.create_or_open(str(tmp_path / "store"))
    store.lock()
    os.mkdir(store.layout.nodes)
    said: list[str] = []
    one = Counter(store, "job", 1, durable=False, say=said.append)
    monkeypatch.setattr(one, "_take", lambda message: one._fold(message, "checkpoint", {}, set()))
    other = dict(folder.read_counter(store) or {}, server="another")
    if amid:
        monkeypatch.setattr(counter.disks, "fold", lambda *_: folder.write_counter(store, other) or ())
    else:
        folder.write_counter(store, other)
    for what in ("note_folded", "forget_folded"):
        monkeypatch.setattr(folder, what, lambda *_: pytest.fail("it writes into the store"))
    with pytest.raises(MetamoriError, match="another run counts by now"):
        one.take("")
    one._placed = 0
    one.start()
    wait_until(lambda: one.has_failed, "it notices")
    assert said == ["the run that counts begins anew, or another does: another run counts by now"]
    assert not store.is_locked and folder.read_counter(store) == other
    one.stop()


@pytest.mark.parametrize("where", ["freeze", "line", "hear"])
def test_what_nobody_expects_ends_one_checkpoint_at_most(lab: Lab, where: str) -> None:
    """It ended the thread: no checkpoint of the job came any more."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks: list[Rank] = [Fails(lab, where) for _ in range(2)]
    for rank in ranks:
        rank.ready().do("append", "common", "one")
    checkpoint(lab, seen)
    (lab.folder / "fails").touch()
    done = lab.verb("checkpoint", cwd=lab.work, code=None)
    assert not (lab.folder / "fails").exists()
    if not done.returncode:
        seen[int(done.stdout)] = picture(lab.work)
    for rank in ranks:
        rank.do("append", "common", "more")
    checkpoint(lab, seen)
    said = end(ranks)
    assert "Traceback" not in said and "Exception" not in said, said
    if where == "hear":
        assert ANEW in said, said
    everything_back(lab, seen)


def test_what_fails_again_is_said_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lab.env, "AGAIN", "1")
    rank = Fails(lab, "hear")
    rank.ready()
    (lab.folder / "fails").touch()
    reached = {(lab.store / "job").read_bytes()}
    wait_until(lambda: bool(reached.add((lab.store / "job").read_bytes())) or len(reached) > 3, "it begins anew")
    (lab.folder / "fails").unlink()
    checkpoint(lab, {})
    assert rank.end().count(ANEW) == 1


def test_who_counts_cannot_be_reached_by_itself(lab: Lab) -> None:
    """The run gives up, and its job is over."""
    only = Fails(lab, "reach")
    out, said = only.process.communicate(timeout=30)
    assert (only.process.returncode, out) == (125, ""), said
    assert "metamori: no answer from the run that counts" in said
    assert not list(lab.store.glob("nodes*"))


def test_who_waits_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
                                 ) -> None:
    """As long as somebody is at work in it; not for a run that has it for itself, nor for one that is not reached."""
    monkeypatch.setattr(start, "JOIN_S", 0.3)
    monkeypatch.setattr(start, "SAY_S", 0.3)
    store, other = (Store.create_or_open(str(tmp_path / "store")) for _ in range(2))
    other.lock()
    threading.Timer(1.5, other.unlock).start()
    assert start._is_first(store, "job ")
    assert capfd.readouterr().err == \
        f"metamori: waiting for the store {store.path}: who has it may be restoring the files\n"
    store.unlock()
    other.lock()
    os.mkdir(store.layout.run_area)
    with pytest.raises(StoreBusy, match="is in use by a live run"):
        start._is_first(store, "job ")
    assert "who has it may be about to end" in capfd.readouterr().err
    server = Server()
    folder.write_counter(store, {"job": "job ", **server.reached})
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="is in use by a run that is not reached, on "):
        threading.Timer(2, server.close).start()       # till then it is too busy to answer
        start._is_first(store, "job ")
    assert time.monotonic() - began > 2
    other.close()
    assert start._is_first(store, "job ")
    store.close()


def test_who_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task on the node has its files restored."""
    monkeypatch.setattr("metamori.runtime.job.disk.LOCK_S", 0.1)
    store = Store.create_or_open(str(tmp_path / "store"))
    disk = disks.find(store, "host", make=True)
    assert disk is not None
    disk.store.lock()
    threading.Timer(1, disk.store.unlock).start()
    place = Place("host", "boot", 1, ((os.fsencode(tmp_path), True, 2),))
    assert disks.bring(store, place, 1) == []
    monkeypatch.setattr(child_loop, "let_go", interrupted)
    disk.store.lock()
    with pytest.raises(KeyboardInterrupt):
        disks.bring(store, place, 2)
    disk.store.close()


def interrupted() -> None:
    raise KeyboardInterrupt
