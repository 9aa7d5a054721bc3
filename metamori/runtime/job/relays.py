"""Relays of a job: a job of thousands of runs stands still hardly longer than one of a hundred (docs/adr/0062).

While all stand still, the one that counts speaks with some WIDTH runs itself. Each of those may be a relay: it passes
"cut", "look" and "go" on to as many others, and says "frozen" and "looked" for itself and all of them. All else goes
between each run and the one that counts. So does this, once a relay is late: what it should have passed on, and all
that follows, comes from the one that counts too ("alone"), and is answered there.

`Tree` is the side of the one that counts, `Share` that of each run; both without sockets and clocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 64                                 # runs that one speaks with, while they stand still
LATE_S = 0.05
COUNTER, RELAY, OTHERS = "counter", "relay", "others"      # a run's lines: to the one that counts, its relay, its runs

TOLD, DONE = ("cut", "look", "go"), ("frozen", "looked")   # all have done the one when they are told the next

Message = dict[str, Any]
Sends = list[tuple[str, Message]]          # on which line; "others" is all of them


class Tree:
    """Who speaks through whom. A run is told to which relay it may connect; it does so in a round once it has."""

    def __init__(self) -> None:
        self.above: dict[bytes, bytes] = {}            # the relay of a run, connected
        self.is_settled = True
        self._told: dict[bytes, bytes] = {}            # the same, connected or not
        self._asked: set[bytes] = set()                # to be relays
        self._awaited: set[bytes] = set()              # of these, to answer
        self._serve: dict[bytes, Message] = {}         # how these are reached
        self._room: dict[bytes, int] = {}

    def changed(self) -> None:
        self.is_settled = False

    def serves(self, who: bytes, at: Message | None) -> None:
        """Asked, it says so; or it cannot, and is not asked again."""
        if who in self._awaited:
            self._awaited.discard(who)
            if at:
                self._serve[who], self._room[who] = at, WIDTH
            self.changed()

    def linked(self, who: bytes, relay: bytes) -> None:
        if self._told.get(who) == relay:
            self.above[who] = relay

    def drop(self, who: bytes) -> None:
        """It has ended, or its line is cut. The runs below it are spoken with again."""
        self._asked.discard(who)
        self._awaited.discard(who)
        self._serve.pop(who, None)
        self._room.pop(who, None)
        for each in (who, *(each for each, relay in self._told.items() if relay == who)):
            relay = self._told.pop(each, b"")
            self.above.pop(each, None)
            if relay in self._room:
                self._room[relay] += 1
        self.changed()

    def arrange(self, runs: Mapping[bytes, Any]) -> Iterator[tuple[bytes, Message]]:
        """What some of the runs are to be told. Relays are spoken with, then the first to come."""
        self.is_settled = True
        near = [who for who in runs if who not in self._told]
        near.sort(key=lambda who: who not in self._serve)
        far = near[WIDTH:]
        for who in far:
            relay = next((each for each, room in self._room.items() if room), None)
            if relay is None:
                break
            self._told[who] = relay
            self._room[relay] -= 1
            yield who, {"what": "through", "relay": relay.hex(), "as": who.hex(), "at": self._serve[relay]}
        left = sum(who not in self._told for who in far)
        for who in reversed(near[:WIDTH]):
            if len(self._awaited) * WIDTH >= left:
                break
            if who not in self._asked:
                self._asked.add(who)
                self._awaited.add(who)
                yield who, {"what": "relay?"}


class Share:
    """What one run says and hears in a round, by what it was told at its start."""

    def __init__(self, prepare: Message) -> None:
        self.number: int = prepare["round"]
        self.is_off = False
        self.place = -1                    # of the instant, in the order of the job (order.py)
        self._told = self._done = 0        # of TOLD; of DONE
        self._line = COUNTER               # where it answers
        self._below = frozenset(prepare.get("below", ()))
        self._awaited = set(self._below)   # to have done what it was told last
        self._for_all = {"all": True} if self._below else {}

    @property
    def is_cut(self) -> bool:
        return self._told >= 1

    @property
    def may_look(self) -> bool:
        return self._told >= 2

    @property
    def goes_on(self) -> bool:
        return self._told >= 3

    def ready(self) -> Sends:
        return [(COUNTER, {"what": "ready", "round": self.number})]

    def frozen(self) -> Sends:
        return self._has_done(1)

    def looked(self) -> Sends:
        return self._has_done(2)

    def _has_done(self, step: int) -> Sends:
        self._done = step
        return self._gathered()

    def _gathered(self) -> Sends:
        if not 0 < self._told == self._done or self._awaited:
            return []
        return [(self._line, {"what": DONE[self._done - 1], "round": self.number, **self._for_all})]

    def hear(self, line: str, message: Message, whose: str = "") -> Sends:
        """What it says to that. whose: of one below, as it is called in `prepare`."""
        what = message.get("what")
        if message.get("round") != self.number or self.is_off:
            return []
        if line == OTHERS:
            if what not in DONE or DONE.index(what) + 1 != self._told or whose not in self._awaited:
                return []
            self._awaited.discard(whose)
            return self._gathered()
        step = TOLD.index(what) + 1 if what in TOLD else 0
        if not step or step > min(self._told, self._done) + 1:
            self.is_off = True             # aborted
            return []
        if step > self._told:
            return self._first(line, step, message)
        return self._alone() if step == self._told and message.get("alone") else []

    def _first(self, line: str, step: int, message: Message) -> Sends:
        self._told, self.place = step, message.get("place", -1)
        if step == 1 or line == COUNTER:
            self._line = line
        self._awaited = set(self._below)
        return self._alone() if message.get("alone") else self._to_others(message)

    def _to_others(self, message: Message) -> Sends:
        return [(OTHERS, message)] if self._below else []

    def _alone(self) -> Sends:
        """Some relay is late: each answers for itself, and is told by the one that counts."""
        self._line, self._for_all, self._below = COUNTER, {}, frozenset()
        self._awaited.clear()
        return self._gathered()
