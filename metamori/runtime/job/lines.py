"""A run's lines: to the one that counts; to its relay; and, where it is a relay, to the runs below it (relays.py).

What lies between runs ends with the line to the one that counts: no message is of another's round.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

import zmq

from metamori.runtime.job.relays import COUNTER, OTHERS, RELAY, Message, Sends
from metamori.runtime.job.wire import Client, Server, candidates, wait

_REACH_S = 1.0                             # for each address of a relay, where it has several


class Lines:
    """All but `counter` may be missing."""

    def __init__(self, counter: Client) -> None:
        self.counter = counter
        self._relay: Client | None = None
        self._told: Message | None = None  # of a relay that has not answered yet
        self._asked: Client | None = None
        self._addresses: deque[str] = deque()
        self._since = 0.0
        self._others: Server | None = None
        self._hears_others = False
        self._who: dict[str, bytes] = {}   # of a run below by what it is called
        self._called: dict[bytes, str] = {}

    def serve(self) -> Message | None:
        """As a relay; how it is reached, or None where that is not possible."""
        if self._others is not None:
            self._others.close()
            self._others = None
        self._who, self._called = {}, {}
        try:
            self._others = Server()
        except (OSError, RuntimeError, zmq.ZMQError):    # no descriptors left, say
            return None
        return self._others.reached

    def link(self, told: Message) -> None:
        """To a relay. It may write a checkpoint just now: until it answers, the one that counts speaks with this run
        itself, and is told then."""
        for each in (self._relay, self._asked):
            if each is not None:
                each.close()
        self._relay = self._asked = None
        self._told, self._addresses = told, deque(candidates(told["at"]))
        self._ask(told)

    def _ask(self, told: Message) -> None:
        self._since = time.monotonic()
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        if self._addresses:
            with suppress(zmq.ZMQError):   # no descriptors left, say
                self._asked = Client(told["at"], self.counter, self._addresses[0], called=told["as"])
                self._asked.socket.linger = 0
            self._addresses.rotate(-1)

    def _linked(self, told: Message) -> None:
        if self._asked is not None and self._asked.receive(0) is not None:
            self._relay, self._asked, self._told = self._asked, None, None
            self.counter.send({"what": "linked", "relay": told["relay"]})
        elif (self._asked is None or len(self._addresses) > 1) and time.monotonic() > self._since + _REACH_S:
            self._ask(told)

    def receive(self, wait_s: float) -> tuple[str, Message, str] | None:
        """On which line, and from whom of the others; None may come before the time is up."""
        if wait_s > 0 and not self._hears_others:      # a poll first costs no more than a look in vain
            wait([each for each in (self.counter, self._relay, self._asked, self._others) if each is not None], wait_s)
        return self._receive()

    def _receive(self) -> tuple[str, Message, str] | None:
        if self._hears_others and (got := self._from_others()) is not None:
            return got                     # where one is, more are: the other lines are not looked at for each
        self._hears_others = False
        if (message := self.counter.receive(0)) is not None:
            return COUNTER, message, ""
        if self._told is not None:
            self._linked(self._told)
        if self._relay is not None and (message := self._relay.receive(0)) is not None:
            return RELAY, message, ""
        return self._from_others()

    def _from_others(self) -> tuple[str, Message, str] | None:
        if self._others is None or (got := self._others.receive(0)) is None:
            return None
        self._hears_others = True
        who, message = got
        if message.get("what") == "hello?":
            self._greet(self._others, who, str(message.get("called", "")))
        return OTHERS, message, self._called.get(who, "")

    def _greet(self, others: Server, who: bytes, called: str) -> None:
        self._called.pop(self._who.get(called, b""), None)     # its line was cut
        self._who[called], self._called[who] = who, called
        others.send(who, {"what": "hello", "job": ""})

    def send(self, sends: Sends) -> None:
        for line, message in sends:
            if line == OTHERS and self._others is not None:
                self._others.send_all(self._who.values(), message)
            elif line == RELAY and self._relay is not None:
                self._relay.send(message)
            elif line == COUNTER:
                self.counter.send(message)

    def close(self) -> None:
        for each in (self._relay, self._asked, self._others, self.counter):
            if each is not None:
                each.close()
