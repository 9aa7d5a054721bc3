"""The disk buffers: one sparse file per run, addressed in bytes, that only ever grows while indexes need it.

Invariant: a byte that a record on disk refers to is never written again. So appending needs no lock against
readers, and saved bytes are put at 4096-aligned places whose position in a block equals that in the file:
filesystems that share blocks then need not copy. Holes of a file stay holes in the buffer.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from metamori.errors import Damaged
from metamori.store.format.layout import Layout
from metamori.store.io.coalesced_io import SHORT, Part, Range, Stretches, copy_all, read_all, windows
from metamori.store.io.commit import PRIVATE_FILE, fsync_folder
from metamori.store.io.os_io import PIECE_BYTES, Door
from metamori.tables.crc import crc32_zeros
from metamori.tables.lru import Recent

BLOCK_BYTES = 4096
HOLE_BYTES = 64 << 10                  # shorter ones are written as zeros
_OPEN_MAX = 16
_AT_ONCE = 16 * PIECE_BYTES


class Buffers:
    """Access to the buffers of one store. Raises Damaged where a buffer lacks bytes that it should have."""

    def __init__(self, door: Door, layout: Layout) -> None:
        self._door = door
        self._layout = layout
        self._open: Recent[int, Stretches] = Recent(_OPEN_MAX, let_go=lambda each: door.close(each.fd))

    def runs(self) -> list[int]:
        """Numbers of the runs that have a buffer, ascending."""
        try:
            names = self._door.listdir(self._layout.buffers)
        except (FileNotFoundError, NotADirectoryError):
            raise Damaged(f"{os.fsdecode(self._layout.buffers)} is missing") from None
        return sorted(int(name) for name in names if name.isdigit())

    def size(self, run: int) -> int:
        """Bytes that the buffer of a run covers, holes included; 0 when there is none."""
        try:
            return self._door.lstat(self._layout.buffer(run)).st_size
        except FileNotFoundError:
            return 0

    def read(self, run: int, start: int, length: int) -> bytes:
        data = self._door.pread(self._reader(run), length, start)
        if len(data) != length:
            raise Damaged(self._short(run, start, length))
        return data

    def data_ranges(self, run: int, start: int, end: int) -> Iterator[Range]:
        """The parts of [start, end) that are not holes, in order."""
        source = self._reader(run)
        if self._door.fstat(source).st_size < end:
            raise Damaged(self._short(run, start, end - start))
        return self._door.data_ranges(source, start, end)

    def stretches(self, run: int) -> Stretches:
        """For `checksum` of many ranges, while nobody writes there; reading many other buffers meanwhile closes it."""
        found = self._opened(run)
        found.forget_hole()                # which the run may have filled
        return found

    def checksum(self, run: int, start: int, length: int, stretches: Stretches | None = None) -> int:
        """CRC-32 of a range, as the offset file and undo records carry it. Holes are not read."""
        source, end, crc = self._reader(run), start + length, 0
        stretches = stretches or self.stretches(run)
        if self._door.fstat(source).st_size < end:
            raise Damaged(self._short(run, start, length))
        for data, hole in [*stretches.data(start, end), (end, end)]:
            crc = crc32_zeros(data - start, crc)
            for at in range(data, hole, _AT_ONCE):
                step = min(_AT_ONCE, hole - at)
                crc, done = self._door.checksum(source, step, at, crc)
                if done != step:
                    raise Damaged(self._short(run, at, step))
            start = hole
        return crc

    def checksums(self, run: int, ranges: Sequence[Range]) -> list[int]:
        """`checksum` of many ranges [start, end), whatever their order."""
        found, stretches = [0] * len(ranges), self.stretches(run) if ranges else None
        short = [at for at, (start, end) in enumerate(ranges) if start < end <= start + SHORT]
        for at, (start, end) in enumerate(ranges):
            if end - start > SHORT:
                found[at] = self.checksum(run, start, end - start, stretches)
        short.sort(key=ranges.__getitem__)
        for window in windows([ranges[at][1] - ranges[at][0] for at in short]):
            some = short[window]
            for at, data in zip(some, self.read_all(run, [ranges[at] for at in some]), strict=True):
                found[at] = zlib.crc32(data)
        return found

    def read_all(self, run: int, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of short ranges [start, end), as they are given."""
        try:
            return read_all(self._door, self._reader(run), ranges)
        except EOFError as error:
            start, end = error.args
            raise Damaged(self._short(run, start, end - start)) from None

    def copy_out(self, target: int, wanted: Iterable[tuple[int, int, int, int]]) -> None:
        """Write ranges of buffers into an open file: of each run, start, length, and where it goes. Their holes become
        holes, or zeros."""
        for run, group in groupby(sorted(wanted), key=lambda each: each[0]):
            source, parts, stretches = self._reader(run), list[Part](), self.stretches(run)
            size = self._door.fstat(source).st_size
            try:
                for _, start, length, place in group:
                    if start + length > size:
                        raise EOFError(start, start + length)
                    data = stretches.data(start, start + length)
                    if length <= SHORT and data == [(start, start + length)]:
                        parts.append((start, length, place))
                    else:
                        copy_long(self._door, source, target, (start, length, place), data)
                copy_all(self._door, source, target, parts)
            except EOFError as error:
                raise Damaged(self._short(run, error.args[0], error.args[1] - error.args[0])) from None

    def save(self, run: int, source: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        """Append bytes [start, end) of a file to the buffer of a run; where each range is in it, and its checksum.

        Not durable before `sync`. Raises Damaged when the file has fewer bytes.
        """
        fd, stretches = self.writer(run), Stretches(self._door, source)
        try:
            size, places = self._door.fstat(fd).st_size, []
            for start, end in ranges:
                places.append(size + -size % BLOCK_BYTES + start % BLOCK_BYTES)
                size = places[-1] + end - start
            self._door.ftruncate(fd, size)
            parts: list[Part] = []
            for (start, end), place in zip(ranges, places, strict=True):
                length = end - start
                if length > SHORT and self._door.clone_range(source, start, fd, place, length):
                    continue
                for low, high in stretches.data(start, end):
                    if length <= SHORT:
                        parts.append((low, high - low, place + low - start))
                    elif self._door.copy_range(source, low, fd, place + low - start, high - low) != high - low:
                        raise EOFError(low, high)
            copy_all(self._door, source, fd, parts)
            wanted, there = max((end for _, end in ranges), default=0), self._door.fstat(source).st_size
            if there < wanted:             # data may have been taken for a hole
                raise EOFError(there, wanted)
        except EOFError as error:
            raise Damaged("a file became shorter while bytes {}-{} of it were saved".format(*error.args)) from None
        finally:
            self._door.close(fd)
        crcs = self.checksums(run, [(place, place + end - start)
                                    for place, (start, end) in zip(places, ranges, strict=True)])
        return list(zip(places, crcs, strict=True))

    def sync(self, run: int) -> None:
        """Make everything in the buffer of a run durable; of a run killed before it had one, that is nothing."""
        try:
            fd = self.writer(run)
        except FileNotFoundError:
            return
        try:
            self._door.fsync(fd)
        finally:
            self._door.close(fd)
        fsync_folder(self._door, self._layout.buffers)

    def close(self) -> None:
        self._open.clear()

    def __del__(self) -> None:
        self.close()                       # a store that nobody closed leaves no descriptors behind

    def writer(self, run: int) -> int:
        """The buffer of a run, open for writing; the caller closes it."""
        fd = self._door.open(self._layout.buffer(run), os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        self._door.fchmod(fd, PRIVATE_FILE)
        return fd

    def _reader(self, run: int) -> int:
        return self._opened(run).fd

    def _opened(self, run: int) -> Stretches:
        found = self._open.get(run)
        if found is None:
            try:
                found = Stretches(self._door, self._door.open(self._layout.buffer(run), os.O_RDONLY))
            except FileNotFoundError as error:
                raise Damaged(f"{os.fsdecode(self._layout.buffer(run))} is missing") from error
            self._open.put(run, found)
        return found

    def _short(self, run: int, start: int, length: int) -> str:
        return f"{os.fsdecode(self._layout.buffer(run))} ends at byte {self.size(run)}, not {start + length}"


def copy_long(door: Door, source: int, target: int, part: Part, data: Iterable[Range]) -> None:
    """One range of an open file into another, of which `data` is not a hole; the rest becomes one. EOFError with what
    it does not have."""
    start, length, place = part
    at, end, shift = start, start + length, place - start
    if not any(number % BLOCK_BYTES for number in part) and door.clone_range(source, start, target, place, length):
        return
    for low, high in [*data, (end, end)]:
        write_zeros(door, target, at + shift, low + shift)
        if door.copy_range(source, low, target, low + shift, high - low) != high - low:
            raise EOFError(low, high)
        at = high


def copy_beside(door: Door, source: int, target: int, part: Part) -> int:
    """`copy_long` of a file that others may cut off meanwhile: where in it what could be copied ends."""
    start, length, place = part
    end = start + length
    while start < (end := min(end, door.fstat(source).st_size)):
        try:
            copy_long(door, source, target, (start, end - start, place), door.data_ranges(source, start, end))
        except EOFError:
            continue                       # it is shorter by now
        if door.fstat(source).st_size >= end:
            return end                     # else data may have been taken for a hole
    return start


def write_zeros(door: Door, fd: int, start: int, end: int) -> None:
    """Make [start, end) of an open file read as zeros, as a hole where it is long and the filesystem can.

    A short one costs less to write: where ext4 is mounted with `discard`, each hole waits milliseconds for the device.
    """
    end = max(start, end)
    size = door.fstat(fd).st_size
    if end > size:
        door.ftruncate(fd, end)
        end = min(end, size)
    if start >= end or (end - start >= HOLE_BYTES and door.punch_hole(fd, start, end)):
        return
    zeros = bytes(min(PIECE_BYTES, end - start))
    while start < end:
        step = min(len(zeros), end - start)
        door.pwrite(fd, memoryview(zeros)[:step], start)
        start += step
