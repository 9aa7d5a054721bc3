"""The log of what is durable in a live run (shim_c/src/engine/intent_log.c): its first record, marks, how it is read.

It is read after a power cut only, when nothing else in the run area is trusted. A record counts when it is whole (its
CRC says so); the one after the last whole one was never acknowledged. Zeros are skipped to the next block: the first
block is the start's alone, marks begin at a block, and what lies before the mark of a durable checkpoint is given back.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area
from metamori.runtime.area.whereabouts import device, devices_of, placed
from metamori.store.io import commit
from metamori.store.io.os_io import BOOT_ID, REAL, boot_id
from metamori.tables.record import record

_REFUSED = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_CRC_FROM = 12                             # magic, length and crc itself
_HEAD: int = ffi.sizeof("struct mm_ahead")
_IDENTITY = struct.Struct("=QQQ")

Identity = tuple[int, int, int]            # dev, ino, btime_ns


@record
class Record:
    """As struct mm_ahead of area/layout.h says. epoch: of a CUT, the one that it ends. ranges: (block, buffer block,
    blocks). at: its byte in the log."""

    at: int
    kind: int
    run: int
    epoch: int
    index: int
    dev: int
    ino: int
    btime_ns: int
    object: int
    created: int
    size: int
    home_limit: int
    cut: int
    mtime_ns: int
    old: tuple[int, int, int, int, int]    # size, mtime_ns, mode, uid, gid before the run touched it
    flags: int
    stamp_ns: int
    home_ctime_ns: int
    start: int
    end: int
    buffer_start: int
    length_after: int
    whole: bool
    path: bytes
    ranges: tuple[tuple[int, int, int], ...]
    data: bytes

    def copy(self) -> Identity:
        """Of MM_AHEAD_MOVED: what the file is from then on."""
        return device(self.buffer_start), self.start, self.end

    def identities(self) -> Iterator[Identity]:
        """Of a mark: the files whose bytes are all in place, mapped by somebody."""
        return _IDENTITY.iter_unpack(self.data)


def log_path(run_area: str) -> str:
    return os.path.join(run_area, "ahead")


def start(run_area: str, store: int, run: int, index: int, flags: int) -> None:
    """The log of a new run, before anything else of its area is there. store: its own number, so that the area of
    another one is not taken for this one's.

    What it begins with is a name too: names reach the disk in order, so that one is there if anything of the run is.
    """
    here = (os.stat(run_area).st_dev, 0, 0)
    record = _record(lib.MM_AHEAD_START, run, index, flags, boot_id(), store, here)
    name = os.path.join(run_area, f"began.{run}.{index}.{flags}")
    began = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, commit.PRIVATE_FILE)
    os.fchmod(began, commit.PRIVATE_FILE)  # whatever the umask
    os.close(began)
    fd = os.open(log_path(run_area), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, commit.PRIVATE_FILE)
    try:
        os.fchmod(fd, commit.PRIVATE_FILE)
        REAL.pwrite(fd, record, 0)
        os.ftruncate(fd, BLOCK)
    finally:
        os.close(fd)


def mark(area: Area, kind: int, index: int) -> int:
    """What follows was done after this instant. Durable after `sync`. Where the record is."""
    assert area.is_frozen
    head = area.head
    at = -(-head.ahead_tail // BLOCK) * BLOCK if gives_back(area) else head.ahead_tail
    mapped = (area.pif(slot) for slot in area.mapped())
    data = b"".join(_IDENTITY.pack(p.dev, p.ino, p.btime_ns) for p in mapped)
    record = _record(kind, head.run, index, head.flags, data, epoch=head.epoch)
    fd = os.open(log_path(area.path), os.O_WRONLY | os.O_CLOEXEC)
    try:
        REAL.pwrite(fd, record, at)
    finally:
        os.close(fd)
    head.ahead_tail = at + len(record)
    if gives_back(area) and head.flags & lib.MM_MOVES:  # older indexes need them, and what lies before goes
        for was, now in _moved(read(area.path)).items():   # each once: a restore's mark gives nothing back yet
            moved(area, was, now)
    return at


def moved(area: Area, was: Identity, now: Identity) -> None:
    """A file is another inode from now on, as a copy of itself, and its PIF knows that. Durable after `sync`."""
    head = area.head
    record = _record(lib.MM_AHEAD_MOVED, head.run, head.newest, 0, b"", 0, was, now)
    fd = os.open(log_path(area.path), os.O_WRONLY | os.O_CLOEXEC)
    try:
        REAL.pwrite(fd, record, head.ahead_tail)
    finally:
        os.close(fd)
    head.ahead_tail += len(record)


def followed(area: Area) -> dict[Identity, Identity]:
    """What files are by now that a restore made other inodes: copies of themselves."""
    found = _moved(read(area.path))
    for was, at in found.items():
        passed = {was}
        while at in found and at not in passed:
            passed.add(at)
            at = found[at]
        found[was] = at
    return found


def _moved(records: list[Record]) -> dict[Identity, Identity]:
    """By each file the copy that it was last."""
    return {(each.dev, each.ino, each.btime_ns): each.copy() for each in records
            if each.kind == lib.MM_AHEAD_MOVED and each.whole}


@contextmanager
def syncing(area: Area) -> Iterator[None]:
    """What the disk has refused in a sync counts as written for the kernel: the next sync says nothing of it."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            area.head.unsynced += 1
        raise


def sync(area: Area) -> None:
    """All of the log is durable, and that there is a run."""
    head, tail = area.head, area.head.ahead_tail
    with syncing(area):
        if head.ahead_synced < tail:
            fd = os.open(log_path(area.path), os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
            head.ahead_synced = max(head.ahead_synced, tail)
        name(area)


def name(area: Area) -> None:
    """The names of the run area and of its buffer are durable: a power cut leaves something to begin from."""
    if area.head.ahead_named:
        return
    store = os.fsencode(os.path.dirname(area.path))
    for folder in (os.fsencode(area.path), os.path.join(store, b"buffer"), store):
        commit.fsync_folder(REAL, folder)
    area.head.ahead_named = 1


def gives_back(area: Area) -> bool:
    """Whether what lies before the mark of a finished checkpoint is of no use: the checkpoint is durable, and no file
    has to go back to where it was at the last commit."""
    return bool(area.head.flags & lib.MM_POWER and not area.head.flags & lib.MM_ISOLATE)


def forget(area: Area, at: int) -> None:
    """The checkpoint whose mark is there was written: the disk gets back what lies before."""
    if at <= BLOCK or not gives_back(area):
        return
    if area.head.flags & lib.MM_MOVES:
        sync(area)
    fd = os.open(log_path(area.path), os.O_RDWR | os.O_CLOEXEC)
    try:
        REAL.punch_hole(fd, BLOCK, at // BLOCK * BLOCK)
    finally:
        os.close(fd)


def read(run_area: str, length: int = -1) -> list[Record]:
    """Every whole record, in order, of the first `length` bytes (-1: of all); nothing when there is no log."""
    try:
        with open(log_path(run_area), "rb") as file:
            data = file.read(length)
    except FileNotFoundError:
        return []
    return _whole(data)


def began(run_area: str) -> Record | None:
    """The start as its name tells it; None where nothing does."""
    for name in sorted(os.listdir(run_area)):
        word = name.split(".")
        if word[0] == "began" and len(word) == 4 and all(each.isdecimal() for each in word[1:]):
            run, index, flags = map(int, word[1:])
            return _whole(_record(lib.MM_AHEAD_START, run, index, flags, b""))[0]
    return None


def began_ns(run_area: str) -> int:
    """When the run began: a file born later is none that was there before. NO_LIMIT where nothing tells."""
    for name in os.listdir(run_area):
        if name.startswith("began."):
            return os.lstat(os.path.join(run_area, name)).st_mtime_ns
    return NO_LIMIT


def _whole(data: bytes) -> list[Record]:
    found, at = [], 0
    while at + _HEAD <= len(data):
        magic, length, crc = struct.unpack_from("=III", data, at)
        whole = magic == lib.MM_AHEAD_MAGIC and _HEAD <= length <= len(data) - at
        if not whole or zlib.crc32(data[at + _CRC_FROM:at + length]) != crc:
            at = (at // BLOCK + 1) * BLOCK
            continue
        try:
            found.append(_decoded(data, at, length))
        except (struct.error, ValueError):
            break
        at += length
    return found


def boot_of(run_area: str) -> bytes | None:
    """What `boot_id` said when the run began; None where no record of that is left."""
    return next((each.data for each in read(run_area, BLOCK) if each.kind == lib.MM_AHEAD_START), None)


def started_here(run_area: str) -> bool:
    """Whether the run began since the machine was started, so that what it mapped is as it left it; not where the run
    could not tell. MetamoriError where it could, and the caller cannot: to be wrong in that loses bytes."""
    then, now = boot_of(run_area), boot_id()
    if then and not now:
        raise MetamoriError(f"whether the machine was started again since the run in {os.path.dirname(run_area)} began "
                            f"cannot be told where {BOOT_ID} cannot be read: run this where it can")
    return bool(then) and then == now


def store_of(run_area: str) -> int:
    """The number of the store whose run it was; 0 where the log does not tell, as those of earlier versions."""
    return next((each.object for each in read(run_area, BLOCK) if each.kind == lib.MM_AHEAD_START), 0)


def devices(run_area: str, noted: Iterable[tuple[bytes, int, int, int]] = (),
            before: Mapping[int, int] | None = None) -> dict[int, int]:
    """Numbers of devices that the log knows, and what they are now. noted: further files, as for `devices_of`, which
    tell first. before: what the log's numbers were when those were noted."""
    records, then = read(run_area), before or {}
    start = {then.get(each.dev, each.dev): os.stat(run_area).st_dev
             for each in records[:1] if each.kind == lib.MM_AHEAD_START and each.dev}
    logged = ((each.path, then.get(each.dev, each.dev), each.ino, each.btime_ns) for each in records)
    return devices_of((*noted, *logged)) | start


def _record(kind: int, run: int, index: int, flags: int, data: bytes, object: int = 0,
            was: Identity = (0, 0, 0), now: Identity = (0, 0, 0), epoch: int = 0) -> bytes:
    padded = data + bytes(-len(data) % 8)
    r = ffi.new("struct mm_ahead *")
    r.magic, r.kind, r.run, r.index, r.flags = lib.MM_AHEAD_MAGIC, kind, run, index, flags
    r.epoch = epoch
    r.dev, r.ino, r.btime_ns = was
    r.buffer_start, r.start, r.end = now
    r.whole = int(any(now))
    r.object, r.length, r.data_length, r.length_after = object, _HEAD + len(padded), len(data), lib.MM_NO_LIMIT
    r.crc = zlib.crc32(bytes(ffi.buffer(r))[_CRC_FROM:] + padded)
    return bytes(ffi.buffer(r)) + padded


def _decoded(data: bytes, at: int, length: int) -> Record:
    r = ffi.new("struct mm_ahead *")
    ffi.memmove(r, data[at:at + _HEAD], _HEAD)
    first = at + _HEAD
    ranges = first + -(-r.path_length // 8) * 8
    body = ranges + 24 * r.ranges
    if body + -(-r.data_length // 8) * 8 != at + length:
        raise ValueError("lengths that do not fit")
    return Record(
        at, r.kind, r.run, r.epoch, r.index, device(r.dev), r.ino, r.btime_ns, r.object, r.created, r.size,
        r.home_limit, r.cut, r.mtime_ns, (r.old_size, r.old_mtime_ns, r.old_mode, r.old_uid, r.old_gid), r.flags,
        r.stamp_ns, r.home_ctime_ns, r.start, r.end, r.buffer_start, r.length_after, bool(r.whole),
        placed(data[first:first + r.path_length]), tuple(struct.iter_unpack("=QQQ", data[ranges:body])),
        data[body:body + r.data_length])
