"""The one that counts goes on whatever a checkpoint ends with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab, Tree, picture
from ranks import RANK, Rank, checkpoint, end
from test_job import everything_back

pytest.importorskip("zmq")

from metamori.errors import MetamoriError
from metamori.runtime.job.counter import Counter
from metamori.runtime.job.member import ask
from metamori.store.read.store import Store

FAILS = """
import os, sys, threading
import zmq
from metamori.cli.main import main
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.job import counter, member

def once(of, name, error):
    call = getattr(of, name)
    def fails(*args, **named):
        if threading.current_thread().name.startswith("metamori") and os.path.exists(os.environ["FAILS"]):
            os.unlink(os.environ["FAILS"])
            raise error
        return call(*args, **named)
    setattr(of, name, fails)

once(*{"freeze": (Session, "_freeze", MemoryError("no memory")),
       "line": (member.Member, "_take", zmq.ZMQError(0, "no line")),
       "hear": (counter.Counter, "_hear", zmq.ZMQError(0, "no line"))}[os.environ["WHERE"]])
sys.exit(main())
"""


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
    everything_back(lab, seen)
