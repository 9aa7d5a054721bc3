"""Many short ranges of open files, read and written as a few long ones.

A program that writes single blocks at random leaves tens of thousands of ranges of 4 KiB: a call or two for each is
what its end would be made of. Nobody else writes to the files meanwhile, as everywhere in the store. Numbers are bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from metamori.store.io.os_io import PIECE_BYTES, Door

SHORT = 1 << 16                        # a longer range is not worth gathering: blocks are shared, or the kernel copies
WINDOW_BYTES = 4 * PIECE_BYTES         # of memory at a time
_GAP = 1 << 13                         # read along with what lies around it: cheaper than another call
_NOWHERE = 1 << 62

Range = tuple[int, int]                # start, end
Part = tuple[int, int, int]            # from, length, to


class Stretches:
    """Where an open file has data and where it has holes, each stretch asked for once: the end of a long one is found
    page by page on tmpfs, so that asking again for each range of it takes their number times the file's size."""

    __slots__ = ("_data", "_door", "_high", "_low", "fd")

    def __init__(self, door: Door, fd: int) -> None:
        self._door, self.fd = door, fd
        self._low = self._data = self._high = 0   # the last stretch: [low, data) is a hole, [data, high) is data

    def forget_hole(self) -> None:
        """Somebody may fill it; what is data stays data, or reads as zeros."""
        self._low = self._data

    def data(self, start: int, end: int) -> list[Range]:
        """The parts of [start, end) that are data, in order; all that is past the file's end is a hole."""
        if self._data <= start and end <= self._high and start < end:
            return [(start, end)]
        found: list[Range] = []
        while start < end:
            if not self._low <= start < self._high:
                self._low = start
                self._data, self._high = next(
                    iter(self._door.data_ranges(self.fd, start, _NOWHERE)), (_NOWHERE, _NOWHERE))
            low, high = max(start, self._data), min(end, self._high)
            if low < high:
                found.append((low, high))
            start = high
        return found


def windows(lengths: Sequence[int]) -> Iterator[slice]:
    """Neighbours in a list, as many as fit into a window of memory together, at least one."""
    low = total = 0
    for at, length in enumerate(lengths):
        if total + length > WINDOW_BYTES and at > low:
            yield slice(low, at)
            low, total = at, 0
        total += length
    if low < len(lengths):
        yield slice(low, len(lengths))


def read_all(door: Door, fd: int, ranges: Sequence[Range]) -> list[memoryview]:
    """The bytes of short ranges, as they are given; what lies near each other is read at once. EOFError with the first
    that the file does not have."""
    found: list[memoryview] = [memoryview(b"")] * len(ranges)
    order = sorted(range(len(ranges)), key=ranges.__getitem__)
    low = 0
    while low < len(order):
        start, end = ranges[order[low]]
        high = low + 1
        while high < len(order):
            following, its_end = ranges[order[high]]
            if following > end + _GAP or its_end - start > PIECE_BYTES:
                break
            end = max(end, its_end)
            high += 1
        view = memoryview(door.pread(fd, end - start, start))
        for each in order[low:high]:
            first, last = ranges[each]
            if last - start > len(view):
                raise EOFError(first, last)
            found[each] = view[first - start:last - start]
        low = high
    return found


def write_all(door: Door, fd: int, places: Sequence[int], pieces: Sequence[memoryview]) -> None:
    """Each piece at its place, none over another; neighbours in one call."""
    order = sorted(range(len(places)), key=places.__getitem__)
    low = 0
    while low < len(order):
        place, piece = places[order[low]], pieces[order[low]]
        end, high = place + len(piece), low + 1
        while high < len(order) and places[order[high]] == end and end - place < PIECE_BYTES:
            end += len(pieces[order[high]])
            high += 1
        door.pwrite(fd, piece if high == low + 1 else b"".join([pieces[each] for each in order[low:high]]), place)
        low = high


def copy_all(door: Door, source: int, target: int, parts: list[Part]) -> None:
    """Short parts of one file into another. Where few of them become neighbours there, those that are neighbours here
    go together. EOFError as `read_all`."""
    parts.sort(key=lambda part: part[2])
    beside = sum(one[2] + one[1] == other[2] for one, other in itertools.pairwise(parts))
    if 2 * beside < len(parts):
        parts.sort()
    for window in windows([length for _, length, _ in parts]):
        some = parts[window]
        pieces = read_all(door, source, [(start, start + length) for start, length, _ in some])
        write_all(door, target, [place for _, _, place in some], pieces)
