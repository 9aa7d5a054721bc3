"""Which of a job's runs was first: of what several saved, or noted, the first found it as the last checkpoint knows it.

The runs' library notes it in one file of all of them, <store>/nodes/order, a line before each change
(shim_c/src/engine/order.c, whose head says why the first is right; docs/adr/0060). Where a line is missing the clocks
say it (clock.py), and what lies within their doubt nobody knows. Lines and clocks are not mixed: together they could go
round in a circle. Where both speak and contradict each other, one of them is wrong, and nobody knows it either.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from metamori.runtime.checkpoint.job_stamps import MAGIC, ORDER
from metamori.store.format.records import UndoEntry
from metamori.store.read.store import Store

_PIECE = 1 << 20
Key = tuple[int, int]                      # the run's number and its stamp
Differing = Callable[[UndoEntry, UndoEntry], list[UndoEntry]]


class Noted(NamedTuple):
    """When a run saved or noted something: the job's time, how far that may be wrong, by whose clock; its line's place
    in the file, or -1."""

    at: int
    doubt: int
    machine: str
    line: int = -1


def _is_known_by_clock(one: Noted, other: Noted) -> bool:
    return one.machine == other.machine or abs(one.at - other.at) >= one.doubt + other.doubt


class Judge:
    """Of all that was noted of one thing. None: nobody knows when."""

    def __init__(self, all_: Iterable[Noted | None]) -> None:
        self._by_line = all(each is not None and each.line >= 0 for each in all_)

    def key(self, one: Noted | None) -> int:
        """What is known to be earlier has a smaller one."""
        return 0 if one is None else one.line if self._by_line else one.at

    def is_in_doubt(self, one: Noted | None, other: Noted | None) -> bool:
        """Of two runs: whether nobody can say which was earlier."""
        if one is None or other is None:
            return True
        known = _is_known_by_clock(one, other)
        if not self._by_line:
            return not known
        return known and (one.at < other.at) != (one.line < other.line)


Saved = tuple[Noted | None, str, UndoEntry]        # by which run


def earliest_first(rows: Sequence[Saved], differing: Differing) -> list[UndoEntry]:
    """What runs have saved of one file, so that of each byte the first entry counts. differing: of two entries' common
    bytes those that differ, as lost."""
    found: list[UndoEntry] = []
    for group in _overlapping(rows):
        if len({run for _, run, _ in group}) > 1:
            judge = Judge(noted for noted, _, _ in group)
            found += _in_doubt(group, judge, differing)
            group.sort(key=lambda row: judge.key(row[0]))
        found += [entry for _, _, entry in group]
    return found


def _overlapping(rows: Sequence[Saved]) -> Iterator[list[Saved]]:
    """Those that have bytes in common, with each other or by others between them; each group in the order of `rows`."""
    order = sorted(range(len(rows)), key=lambda at: rows[at][2].start)
    group: list[int] = []
    end = 0
    for at in order:
        if group and rows[at][2].start >= end:
            yield [rows[each] for each in sorted(group)]
            group, end = [], 0
        group.append(at)
        end = max(end, rows[at][2].end)
    if group:
        yield [rows[each] for each in sorted(group)]


def _in_doubt(group: list[Saved], judge: Judge, differing: Differing) -> Iterator[UndoEntry]:
    """Bytes that two runs have saved, differing, of which nobody can say which is older: lost."""
    rows = sorted(group, key=lambda row: row[2].start)
    for at, (noted, run, one) in enumerate(rows):
        for other_noted, other_run, other in rows[at + 1:]:
            if other.start >= one.end:
                break
            if run != other_run and judge.is_in_doubt(noted, other_noted):
                yield from differing(one, other)


class Order:
    """The lines, read on as they grow."""

    def __init__(self, store: Store) -> None:
        self._store, self._read, self._next = store, 0, 0

    def lines(self, wanted: set[Key]) -> dict[Key, int]:
        """Where they stand. All of one checkpoint's lines come before those of the next one's."""
        found: dict[Key, int] = {}
        twice: set[Key] = set()
        for at, key in self._since(self._read):
            if key in wanted:
                if key in found:
                    twice.add(key)
                found[key] = at
        self._next = max(found.values(), default=self._read)
        return {key: at for key, at in found.items() if key not in twice}

    def folded(self) -> None:
        """The checkpoint is there. One that failed is tried again, and wants the same lines."""
        self._read = max(self._read, self._next)

    def _since(self, start: int) -> Iterator[tuple[int, Key]]:
        """Each whole line from this place on. One that was not written to its end may stand before another."""
        try:
            fd = self._store.door.open(self._store.layout.order, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            data = b""
            while more := self._store.door.pread(fd, _PIECE, start + len(data)):
                data += more
                at = 0
                while (at := data.find(MAGIC, at)) >= 0 and at + ORDER.size <= len(data):
                    _, crc, run, stamp = ORDER.unpack_from(data, at)
                    whole = zlib.crc32(data[at + 8:at + ORDER.size]) == crc
                    if whole:
                        yield start + at, (run, stamp)
                    at += ORDER.size if whole else 1
                done = at if at >= 0 else max(0, len(data) - len(MAGIC) + 1)
                data, start = data[done:], start + done
        finally:
            self._store.door.close(fd)
