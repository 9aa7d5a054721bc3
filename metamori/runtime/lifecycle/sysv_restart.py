"""Objects of System V made again for programs that come back: new ones with the old keys and content."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import sysv
from metamori.store.format.records import SegmentEntry

_CREATE, _ALONE = 0o1000, 0o2000           # IPC_CREAT, IPC_EXCL


class KeyTaken(MetamoriError):
    """Somebody else has the key of what the programs had."""

    errno = errno.EBUSY

    def __init__(self, segment: SegmentEntry) -> None:
        key, number = _names(segment)
        super().__init__(f"{sysv.title(segment.kind, key, number)} is there and in use, or is not the program's own")


def of(segments: Iterable[SegmentEntry]) -> list[SegmentEntry]:
    return [each for each in segments if each.kind in sysv.NAMES]


def _names(segment: SegmentEntry) -> tuple[int, int]:
    """Key, and the number that programs know."""
    key, number = map(int, segment.path.split())
    return key, number


def check(segments: Iterable[SegmentEntry], area: Area | None = None) -> None:
    """KeyTaken, while nothing has been touched. What the killed programs left behind is replaced. area: of a run that
    is alive and goes back."""
    own = {(each.kind, each.real) for each in area.head.tree.sysv if each.taken} if area else set()
    for each in of(segments):
        if (each.kind, _left_behind(each)) not in own and _is_another(each):
            raise KeyTaken(each)


def _left_behind(segment: SegmentEntry) -> int:
    """The number of what has its key now; -1."""
    key, _ = _names(segment)
    return int(lib.mm_sysv_get(segment.kind, key, 0, 0)) if key else -1


def _is_another(segment: SegmentEntry) -> bool:
    """What an earlier restart made is alike, and nobody has it or used it last who is alive."""
    real = _left_behind(segment)
    if real == -errno.EACCES:
        return True
    if real < 0:
        return False
    try:
        now = sysv.state(segment.kind, real)
    except OSError:
        return True
    if now is None:
        return False
    if now.uid != os.geteuid() or (segment.kind != sysv.QUEUE and now.size != segment.size):
        return True
    if segment.kind != sysv.MEMORY and real == segment.inode:  # the very same: the kernel gives no number twice so soon
        return False
    return sysv.is_used(segment.kind, real, now)


def made(area: Area, segments: Iterable[SegmentEntry]) -> dict[tuple[int, int], int]:
    """The new number of each, by kind and number in the images; the run area's list says it too. OSError."""
    found: dict[tuple[int, int], int] = {}
    wanted, tree = of(segments), area.head.tree
    try:
        for place, each in enumerate(wanted):
            key, number = _names(each)
            if (real := _left_behind(each)) >= 0:
                lib.mm_sysv_remove(each.kind, real)
            mode = each.mode & ~sysv.REMOVED
            real = _must(lib.mm_sysv_get(each.kind, key, _size(each), mode | _CREATE | _ALONE))
            found[each.kind, each.inode] = real
            entry = tree.sysv[place]
            entry.taken, entry.kind, entry.known, entry.real = 1, each.kind, number, real
            _fill(each, real)
    except BaseException:
        drop(found)
        raise
    return found


def drop(made: dict[tuple[int, int], int]) -> None:
    """Nobody comes back."""
    for (kind, _), real in made.items():
        with suppress(OSError):
            lib.mm_sysv_remove(kind, real)


def _size(segment: SegmentEntry) -> int:
    return 0 if segment.kind == sysv.QUEUE else segment.size


def _fill(segment: SegmentEntry, real: int) -> None:
    if segment.kind == sysv.SEMAPHORES:
        _must(lib.mm_sem_values(real, segment.pieces[0][1], True))
    elif segment.kind == sysv.QUEUE:
        for _, message in segment.pieces:
            _must(lib.mm_message_send(real, message, len(message) - 8))
        lib.mm_sysv_limit(real, segment.size)      # only root may have it larger than usual
    elif segment.pieces:
        at = lib.mm_shm_attach(real, False)
        if at == ffi.NULL:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        for start, data in segment.pieces:
            ffi.memmove(at + start, data, len(data))
        lib.mm_shm_detach(at)


def _must(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
