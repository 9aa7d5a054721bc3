"""A run's lines: to the one that counts; to its relay; and, where it is a relay, to the runs below it (relays.py).

What lies between runs ends with the line to the one that counts: no message is of another's round.
"""

from __future__ import annotations

import zmq

from metamori.runtime.job.relays import COUNTER, OTHERS, RELAY, Message, Sends
from metamori.runtime.job.wire import Client, NoAnswer, Server, wait

_REACH_S = 0.3                             # for each of its addresses: meanwhile the one that counts is not heard


class Lines:
    """All but `counter` may be missing."""

    def __init__(self, counter: Client) -> None:
        self.counter = counter
        self._relay: Client | None = None
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

    def link(self, reached: Message, called: str) -> bool:
        """To a relay."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        try:
            self._relay = Client(reached, self.counter, _REACH_S, called=called)
        except (NoAnswer, zmq.ZMQError):                   # the one that counts goes on speaking with this run itself
            return False
        return True

    def receive(self, wait_s: float) -> tuple[str, Message, str] | None:
        """On which line, and from whom of the others."""
        if (got := self._receive()) is None and wait_s > 0:
            ends = [each for each in (self.counter, self._relay, self._others) if each is not None]
            wait(ends, wait_s)
            got = self._receive()
        return got

    def _receive(self) -> tuple[str, Message, str] | None:
        if self._hears_others and (got := self._from_others()) is not None:
            return got                     # where one is, more are: the other lines are not looked at for each
        self._hears_others = False
        if (message := self.counter.receive(0)) is not None:
            return COUNTER, message, ""
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
        for each in (self._relay, self._others, self.counter):
            if each is not None:
                each.close()
