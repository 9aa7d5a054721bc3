"""The disk buffers: one sparse file per run, addressed in bytes, that only ever grows while indexes need it.

Invariant: a byte that a record on disk refers to is never written again. So appending needs no lock against
readers, and saved bytes are put at 4096-aligned places whose position in a block equals that in the file:
filesystems that share blocks then need not copy. Holes of a file stay holes in the buffer.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict

from metamori.errors import Damaged
from metamori.store.commit import PRIVATE_FILE, fsync_folder
from metamori.store.door import PIECE_BYTES, Door
from metamori.store.layout import Layout
from metamori.tables.crc import crc32_zeros

BLOCK_BYTES = 4096
_OPEN_MAX = 16


class Buffers:
    """Access to the buffers of one store. Raises Damaged where a buffer lacks bytes that it should have."""

    def __init__(self, door: Door, layout: Layout) -> None:
        self._door = door
        self._layout = layout
        self._open: OrderedDict[int, int] = OrderedDict()

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

    def checksum(self, run: int, start: int, length: int) -> int:
        """CRC-32 of a range, as the offset file and undo records carry it. Holes are not read."""
        if length <= PIECE_BYTES:
            return zlib.crc32(self.read(run, start, length)) if length else 0
        source, end, crc = self._reader(run), start + length, 0
        if self._door.fstat(source).st_size < end:
            raise Damaged(self._short(run, start, length))
        for data, hole in [*self._door.data_ranges(source, start, end), (end, end)]:
            crc = crc32_zeros(data - start, crc)
            for at in range(data, hole, PIECE_BYTES):
                crc = zlib.crc32(self.read(run, at, min(PIECE_BYTES, hole - at)), crc)
            start = hole
        return crc

    def copy_out(self, run: int, start: int, length: int, target: int, target_start: int) -> None:
        """Write a range of the buffer into an open file. Its holes become holes, or zeros."""
        source, end, shift = self._reader(run), start + length, target_start - start
        if self._door.fstat(source).st_size < end:
            raise Damaged(self._short(run, start, length))
        aligned = all(number % BLOCK_BYTES == 0 for number in (start, length, target_start))
        if aligned and self._door.clone_range(source, start, target, target_start, length):
            return
        at = start
        for data, hole in [*self._door.data_ranges(source, start, end), (end, end)]:
            write_zeros(self._door, target, at + shift, data + shift)
            if self._door.copy_range(source, data, target, data + shift, hole - data) != hole - data:
                raise Damaged(self._short(run, data, hole - data))
            at = hole

    def save(self, run: int, source: int, start: int, end: int) -> int:
        """Append a file's bytes [start, end) to the buffer of a run; returns where they are in it.

        Not durable before `sync`. Raises Damaged when the file has fewer bytes.
        """
        fd = self._writer(run)
        try:
            place = self._door.fstat(fd).st_size
            place += -place % BLOCK_BYTES + start % BLOCK_BYTES
            self._door.ftruncate(fd, place + end - start)
            if not self._door.clone_range(source, start, fd, place, end - start):
                for data, hole in self._door.data_ranges(source, start, end):
                    length = hole - data
                    if self._door.copy_range(source, data, fd, place + data - start, length) != length:
                        raise Damaged(f"a file became shorter while bytes {start}-{end} of it were saved")
        finally:
            self._door.close(fd)
        return place

    def sync(self, run: int) -> None:
        """Make everything in the buffer of a run durable."""
        fd = self._writer(run)
        try:
            self._door.fsync(fd)
        finally:
            self._door.close(fd)
        fsync_folder(self._door, self._layout.buffers)

    def close(self) -> None:
        while self._open:
            self._door.close(self._open.popitem()[1])

    def _writer(self, run: int) -> int:
        fd = self._door.open(self._layout.buffer(run), os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        self._door.fchmod(fd, PRIVATE_FILE)
        return fd

    def _reader(self, run: int) -> int:
        fd = self._open.pop(run, -1)
        if fd < 0:
            try:
                fd = self._door.open(self._layout.buffer(run), os.O_RDONLY)
            except FileNotFoundError as error:
                raise Damaged(f"{os.fsdecode(self._layout.buffer(run))} is missing") from error
        self._open[run] = fd
        if len(self._open) > _OPEN_MAX:
            self._door.close(self._open.popitem(last=False)[1])
        return fd

    def _short(self, run: int, start: int, length: int) -> str:
        return f"{os.fsdecode(self._layout.buffer(run))} ends at byte {self.size(run)}, not {start + length}"


def write_zeros(door: Door, fd: int, start: int, end: int) -> None:
    """Make [start, end) of an open file read as zeros, as a hole where the filesystem can."""
    end = max(start, end)
    size = door.fstat(fd).st_size
    if end > size:
        door.ftruncate(fd, end)
        end = min(end, size)
    if start >= end or door.punch_hole(fd, start, end):
        return
    zeros = bytes(min(PIECE_BYTES, end - start))
    while start < end:
        step = min(len(zeros), end - start)
        door.pwrite(fd, memoryview(zeros)[:step], start)
        start += step
