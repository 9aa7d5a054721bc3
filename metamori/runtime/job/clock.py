"""The one time of a job, by which its runs' stamps are put in order (docs/adr/0058).

It is the clock of the machine where somebody counted first; who counts next goes on with it, as well as it knows it. No
two machines' clocks run alike, so each run asks again each second, and notes the answers in its own store: of each
stamp is then known what time it was, and how far that may be wrong. On one machine the order is exact.

A point: the machine's own time, what is to be added to it, and how far that may be wrong; nanoseconds.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect
from collections.abc import Iterable
from typing import Any

from metamori.store.format.records import NO_LIMIT
from metamori.store.io import commit
from metamori.store.io.os_io import Door

_LINE = struct.Struct("<qqqI")
_CHECK = 0x6d636c6b
_SECOND = 10**9
_DRIFT = 4000                              # two clocks drift apart by less than 1/4000
_WANDER = 100_000                          # and more than that changes within a minute
_BEFORE = 60                               # points, each second one
MOST = 4096                                # points; then every other one goes
Point = tuple[int, int, int]
Moment = tuple[int, int]                   # the job's time, and how far it may be wrong


def now_ns() -> int:
    """As the library stamps; no time service hastens or slows it down."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


class Clock:
    """Of one run: what it has been told."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.points = list(points)
        self._is_new = True                # not as it was written last

    def heard(self, sent: int, got: int, answer: dict[str, Any], is_same_machine: bool) -> None:
        """Of a question sent and answered then. The best answer of each second counts."""
        now, shift, doubt = answer["clock"]
        point = (got, shift, doubt) if is_same_machine else \
            ((sent + got) // 2, now + shift - (sent + got) // 2, doubt + (got - sent) // 2 + 1)
        if self.points and point[0] - self.points[-1][0] < _SECOND:
            if point[2] > self.points[-1][2]:
                return
            self.points.pop()
        self.points.append(point)
        self._is_new = True

    def write(self, door: Door, path: bytes) -> None:
        if not self._is_new:
            return
        if len(self.points) > MOST:
            self.points = self.points[:-1:2] + self.points[-1:]
        commit.write_file(door, path, b"".join(_LINE.pack(*each, _CHECK) for each in self.points), durable=False)
        self._is_new = False

    @property
    def base(self) -> tuple[int, int]:
        """For one that counts from now on: what is to be added to its clock, and the doubt."""
        if not self.points:
            return 0, 0
        moment, doubt = Timeline(self.points).at(now := now_ns())
        return moment - now, doubt


def read(door: Door, path: bytes) -> list[Point]:
    try:
        data = commit.read_file(door, path)
    except FileNotFoundError:
        return []
    whole = len(data) // _LINE.size * _LINE.size
    return [(at, shift, doubt) for at, shift, doubt, check in _LINE.iter_unpack(data[:whole]) if check == _CHECK]


class Timeline:
    """Of one machine, by all that its runs were told. What came later there has no earlier time."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._points: list[Point] = []
        for point in reversed(_best(reversed(_best(sorted(points))))):
            while self._points and (point[0] <= self._points[-1][0] or
                                    point[0] + point[1] < sum(self._points[-1][:2])):
                self._points.pop()         # told in the same moment; or one of the clocks was set back
            self._points.append(point)

    def at(self, stamp: int) -> Moment:
        after = bisect(self._points, (stamp, NO_LIMIT, 0))
        if not self._points:
            return stamp, NO_LIMIT
        near = self._points[max(0, after - 1):after + 1]
        if len(near) == 1:
            return self._beside(stamp, near[0], self._points[-_BEFORE:-1] if after else [])
        (start, low, _), (end, high, _) = near
        shift = low + (high - low) * (stamp - start) // (end - start)
        return stamp + shift, max(each[2] for each in near) + abs(high - low)

    def _beside(self, stamp: int, last: Point, before: list[Point]) -> Moment:
        """Later than all that was told, or earlier: as the clocks ran apart before, if that is known any better."""
        for number, one in enumerate(before):
            took, on = last[0] - one[0], stamp - last[0]
            apart, doubt = last[1] - one[1], last[2] + one[2]
            if on < 0 or doubt + took // _WANDER >= took // _DRIFT or abs(apart) > doubt + took // _DRIFT:
                continue
            at, shift, vague = before[(number + len(before)) // 2]       # did a clock stand still meanwhile?
            if abs(one[1] + apart * (at - one[0]) // took - shift) <= doubt + vague:
                return stamp + last[1] + apart * on // took, last[2] + doubt * on // took + on // _WANDER
        return stamp + last[1], last[2] + abs(stamp - last[0]) // _DRIFT


def _best(points: Iterable[Point]) -> list[Point]:
    """Without those of which the one before says better what they say: an answer that was long on its way."""
    found: list[Point] = []
    for point in points:
        if found:
            near = found[-1][2] + abs(point[0] - found[-1][0]) // _DRIFT
            if near < point[2] and abs(point[1] - found[-1][1]) <= near + point[2]:
                continue                   # else a clock stood still meanwhile
        found.append(point)
    return found


def timelines(parts: Iterable[tuple[str, Iterable[Point]]]) -> dict[str, Timeline | None]:
    """By machine; None where there is only one: its own time is right."""
    points: dict[str, list[Point]] = {}
    for machine, said in parts:
        points.setdefault(machine, []).extend(said)
    return {machine: Timeline(said) if len(points) > 1 else None for machine, said in points.items()}
