"""POSIX message queues made again for programs that come back: new ones with the old names, settings and messages."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle.descriptor_restart import up
from metamori.runtime.memory import queues
from metamori.runtime.memory.open_files import QUEUE
from metamori.store.format.records import SegmentEntry

_OPEN = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC


class QueueTaken(MetamoriError):
    """Somebody else has the name of a queue that the programs had."""

    errno = errno.EBUSY

    def __init__(self, name: bytes) -> None:
        super().__init__(f"{queues.title(name)} is there and in use, or is not the program's own")


def of(segments: Iterable[SegmentEntry]) -> list[SegmentEntry]:
    return [each for each in segments if each.kind == QUEUE]


def _words(segment: SegmentEntry) -> tuple[int, int, bytes]:
    """How many messages it takes, of how many bytes; its name."""
    most, size, name = segment.path.split(b" ", 2)
    return int(most), int(size), name


def check(segments: Iterable[SegmentEntry], own: Collection[int] = (), area: Area | None = None) -> None:
    """QueueTaken, while nothing has been touched. What the killed programs left behind is replaced. own, area:
    processes that are alive and go back, and their run."""
    inodes = queues.noted_inodes(area) if area else set()
    for each in of(segments):
        *_, name = _words(each)
        if name and _is_another(each, name, inodes, own):
            raise QueueTaken(name)


def _is_another(segment: SegmentEntry, name: bytes, inodes: Collection[int], own: Collection[int]) -> bool:
    """What an earlier restart made is alike, and nobody has it open."""
    fd = int(lib.mm_queue_open(name[1:], _OPEN, 0, 0, 0))
    if fd < 0:
        return fd != -errno.ENOENT
    try:
        st, settings = os.fstat(fd), queues.attributes(fd)[:2]
    finally:
        os.close(fd)
    if st.st_ino == segment.inode or st.st_ino in inodes:
        return False
    return st.st_uid != os.geteuid() or settings != _words(segment)[:2] or any(queues.holders(name, own))


def made(area: Area, segments: Iterable[SegmentEntry], base: int) -> dict[tuple[int, int], int]:
    """A descriptor of each, by kind and number in the entries; the run area's list says the names, too. OSError."""
    found: dict[tuple[int, int], int] = {}
    try:
        for each in of(segments):
            found[each.kind, each.inode] = up(_made(area, each), base)
            for priority, message in each.pieces:
                queues.must(lib.mm_queue_send(found[each.kind, each.inode], message, len(message), priority))
    except BaseException:
        drop(found)
        raise
    return found


def _made(area: Area, segment: SegmentEntry) -> int:
    most, size, name = _words(segment)
    called = name[1:] or b"metamori.%d" % os.getpid()
    if (gone := lib.mm_queue_unlink(called)) != -errno.ENOENT:
        queues.must(gone)
    fd = queues.must(lib.mm_queue_open(called, _OPEN | os.O_CREAT | os.O_EXCL, 0o600, most, size))
    if name:
        lib.mm_queue_note(area.pointer, os.fstat(fd).st_ino, name)
    else:
        lib.mm_queue_unlink(called)
    os.fchmod(fd, segment.mode)
    return fd


def drop(made: dict[tuple[int, int], int]) -> None:
    """Nobody comes back."""
    for fd in made.values():
        name = os.readlink(b"/proc/self/fd/%d" % fd)
        lib.mm_queue_unlink(name[1:])      # " (deleted)" is part of no queue's name that was made here
