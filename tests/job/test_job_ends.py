"""Runs of a job end, and begin, while a checkpoint is under way: it is taken all the same, of those that are there."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import RANK, Rank, checkpoint, end
from test_job import counter, everything_back

pytest.importorskip("zmq")

HELD = r"""
import os, sys, time
from pathlib import Path
from metamori.cli.main import main
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.job import counter, member, places, wire

where = Path(os.environ["HOLDS"])

def hold(point):
    if (where / point).exists():
        (where / f"{point}.reached").touch()
        while (where / point).exists():
            time.sleep(0.002)

def before(of, name, point, if_=lambda *args, **named: True):
    call = getattr(of, name)
    def held(*args, **named):
        if if_(*args, **named):
            hold(point)
        return call(*args, **named)
    setattr(of, name, held)

if "JOIN_S" in os.environ:
    counter._JOIN_S = float(os.environ["JOIN_S"])
take = member.Member._take
def deaf(self, message):                   # to what a checkpoint begins with, if its command ends meanwhile
    if message["what"] == "prepare":
        hold("prepare")
        if self._over.is_set():
            return
    take(self, message)
member.Member._take = deaf
receive = wire.Server.receive
def hears(self, wait_s):
    got = receive(self, wait_s)
    if got is not None and got[1].get("what") == "checkpoint":
        (where / got[1]["message"]).touch()
    return got
wire.Server.receive = hears
before(Session, "checkpoint", "end", lambda *args, **named: named.get("home"))
before(places, "note", "note")
before(counter.Counter, "_fold", "fold")
before(counter.Counter, "join", "stop")
sys.exit(main())
"""


class Held(Rank):
    """A run that stops at points for which there is a file in `holds`, until that is gone."""

    def __init__(self, lab: Lab, holds: Path, **env: str) -> None:
        self.holds = holds
        holds.mkdir()
        words = lab.argv("run", "--job")
        assert words[:3] == [sys.executable, "-m", "metamori"]
        variables = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", HELD, *words[3:], "--", sys.executable, "-c", RANK], cwd=lab.work, text=True,
            env=variables | {"HOLDS": str(holds)} | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def arm(self, point: str) -> None:
        (self.holds / point).touch()

    def wait(self, point: str) -> None:
        wait_until((self.holds / f"{point}.reached").exists, f"it stops at {point}")

    def go(self, point: str) -> None:
        (self.holds / point).unlink()


def asked(lab: Lab, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(lab.argv("checkpoint", *words), cwd=lab.work, env=lab.env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def index_of(verb: subprocess.Popen[str]) -> int:
    out, said = verb.communicate(timeout=60)
    assert verb.returncode == 0, said
    return int(out)


def is_quiet(verb: subprocess.Popen[str], seconds: float) -> bool:
    """Whether it has not answered in that time."""
    assert verb.stdout
    return not select.select([verb.stdout], [], [], seconds)[0]


def has_ended(rank: Rank) -> bool:
    """Whether the program has, of which `metamori run` still lives."""
    pid = rank.process.pid
    return not Path(f"/proc/{pid}/task/{pid}/children").read_text()


def exits(rank: Rank) -> None:
    rank.ask("exit", "0")
    wait_until(lambda: has_ended(rank), "its program ends")


def three(lab: Lab, seen: dict[int, Tree], **env: str) -> list[Any]:
    """The first counts. Each has written something since checkpoint 1."""
    ranks = [Held(lab, lab.folder / f"holds.{number}", **env).ready() for number in range(3)]
    assert counter(lab, ranks) is ranks[0]
    for step in range(2):
        for number, rank in enumerate(ranks):
            rank.do("append", "common", f"{step}{number}")
            rank.do("append", f"own.{number}", "abc")
        if not step:
            checkpoint(lab, seen)
    return ranks


def finish(lab: Lab, ranks: list[Any], seen: dict[int, Tree]) -> None:
    seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = picture(lab.work)
    said = end(ranks)
    assert said == ""
    everything_back(lab, seen)


@pytest.mark.parametrize("who", [0, 2])
def test_a_run_ends_when_a_checkpoint_begins(lab: Lab, who: int) -> None:
    """The one that counts, or another: it is of the checkpoint, as it ended."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    one = ranks[who]
    one.arm("prepare")
    verb = asked(lab)
    one.wait("prepare")
    exits(one)
    one.go("prepare")
    assert index_of(verb) == 2
    finish(lab, ranks, seen)


@pytest.mark.parametrize("who", [0, 2])
def test_a_run_ends_for_long_while_a_checkpoint_is_asked_for(lab: Lab, who: int) -> None:
    """It is waited for like one that writes its part of a checkpoint."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen, JOIN_S="0.3")
    one = ranks[who]
    one.arm("end")
    one.ask("exit", "0")
    one.wait("end")
    verb = asked(lab)
    assert is_quiet(verb, 1.5)
    one.go("end")
    assert index_of(verb) == 2
    finish(lab, ranks, seen)


def test_who_asks_while_the_one_that_counts_ends_asks_the_next(lab: Lab) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    for rank, point in ((ranks[0], "fold"), (ranks[0], "stop"), (ranks[2], "prepare")):
        rank.arm(point)
    verbs = [asked(lab, "-m", "first")]
    ranks[2].wait("prepare")
    verbs.append(asked(lab, "-m", "second"))
    wait_until((ranks[0].holds / "second").exists, "the one that counts hears it")
    ranks[2].go("prepare")
    ranks[0].wait("fold")
    seen[2] = picture(lab.work)
    exits(ranks[0])
    ranks[0].wait("stop")
    for point in ("stop", "fold"):
        ranks[0].go(point)
    assert sorted(map(index_of, verbs)) == [2, 3]
    finish(lab, ranks, seen)
    assert [lab.messages()[index] for index in (2, 3)] == ["first", "second"]
