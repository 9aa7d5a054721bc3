"""When a run of a job saved its pre-images and noted its names: of several that changed the same thing the earliest
found it as the last checkpoint knows it (docs/adr/0051).

Beside the store's records, in lines of fixed length that are only appended: kind, key (a place in the buffer, or a hash
of the path), time by CLOCK_MONOTONIC_RAW. And which bytes of saved blocks the run has written over: kind, number of the
block in the buffer, then in place of the time from where, to where, and for how many blocks that is so. Those of an
index follow a line that has its number as the key.

And the place of each index in <job>/nodes/order (shim_c/src/engine/order.c), in place of the time: taken when the run
was frozen, before it looked at its files. What it did is done by then, and what others had done by a place before that
one it sees: of two looks the one with the later place counts. The runs of one checkpoint have one, taken when all were
frozen.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
import time
import zlib
from bisect import bisect
from collections.abc import Iterator
from contextlib import suppress

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import BLOCK
from metamori.runtime.checkpoint.cut import Cut, Moved
from metamori.store.io import commit
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store

_LINE = struct.Struct("<BxxxI QQ")
_PREIMAGE, _NAME, _WRITTEN, _INDEX, _PLACE = 1, 2, 3, 4, 5
_MOST = (1 << 32) - 1
_PIECE = _LINE.size << 16
CHECK = 0x6d6a6f62


def note(store: Store, cut: Cut, index: int, durable: bool, place: int) -> None:
    """Before the records that they are of."""
    lines = [_LINE.pack(_PREIMAGE, CHECK, each.buffer_start, each.stamp_ns) for each in cut.preimages if each.stamp_ns]
    lines += [_LINE.pack(_NAME, CHECK, hashed(path), touch.stamp_ns)
              for path, touch in cut.touches.items() if touch.stamp_ns]
    lines += [_LINE.pack(_WRITTEN, CHECK, place, first << 48 | end << 32 | count)
              for place, first, end, count in _together(cut.partly_written)]
    if cut.moved:
        _note_moved(store, cut, index, durable)
    if lines:
        lines.insert(0, _LINE.pack(_INDEX, CHECK, index, 0))
    if place >= 0:
        lines.append(_LINE.pack(_PLACE, CHECK, index, place))
    if not lines:
        return
    fd = store.door.open(store.layout.stamps, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    try:
        end = store.door.fstat(fd).st_size // _LINE.size * _LINE.size
        store.door.pwrite(fd, b"".join(lines), end)
        if durable:
            store.door.fsync(fd)
    finally:
        store.door.close(fd)


ORDER = struct.Struct("=IIQQ")             # struct mm_order
MAGIC = struct.pack("=I", lib.MM_ORDER_MAGIC)
assert ORDER.size == ffi.sizeof("struct mm_order")
_LOCK = struct.Struct("hh4xqqi4x")         # struct flock
_OFD_SETLK = 37                            # a Python that was built with an older C library does not name it
_WAIT_S = 0.2


def order_of(node: Store) -> bytes:
    """Of one of the job's runs."""
    return os.path.join(os.path.dirname(node.layout.root), b"order")


def take_place(door: Door, path: bytes) -> int:
    """A place in the order of the job, with a line of nobody's, or -1: the file cannot be read.

    No lock in time, or no room: the end of the file is a place too. What is there was done before, and whoever comes
    later with a line has a later place, by the one byte that it is behind its line's start. Only two that have none,
    with no line between them, have the same one."""
    try:
        fd = door.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        has_line = _is_locked(fd)
        place = door.fstat(fd).st_size
        if has_line:
            said = struct.pack("=QQ", 0, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
            with suppress(OSError):
                door.pwrite(fd, MAGIC + struct.pack("=I", zlib.crc32(said)) + said, place)
                place += 1
        return place
    except OSError:
        return -1
    finally:
        door.close(fd)


def _is_locked(fd: int) -> bool:
    """Until it is closed: a lock of the process would go when another thread closes the file."""
    ends = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.fcntl(fd, _OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > ends:
                return False
        time.sleep(0.0001)


def require_later(door: Door, path: bytes, place: int) -> None:
    """From here on all places are later than that one: a power cut may have taken the end of the file."""
    try:
        fd = door.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        if door.fstat(fd).st_size <= place:
            door.ftruncate(fd, place + 1)
    finally:
        door.close(fd)


def _together(rows: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Neighbours of which the same is so."""
    begun: tuple[int, int, int] | None = None
    count = 0
    for row in rows:
        if begun and row == (begun[0] + count, *begun[1:]) and count < _MOST:
            count += 1
            continue
        if begun:
            yield *begun, count
        begun, count = row, 1
    if begun:
        yield *begun, count


def _note_moved(store: Store, cut: Cut, index: int, durable: bool) -> None:
    rows = [[old.hex(), new.hex(), [[path.hex(), ino] for path, ino in inside]] for old, new, inside in cut.moved]
    commit.write_file(store.door, store.layout.moved(index), json.dumps(rows).encode(), durable)


def moved(store: Store, index: int) -> list[Moved]:
    """Folders that were renamed between the run's index before and this one, with all that is in them."""
    try:
        rows = json.loads(commit.read_file(store.door, store.layout.moved(index)))
    except FileNotFoundError:
        return []
    return [(bytes.fromhex(old), bytes.fromhex(new), [(bytes.fromhex(path), ino) for path, ino in inside])
            for old, new, inside in rows]


def hashed(path: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest())


class Stamps:
    """What has been noted, but for what was forgotten; read on as it grows."""

    def __init__(self, store: Store) -> None:
        self._store, self._read = store, 0
        self._index = 0
        self._preimages: dict[int, tuple[int, int]] = {}       # the index that noted it, and when
        self._names: dict[int, list[tuple[int, int]]] = {}     # each index that noted it, and when, in order
        self._written: list[tuple[int, int, int, int, int]] = []       # place, blocks, from where, to where, index
        self.places: dict[int, int] = {}

    def refresh(self) -> None:
        for kind, check, key, stamp in self._more():
            if check != CHECK:
                continue
            if kind == _PREIMAGE:
                self._preimages.setdefault(key, (self._index, stamp))
            elif kind == _WRITTEN:
                self._written.append((key, stamp & _MOST, stamp >> 48, stamp >> 32 & 0xffff, self._index))
            elif kind == _INDEX:
                self._index = key
            elif kind == _PLACE:
                self.places[key] = stamp
            else:
                self._names.setdefault(key, []).append((self._index, stamp))
        self._written.sort()

    def _more(self) -> Iterator[tuple[int, int, int, int]]:
        """The whole lines that were not read yet."""
        door = self._store.door
        try:
            fd = door.open(self._store.layout.stamps, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            data = b""
            while more := door.pread(fd, _PIECE, self._read + len(data)):
                data += more
                whole = len(data) // _LINE.size * _LINE.size
                yield from _LINE.iter_unpack(data[:whole])
                data, self._read = data[whole:], self._read + whole
        finally:
            door.close(fd)

    def preimage(self, place: int) -> int | None:
        """When what lies there in the buffer was saved."""
        return self._preimages.get(place, (0, None))[1]

    def first_named(self, path: bytes, since: int) -> int | None:
        """When the run first noted a name after that index."""
        return next((stamp for index, stamp in self._names.get(hashed(path), ()) if index > since), None)

    def forget(self, upto: int) -> None:
        """All that was noted up to that index is in a checkpoint of the job."""
        self._written = [each for each in self._written if each[-1] > upto]
        self._preimages = {place: each for place, each in self._preimages.items() if each[0] > upto}
        self.places = {index: place for index, place in self.places.items() if index > upto}
        left = {key: [each for each in noted if each[0] > upto] for key, noted in self._names.items()}
        self._names = {key: noted for key, noted in left.items() if noted}

    def written(self, start: int, end: int) -> list[tuple[int, int]]:
        """Which of these bytes of the buffer are of bytes that the run wrote over, or may have."""
        found: list[tuple[int, int]] = []
        at = start
        after = bisect(self._written, (start // BLOCK, _MOST))
        for place, count, first, behind, _ in self._written[max(0, after - 1):]:
            if place * BLOCK >= end:
                break
            low, stop = max(place, start // BLOCK) * BLOCK, min((place + count) * BLOCK, end)
            if low >= stop:
                continue
            found.append((at, low))
            if first < behind:
                found += ((max(each + first, start), min(each + behind, end)) for each in range(low, stop, BLOCK))
            at = max(at, stop)
        return [(low, high) for low, high in [*found, (at, end)] if low < high]
