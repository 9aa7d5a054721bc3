"""Relays of a large job (runtime/job/relays.py): who speaks through whom, and what holds when a relay is late or dies.

Here a job is large from three runs on: `RELAYS` of killing.py, `WIDTH` in this process.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter as Counts
from contextlib import suppress
from pathlib import Path
from typing import Any

import killing
import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import Rank, checkpoint, end
from test_job import counter, everything_back
from test_job_kills import Crew
from test_job_model import back

pytest.importorskip("zmq")

from bench import job_pause
from metamori.runtime.job import relays
from metamori.runtime.job.counter import Counter, Refused, Round
from metamori.runtime.job.lines import Lines
from metamori.runtime.job.member import Aborted, _wait, dial
from metamori.runtime.job.relays import COUNTER, RELAY, WIDTH, Message, Share
from metamori.runtime.job.relays import Tree as Relays
from metamori.runtime.job.wire import Client
from metamori.store.read.store import Store

# -- who speaks through whom

def settle(tree: Relays, runs: dict[bytes, int], fail: frozenset[bytes] = frozenset()) -> None:
    """fail: cannot be relays."""
    tree.changed()
    while not tree.is_settled:
        for who, message in list(tree.arrange(runs)):
            if message["what"] == "relay?":
                tree.serves(who, None if who in fail else {"port": 1})
            else:
                tree.linked(who, bytes.fromhex(message["relay"]))


def assert_small(tree: Relays, runs: dict[bytes, int], near: int = WIDTH) -> None:
    assert tree.above.keys() <= runs.keys() and set(tree.above.values()) <= runs.keys()
    assert len(runs.keys() - tree.above.keys()) <= near
    assert max(Counts(tree.above.values()).values(), default=0) <= WIDTH
    assert not set(tree.above.values()) & tree.above.keys(), "a relay of a relay"


@pytest.mark.parametrize("count", [1, WIDTH, WIDTH + 1, 1000, WIDTH * (WIDTH + 1)])
def test_nobody_speaks_with_more_than_so_many(count: int) -> None:
    tree, runs = Relays(), {b"%d" % number: 0 for number in range(count)}
    settle(tree, runs)
    assert_small(tree, runs)
    assert bool(tree.above) == (count > WIDTH)


def test_runs_come_and_go() -> None:
    random_ = random.Random(4)
    tree, runs = Relays(), dict.fromkeys((b"%d" % number for number in range(600)), 0)
    for step in range(60):
        settle(tree, runs)
        assert_small(tree, runs)
        gone = random_.sample(sorted(runs), 30)
        if step % 2:
            gone += random_.sample(sorted(set(tree.above.values()) - set(gone)), 2)
        for who in gone:
            del runs[who]
            tree.drop(who)
        runs |= {b"%d.%d" % (step, number): 0 for number in range(random_.randrange(60))}


def test_who_cannot_be_a_relay_is_not_asked_again() -> None:
    tree, runs = Relays(), {b"%d" % number: 0 for number in range(WIDTH + 3)}
    fail = frozenset(list(runs)[1:WIDTH])
    settle(tree, runs, fail)
    assert set(tree.above.values()) == {b"0"}
    tree = Relays()
    settle(tree, runs, frozenset(runs))
    assert not tree.above


# -- what the pause of many costs

def handled(tmp_path: Path, count: int) -> tuple[int, int]:
    """Messages that one run, and the one that counts, send or take while all stand still: the most of any."""
    store = Store.create_or_open(str(tmp_path / f"store.{count}"))
    job = job_pause.Job(store, count, 0.0001, job_pause.Cost(1e-6, 1e-6))
    job.stand(1)
    return max(job.handled[who] for who in job.runs), job.handled[b""]


def test_messages_of_one_in_the_pause_of_thousands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five for each that it speaks with; a relay has five above it. On a machine that takes no time of its own: on a
    busy one a relay may be late."""
    monkeypatch.setattr(job_pause, "spent", lambda: 0.0)
    assert handled(tmp_path, 10) == (5, 50)
    for count in (1000, 4096):
        most, counts = handled(tmp_path, count)
        assert most <= 5 * (WIDTH + 1) and counts <= 5 * WIDTH, (count, most, counts)


# -- real lines, and runs that have nothing to freeze

class Puppet(threading.Thread):
    """A run's line, and what it says in each round. cuts: on which line it was told."""

    def __init__(self, reached: Message, name: str) -> None:
        super().__init__(daemon=True)
        self.name_, self.over, self.cuts, self.pauses = name, threading.Event(), list[str](), list[float]()
        self.reached = reached
        self.is_deaf = False               # as a relay: passes nothing on
        self.start()

    def run(self) -> None:
        self.lines = Lines(Client(self.reached))
        self.lines.send([(COUNTER, {"what": "join", "name": self.name_})])
        while not self.over.is_set():
            got = self.lines.receive(0.02)
            if got is None or got[0] != COUNTER:
                continue
            message = got[1]
            if message["what"] == "relay?":
                self.lines.send([(COUNTER, {"what": "relay", "at": self.lines.serve()})])
            elif message["what"] == "through":
                self.lines.link(message)
            elif message["what"] == "prepare":
                with suppress(Aborted):
                    self.stand(Share(message))
        self.lines.close()

    def stand(self, share: Share) -> None:
        if self.is_deaf:
            share._to_others = lambda message: []      # type: ignore[method-assign]
        self.lines.send(share.ready())
        _wait(self.lines, share, lambda: share.is_cut, 4)
        self.cuts.append(share._line)
        began = time.monotonic()
        self.lines.send(share.frozen())
        _wait(self.lines, share, lambda: share.may_look, 4)
        self.lines.send(share.looked())
        _wait(self.lines, share, lambda: share.goes_on, 4)
        self.pauses.append(time.monotonic() - began)
        self.lines.send([(COUNTER, {"what": "written", "round": share.number, "index": share.number})])


class Puppets:
    def __init__(self, tmp_path: Path, count: int) -> None:
        self.store = Store.create_or_open(str(tmp_path / "store"))
        self.counter = Counter(self.store, "puppets", 1, False, print)
        self.all: list[Puppet] = []
        for number in range(count):
            self.all.append(Puppet(self.counter._server.reached, f"p{number}"))
            self.hear(lambda number=number: len(self.counter._runs) == number + 1)
        self.hear(lambda: len(self.counter._tree.above) == max(0, count - relays.WIDTH))

    def hear(self, until) -> None:  # type: ignore[no-untyped-def]
        limit = time.monotonic() + 20
        while not until():
            assert time.monotonic() < limit
            self.counter._hear(0.02)

    def stand(self) -> Round:
        self.counter._round += 1
        round_ = Round(self.counter._round, set(self.counter._runs), self.counter._tree.above)
        self.counter._killed = lambda awaited: []      # type: ignore[method-assign]
        self.counter._agree(round_)
        return round_

    def end(self) -> None:
        for each in self.all:
            each.over.set()
        for each in self.all:
            each.join()
        self.counter._server.close()


@pytest.fixture
def puppets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(relays, "WIDTH", 3)
    found = Puppets(tmp_path, 8)
    yield found
    found.end()


def test_most_are_told_by_relays(puppets: Puppets) -> None:
    for _ in range(3):
        round_ = puppets.stand()
        assert len(round_.indexes) == 8
    told = Counts(line for each in puppets.all for line in each.cuts)
    assert sum(told.values()) == 24 and told[RELAY] >= 10, told      # not where a busy machine was late


def test_a_relay_that_passes_nothing_on_costs_no_checkpoint(puppets: Puppets) -> None:
    for who in set(puppets.counter._tree.above.values()):
        name = os.fsdecode(puppets.counter._runs[who].name)
        next(each for each in puppets.all if each.name_ == name).is_deaf = True
    assert len(puppets.stand().indexes) == 8
    assert {line for each in puppets.all for line in each.cuts} == {COUNTER}
    assert max(max(each.pauses) for each in puppets.all) < 2


def test_a_relay_that_answers_late_is_one_all_the_same(puppets: Puppets, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may write a checkpoint when it is asked."""
    greet, answers = Lines._greet, threading.Event()

    def late(lines: Lines, *more: Any) -> None:
        answers.wait(20)
        greet(lines, *more)

    monkeypatch.setattr(Lines, "_greet", late)
    puppets.all.append(Puppet(puppets.counter._server.reached, "more"))
    told = puppets.counter._tree._told
    puppets.hear(lambda: len(told) == 6)
    began = time.monotonic()
    puppets.hear(lambda: time.monotonic() > began + 1.5)
    assert len(puppets.counter._tree.above) == 5
    answers.set()
    puppets.hear(lambda: len(puppets.counter._tree.above) == 6)


def test_a_relay_that_hangs_is_named(puppets: Puppets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metamori.runtime.job.counter.READY_S", 1.0)
    monkeypatch.setattr("metamori.runtime.job.counter.FREEZE_S", 1.0)
    who = next(iter(puppets.counter._tree.above.values()))
    one = next(each for each in puppets.all if each.name_ == os.fsdecode(puppets.counter._runs[who].name))
    hangs = threading.Event()
    frozen = Share.frozen

    def late(share: Share) -> relays.Sends:
        if threading.current_thread() is one:
            hangs.wait(20)
        return frozen(share)

    monkeypatch.setattr(Share, "frozen", late)
    began = time.monotonic()
    with pytest.raises(Refused, match=f"^no answer from {one.name_}$"):
        puppets.stand()
    assert time.monotonic() - began < 5
    hangs.set()
    monkeypatch.setattr(Share, "frozen", frozen)
    assert len(puppets.stand().indexes) == 8           # it has come back, late


def test_runs_below_a_relay_that_is_gone_are_spoken_with_again(puppets: Puppets) -> None:
    tree = puppets.counter._tree
    who = next(iter(tree.above.values()))
    one = next(each for each in puppets.all if each.name_ == os.fsdecode(puppets.counter._runs[who].name))
    one.over.set()
    one.join()
    puppets.counter._forget(who)
    assert len(puppets.stand().indexes) == 7
    puppets.hear(lambda: len(tree.above) == 4 and who not in tree.above.values())
    assert len(puppets.stand().indexes) == 7


# -- real jobs

RELAYED = {"RELAYS": "2"}


def relayed(lab: Lab) -> int:
    client = dial(str(lab.store))
    try:
        client.send({"what": "status"})
        answer = client.receive(10)
        assert answer
        return int(answer["relayed"])
    finally:
        client.close()


def large(lab: Lab, count: int = 4) -> tuple[list[Rank], list[Path]]:
    """The first counts, the second is a relay of the others."""
    orders = [lab.folder / f"order.{number}" for number in range(count)]
    ranks = []
    for order in orders:
        ranks.append(Rank(lab, order=order, env=RELAYED).ready())
    wait_until(lambda: relayed(lab) == count - 2, "they have a relay")
    assert counter(lab, ranks) is ranks[0]
    return ranks, orders


def test_every_index_of_a_large_job(lab: Lab) -> None:
    (lab.work / "shared").write_bytes(b"." * 20000)
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks, _ = large(lab)
    for step in range(5):
        for number, rank in enumerate(ranks):
            rank.do("write", "shared", 5000 * number + step, f"{step}{number}" * 50)
            rank.do("append", f"own.{number}", f"step {step}\n")
        checkpoint(lab, seen)
    ranks.pop(1).kill()                    # the relay
    for number, rank in enumerate(ranks):
        rank.do("write", "shared", 100 * number, "later")
    checkpoint(lab, seen)
    assert "Traceback" not in end(ranks)
    everything_back(lab, seen)


@pytest.mark.in_turn("nth", 2)
@pytest.mark.parametrize("nth", [1, 3, 7, *(pytest.param(nth, marks=pytest.mark.slow) for nth in (2, 4, 5, 9, 12))])
def test_a_relay_stops_amid_a_checkpoint(lab: Lab, nth: int) -> None:
    """Refused with a message, or complete, within the time limit; once it goes on all is as before."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks, orders = large(lab)
    for rank in ranks:
        rank.do("append", "common", "one")
    checkpoint(lab, seen)
    for rank in ranks:
        rank.do("append", "common", "more")
    killing.order(orders[1], nth, signal.SIGSTOP)
    began = time.monotonic()
    done = lab.verb("checkpoint", code=None, cwd=lab.work)
    assert time.monotonic() - began < 30
    if done.returncode:
        assert "no answer from" in done.stderr, done.stderr
    else:
        seen[int(done.stdout)] = picture(lab.work)
    for rank in (ranks[0], *ranks[2:]):
        rank.do("append", "other", "goes on")
    killing.order(orders[1], killing.NEVER)
    ranks[1].process.send_signal(signal.SIGCONT)
    wait_until(lambda: lab.verb("checkpoint", code=None, cwd=lab.work).returncode == 0, "a checkpoint once it goes on")
    seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = picture(lab.work)
    end(ranks)
    everything_back(lab, seen)


def steps(lab: Lab, seed: int, first: int, step: int, last: int) -> None:
    """Each operation of the one that counts, of its relay, or of a run below that is killed in a checkpoint."""
    crew = Crew(lab, seed, 5, RELAYED)
    for at, nth in enumerate(range(first, last, step)):
        with suppress(AssertionError):     # with no more than two runs left
            wait_until(lambda: relayed(lab) == 1, "it has a relay")
        crew.act(4)
        one = sorted(crew.ranks, key=lambda rank: rank is not counter(lab, crew.ranks))[at % 3]
        killing.order(crew.orders[one], nth)
        crew.checkpoint()
        killing.order(crew.orders[one], killing.NEVER)
        crew.bury()
        if crew.random.random() < 0.3:
            crew.act(2)
            crew.checkpoint()
        crew.fill()
    crew.end()
    back(lab, f"seed {seed}", seed, crew.seen)
    print(f"seed {seed}: {crew.kills} kills")


def test_killed_with_relays_at_some_operations(lab: Lab) -> None:
    steps(lab, 6, 1, 7, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 30))
def test_killed_with_relays_at_every_operation(lab: Lab, seed: int) -> None:
    steps(lab, seed, seed - 19, 3, 60)
