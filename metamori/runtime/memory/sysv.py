"""Shared memory, semaphores and message queues of System V that a run uses (shim_c/src/calls/wrap_sysv.c knows which).

They belong to no process and stay when all are killed, so each is saved whole here, but for memory that some process
has mapped: that is in its image. They come back as new ones with the old keys (lifecycle/sysv_restart.py), under other
numbers, which the library translates.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Collection, Iterable, Iterator

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.proc_inspect import Refused
from metamori.store.format.records import SegmentEntry
from metamori.tables.record import record

MEMORY, SEMAPHORES, QUEUE = lib.MM_SYSV_SHM, lib.MM_SYSV_SEM, lib.MM_SYSV_MSG
NAMES = {MEMORY: "shared memory", SEMAPHORES: "semaphores", QUEUE: "message queue"}
REMOVED = 0o1000                           # SHM_DEST: it lives as long as somebody has it mapped
_READ_WRITE, _PERMISSIONS = 0o600, 0o777
_MOST = 64 << 20
_PAGE = 4096
Mapped = dict[int, list[tuple[int, int, int]]]     # by the kernel's number: process, where it would begin, bytes


@record
class State:
    """What the kernel says of one. size: bytes, how many semaphores, or what a queue can hold. count: mappings, or
    messages."""

    key: int
    uid: int
    mode: int
    size: int
    count: int
    bytes: int
    sent: int
    received: int


def state(kind: int, real: int) -> State | None:
    """None: there is none of this number."""
    found = ffi.new("char[]", 64)
    result = lib.mm_sysv_stat(kind, real, found)
    if result in (-errno.EINVAL, -errno.EIDRM):
        return None
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return State(*struct.unpack("=8q", ffi.buffer(found)))


def is_used(kind: int, real: int, now: State) -> bool:
    """Somebody who is alive has it mapped, or used it last."""
    if kind == MEMORY:
        return now.count > 0
    pids = {now.sent, now.received} if kind == QUEUE else {
        int(lib.mm_sem_process(real, which)) for which in range(now.size)}
    return any(pid > 0 and proc_inspect.state(pid) not in (b"", b"Z", b"X") for pid in pids)


def drop_unreachable(area: Area) -> None:
    """Of a run whose program was killed and can come back, with new ones: those without a key, which nobody else can
    find."""
    for each in area.head.tree.sysv:
        if not each.taken:
            return
        try:
            now = state(each.kind, each.real) if each.kind else None
        except OSError:
            continue
        if now and not now.key and now.uid == os.geteuid() and not is_used(each.kind, each.real, now):
            lib.mm_sysv_remove(each.kind, each.real)


def title(kind: int, key: int, number: int) -> str:
    """For people."""
    return f"System V {NAMES[kind]} {number}" + (f" of key {key & 0xffffffff:#x}" if key else "")


def found(area: Area, pids: Collection[int], mapped: Mapped) -> tuple[SegmentEntry, ...]:
    """All of a run's, while its processes are stopped. Refused."""
    tree = area.head.tree
    if tree.sysv_lost:
        raise Refused(f"the run has used more than {lib.MM_SYSV} objects of System V, which cannot come back")
    entries: dict[tuple[int, int], SegmentEntry] = {}
    for each in tree.sysv:
        if not each.taken:
            break
        if not each.kind or (each.kind, each.real) in entries:
            continue
        require_own(pids)
        try:
            now = state(each.kind, each.real)
        except OSError as error:
            raise Refused(f"{title(each.kind, 0, each.known)} cannot be looked at ({error.strerror})") from None
        if now is None:
            lib.mm_sysv_forget(area.pointer, each.kind, each.real)
            continue
        name = title(each.kind, now.key, each.known)
        if now.uid != os.geteuid() or now.mode & _READ_WRITE != _READ_WRITE:
            raise Refused(f"{name} cannot come back: its user, or its mode, is another than usual")
        if each.undo:
            raise Refused(f"{name} cannot come back: the kernel is to undo operations on it (SEM_UNDO)")
        try:
            entries[each.kind, each.real] = SegmentEntry(
                each.kind, each.real, now.size, b"%d %d" % (now.key, each.known),
                now.mode & (REMOVED | _PERMISSIONS), 1, tuple(_content(each.kind, each.real, now, name, mapped)))
        except OSError as error:
            raise Refused(f"{name} cannot be read ({error.strerror})") from None
    for real in mapped:
        if (MEMORY, real) not in entries:
            raise Refused(f"it maps System V shared memory of which the run does not know: number {real}")
    return tuple(entries.values())


def require_own(pids: Iterable[int]) -> None:
    """Refused: another IPC namespace, whose objects are not seen here."""
    own = os.readlink("/proc/self/ns/ipc")
    for pid in pids:
        if os.readlink(f"/proc/{pid}/ns/ipc") != own:
            raise Refused(f"{proc_inspect.name_of(pid)} ({pid}) is in another IPC namespace")


def _content(kind: int, real: int, now: State, name: str, mapped: Mapped) -> Iterator[tuple[int, bytes]]:
    if kind == SEMAPHORES:
        values = ffi.new("char[]", 2 * now.size)
        _must(lib.mm_sem_values(real, values, False))
        yield 0, bytes(ffi.buffer(values))
    elif kind == QUEUE:
        room = ffi.new("char[]", now.bytes + 8)
        for which in range(now.count):
            length = _must(lib.mm_message_peek(real, which, room, now.bytes))
            yield which, bytes(ffi.buffer(room, 8 + length))
    else:
        yield from _unmapped(real, now.size, name, mapped.get(real, []))


def _unmapped(real: int, size: int, name: str, places: list[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
    """All of it, or nothing: whoever has it mapped has it in its image."""
    pages = (size + _PAGE - 1) // _PAGE * _PAGE
    by_place: dict[tuple[int, int], int] = {}
    for pid, begins, length in places:
        by_place[pid, begins] = by_place.get((pid, begins), 0) + length
    if any(length != pages for length in by_place.values()):
        raise Refused(f"{name} is mapped in part, which cannot come back")
    if by_place:
        return
    if size > _MOST:
        raise Refused(f"{name} is not mapped, and more than 64 MiB")
    at = lib.mm_shm_attach(real, True)
    if at == ffi.NULL:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    try:
        data = bytes(ffi.buffer(at, size))
    finally:
        lib.mm_shm_detach(at)
    for start in range(0, size, 1 << 16):
        piece = data[start:start + (1 << 16)]
        if piece.strip(b"\0"):
            yield start, piece


def _must(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
