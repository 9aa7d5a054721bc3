"""How long a job of thousands of runs stands still, in simulated time: each run has a processor of its own.

Real: `Counter`, `Round` and `Tree` of the one that counts, and `Share` of each run, whose time is what they take here.
Simulated: the clock; the messages, each of which comes after `delay`; and what it takes to send and to take one, which
is `cost` of this machine (`measured`: encrypted lines to a second process, the work of both sides in it).
"""
from __future__ import annotations

import heapq
import json
import statistics
import subprocess
import sys
import time
from collections import Counter as Counts
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from metamori.runtime.job import counter, relays
from metamori.runtime.job.relays import COUNTER, DONE, OTHERS, RELAY, TOLD, Message, Share
from metamori.runtime.job.wire import Client, Server
from metamori.store.read.store import Store

READY_S, FREEZE_S, LOOK_S, WRITE_S = 0.001, 0.0003, 0.0007, 0.005    # of a small run, as measured


class Cost(NamedTuple):
    """Seconds for a message."""

    send: float
    take: float


def spent() -> float:
    return time.thread_time_ns() / 1e9


class Job:
    """`count` runs that have joined; b"" is the one that counts. handled: messages of each in the pause."""

    def __init__(self, store: Store, count: int, delay_s: float, cost: Cost) -> None:
        self.counter = counter.Counter(store, "simulated", 1, False, print)
        self.counter._server.close()
        self.counter._server = self        # type: ignore[assignment]
        self.counter._killed = lambda awaited: []      # type: ignore[method-assign]
        self.delay_s, self.cost, self.serial = delay_s, cost, 0
        self.due: list[tuple[float, int, bytes, str, Message, str]] = []
        self.free: dict[bytes, float] = {}             # until when each is busy
        self.shares: dict[bytes, Share] = {}
        self.stood: dict[bytes, float] = {}
        self.pauses: list[float] = []
        self.handled: Counts[bytes] = Counts()
        self.mark = spent()
        self.runs = [b"r%d" % number for number in range(count)]
        tree = self.counter._tree
        for who in self.runs:
            self.counter._runs[who] = counter.Run(who, 0.0)
        tree.changed()
        while not tree.is_settled:
            self.link(tree)

    def link(self, tree: relays.Tree) -> None:
        for who, message in list(tree.arrange(self.counter._runs)):
            if message["what"] == "relay?":
                tree.serves(who, {"port": 1})
            else:
                tree.linked(who, bytes.fromhex(message["relay"]))

    # -- in place of the socket of the one that counts, and of its clock

    def monotonic(self) -> float:
        return self.free.get(b"", 0.0) + spent() - self.mark

    def send(self, who: bytes, message: Message) -> None:
        self.send_all((who,), message)

    def send_all(self, all_: Iterable[bytes], message: Message) -> None:
        self.free[b""], self.mark = self.monotonic(), spent()
        for who in all_:
            self.says(b"", who, COUNTER, message)
        self.mark = spent()

    def receive(self, wait_s: float) -> tuple[bytes, Message] | None:
        now = self.monotonic()             # what the runs take from here on is not its time
        limit = now + wait_s
        while self.due and self.due[0][0] <= limit:
            at, _, who, line, message, whose = heapq.heappop(self.due)
            if who == b"":
                self.free[b""], self.mark = max(at, now) + self.cost.take, spent()
                self.handled[b""] += message["what"] in DONE
                return bytes.fromhex(whose), message
            self.turn(at, who, line, message, whose)
        self.free[b""], self.mark = limit, spent()
        return None

    # -- the runs

    def later(self, at: float, who: bytes, line: str, message: Message, whose: str = "") -> None:
        self.serial += 1
        heapq.heappush(self.due, (at, self.serial, who, line, message, whose))

    def says(self, who: bytes, to: bytes, line: str, message: Message) -> None:
        self.free[who] = self.free.get(who, 0.0) + self.cost.send
        self.handled[who] += message["what"] in (*TOLD, *DONE)
        self.later(self.free[who] + self.delay_s, to, line, message, who.hex())

    def send_from(self, who: bytes, sends: relays.Sends) -> None:
        for line, message in sends:
            if line == COUNTER:
                self.says(who, b"", line, message)
            elif line == RELAY:
                self.says(who, self.counter._tree.above[who], OTHERS, message)
            else:
                for below, relay in self.counter._tree.above.items():
                    if relay == who:
                        self.says(who, below, RELAY, message)

    def turn(self, at: float, who: bytes, line: str, message: Message, whose: str) -> None:
        """One run hears something, or ("self") has done it."""
        began = spent()
        now = self.free[who] = max(at, self.free.get(who, 0.0)) + (0 if line == "self" else self.cost.take)
        what = message["what"]
        if what == "prepare":
            self.shares[who] = Share(message)
            sends: relays.Sends = []
            self.later(now + READY_S, who, "self", {"what": "ready"})
        elif line == "self":
            sends = getattr(self.shares[who], what)() if what != "written" else \
                [(COUNTER, {"what": "written", "round": self.shares[who].number, "index": 1})]
        else:
            share = self.shares[who]
            cut, looks, goes_on = share.is_cut, share.may_look, share.goes_on
            sends = share.hear(line, message, whose)
            self.handled[who] += 1
            if share.is_cut > cut:
                self.stood[who] = now      # what it passes on first is part of its own pause, to be sure
        self.free[who] += spent() - began
        self.send_from(who, sends)
        if what == "cut" and share.is_cut > cut:
            self.later(self.free[who] + FREEZE_S, who, "self", {"what": "frozen"})
        if what == "look" and share.may_look > looks:
            self.later(self.free[who] + LOOK_S, who, "self", {"what": "looked"})
        if what == "go" and share.goes_on > goes_on:
            self.pauses.append(self.free[who] - self.stood[who])
            self.later(self.free[who] + WRITE_S, who, "self", {"what": "written"})

    def stand(self, number: int) -> list[float]:
        """One round; how long each stood still."""
        self.pauses, self.stood, self.handled = [], {}, Counts()
        before, counter.time = counter.time, self          # type: ignore[assignment]
        self.mark = spent()
        try:
            self.counter._agree(counter.Round(number, set(self.runs), self.counter._tree.above))
        finally:
            counter.time = before          # type: ignore[assignment]
        assert len(self.pauses) == len(self.runs)
        return self.pauses


def pauses(store: Store, count: int, delay_s: float, cost: Cost, rounds: int) -> tuple[list[float], list[float]]:
    """Of each round: the median, and the longest."""
    job = Job(store, count, delay_s, cost)
    each = [job.stand(number) for number in range(1, rounds + 1)]
    return [statistics.median(one) for one in each], [max(one) for one in each]


# -- what a message costs

def measured(lines: int = relays.WIDTH, times: int = 50) -> Cost:
    """With so many lines, to another process: until the last of them has heard, and until the last answer is taken."""
    server = Server()
    with subprocess.Popen([sys.executable, "-m", "bench.job_pause", str(lines)], cwd=Path(__file__).parents[1],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout
        other.stdin.write(json.dumps(server.reached) + "\n")
        other.stdin.flush()
        peers: set[bytes] = set()
        while len(peers) < lines:
            if got := server.receive(10):
                peers.add(got[0])
                server.send(got[0], {"what": "hello", "job": ""})
        other.stdout.readline()
        sent, taken = [], []
        for number in range(times):
            began = time.monotonic()
            server.send_all(peers, {"what": "cut", "round": number})
            sent.append(float(other.stdout.readline()) - began)
            began, left = time.monotonic(), lines
            other.stdin.write("go\n")
            other.stdin.flush()
            while left:
                left -= server.receive(10) is not None
            taken.append(time.monotonic() - began)
        other.kill()
    server.close()
    return Cost(statistics.median(sent) / lines, statistics.median(taken) / lines)


def _answer(count: int) -> None:
    """The other process of `measured`: its lines are one thread's."""
    reached = json.loads(sys.stdin.readline())
    first = Client(reached)
    lines = [first, *(Client(reached, first) for _ in range(count - 1))]
    print("there", flush=True)
    message: dict[str, Any] | None = None
    while True:
        for line in lines:
            message = line.receive(10)
        print(time.monotonic(), flush=True)
        sys.stdin.readline()
        for line in lines:
            line.send({"what": "frozen", "round": (message or {}).get("round")})


if __name__ == "__main__":
    _answer(int(sys.argv[1]))
