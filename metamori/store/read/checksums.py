"""The checksums of buffer bytes in a store's records.

A checksum is of a whole range; whoever needs a part of it pays for all of it, once.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from metamori.errors import Damaged
from metamori.store.format.layout import Layout
from metamori.store.io.buffers import Buffers
from metamori.store.read.catalog import Catalog

Signed = tuple[int, int, int, int]     # run, start, end, crc


class Checked:
    """The signed ranges that an index may resolve to. A range whose crc is 0 was not signed."""

    def __init__(self, buffers: Buffers, layout: Layout, ranges: Iterable[Signed]) -> None:
        self._buffers, self._layout = buffers, layout
        found: dict[int, dict[int, set[tuple[int, int, int]]]] = {}
        for run, start, end, crc in ranges:
            if run and crc:
                found.setdefault(run, {}).setdefault((end - start).bit_length(), set()).add((start, end, crc))
        # by run, and by length to a factor of two: among short ones nobody has to go as far back as the longest reaches
        self._ranges = {run: {bits: sorted(those) for bits, those in each.items()} for run, each in found.items()}
        self._good: set[tuple[int, int, int]] = set()

    def require(self, run: int, start: int, end: int) -> None:
        """Damaged unless every signed range that has bytes of [start, end) is what was signed."""
        self.require_all(run, ((start, end),))

    def require_all(self, run: int, ranges: Iterable[tuple[int, int]]) -> None:
        """As `require` for each of them; short ranges are read together."""
        asked: dict[tuple[int, int], int] = {}
        for start, end in ranges:
            for low, high, crc in self.over(run, start, end):
                if (run, low, high) not in self._good:
                    asked.setdefault((low, high), crc)
        for (low, high), have in zip(asked, self._buffers.checksums(run, list(asked)) if asked else (), strict=True):
            if have != asked[low, high]:
                raise Damaged(f"{os.fsdecode(self._layout.buffer(run))}: checksum mismatch at bytes {low}-{high}")
            self._good.add((run, low, high))

    def over(self, run: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Start, end and crc of each signed range that has bytes of [start, end)."""
        for bits, found in self._ranges.get(run, {}).items():
            for at in range(bisect_left(found, (end, 0, 0)) - 1, -1, -1):
                low, high, crc = found[at]
                if low + (1 << bits) <= start:
                    break
                if high > start:
                    yield low, high, crc


def require_all(store: Catalog, index: int, wanted: Iterable[tuple[int, int, int]]) -> None:
    """Damaged unless these bytes of buffers, each as run, start and end, are what was signed as an index's."""
    asked: dict[int, list[tuple[int, int]]] = {}
    for run, start, end in wanted:
        asked.setdefault(run, []).append((start, end))
    if asked:
        checked = signed_ranges(store, index, {run: (min(ranges)[0], max(end for _, end in ranges))
                                               for run, ranges in asked.items()})
        for run in sorted(asked):
            checked.require_all(run, sorted(asked[run]))


def all_signed(store: Catalog) -> Checked:
    """What all records have signed."""
    undos = (entry for undo in store.undos for entry in undo.entries)
    offsets = (store.offsets(each) for each in store.history.indexes if each)
    return Checked(store.buffers, store.layout, (
        *((row.run or each.run, row.buffer_start, row.buffer_end, row.crc) for each in offsets for row in each.entries),
        *((run, start, start + high - low, crc) for _, low, high, run, start, crc in undos)))


def signed_ranges(store: Catalog, index: int, only: Mapping[int, tuple[int, int]] | None = None) -> Checked:
    """What the buffer bytes that an index may resolve to have to be. only: by run, the bytes [start, end) of its buffer
    that will be asked about; without it all of them."""
    def found() -> Iterator[Signed]:
        for each in filter(None, store.history.chain(index)):
            offsets = store.offsets(each)
            if only is None or offsets.run in only or any(each.run for each in offsets.entries):
                for _, _, _, _, start, end, crc, run in offsets.entries:
                    yield run or offsets.run, start, end, crc
        for undo in store.undos:
            if undo.after_index >= index:
                for _, low, high, run, start, crc in undo.entries:
                    yield run, start, start + high - low, crc

    nothing = (0, 0)
    ranges = found() if only is None else (
        each for each in found() if each[1] < (span := only.get(each[0], nothing))[1] and each[2] > span[0])
    return Checked(store.buffers, store.layout, ranges)
