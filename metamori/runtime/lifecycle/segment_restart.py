"""Memory that processes share, made again for programs that come back: one object for each, filled by their images."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterable

from metamori.errors import MetamoriError
from metamori.runtime.lifecycle.descriptor_restart import up
from metamori.runtime.memory import nameless
from metamori.runtime.memory.segments import NAMELESS, POSIX, SEAL_FUTURE_WRITE, SEAL_WRITE
from metamori.store.format.records import SegmentEntry

_ADD_SEALS = 1033
_OWNER = 0o600                             # who opens it again


class NameTaken(MetamoriError):
    """Another one has the name of shared memory that the programs had."""

    errno = errno.EBUSY

    def __init__(self, path: bytes) -> None:
        super().__init__(f"{os.fsdecode(path)} is there, where the program had shared memory; it is not its own")


def check(segments: Iterable[SegmentEntry], own: Collection[int] = ()) -> None:
    """NameTaken, while nothing has been touched. What the killed programs left behind is replaced. own: processes that
    are alive and go back."""
    for each in segments:
        if each.kind == POSIX and each.path and _is_another(each, own):
            raise NameTaken(each.path)


def _is_another(segment: SegmentEntry, own: Collection[int]) -> bool:
    """What an earlier restart made has a number of its own: it is as large, and nobody has it. What those who go back
    have made since may be of any size."""
    try:
        st = os.lstat(segment.path)
    except FileNotFoundError:
        return False
    if st.st_ino == segment.inode:
        return False
    if st.st_uid != os.geteuid() or (st.st_size != segment.size and not own):
        return True
    others = {*map(int, filter(str.isdigit, os.listdir("/proc")))}.difference(own)
    mapped = b"%02x:%02x %d " % (os.major(st.st_dev), os.minor(st.st_dev), st.st_ino)      # maybe by another name
    return any(_has(each, segment.path, mapped) for each in others)


def _has(process: int, path: bytes, mapped: bytes) -> bool:
    try:
        with open(f"/proc/{process}/maps", "rb") as file:
            maps = file.read()
            if path in maps or mapped in maps:
                return True
        folder = os.fsencode(f"/proc/{process}/fd")
        return any(os.readlink(os.path.join(folder, fd)) == path for fd in os.listdir(folder))
    except OSError:
        return False                       # it has ended, or is somebody else's, who could not have this


def made(segments: Iterable[SegmentEntry], base: int) -> dict[tuple[int, int], int]:
    """A descriptor of each, by kind and number."""
    return {(each.kind, each.inode): up(_made(each), base) for each in segments
            if each.kind in (NAMELESS, POSIX, nameless.KIND)}


def _made(segment: SegmentEntry) -> int:
    if segment.kind == POSIX and segment.path:
        if os.path.lexists(segment.path):
            os.unlink(segment.path)
        fd = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    else:
        name = segment.path.removeprefix(b"/memfd:").decode(errors="surrogateescape") or "shared"
        fd = os.memfd_create(name[-200:], os.MFD_CLOEXEC | (0 if segment.seals == 1 else os.MFD_ALLOW_SEALING))
    os.ftruncate(fd, segment.size)
    for start, data in segment.pieces:
        if os.pwrite(fd, data, start) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if segment.kind == POSIX and segment.path:
        os.fchmod(fd, segment.mode)
        return fd
    if segment.mode & _OWNER == _OWNER:
        os.fchmod(fd, segment.mode)
    if segment.seals not in (0, 1) and not late_seals(segment):
        fcntl.fcntl(fd, _ADD_SEALS, segment.seals)
    return _read_only(fd) if is_whole(segment) else fd


def is_whole(segment: SegmentEntry) -> bool:
    """Nobody may write into it."""
    return segment.kind == NAMELESS and segment.seals & SEAL_WRITE != 0


def late_seals(segment: SegmentEntry) -> int:
    """Those that would keep a process from mapping it as it had it mapped."""
    future = segment.kind == NAMELESS and segment.seals & SEAL_FUTURE_WRITE and not is_whole(segment)
    return segment.seals if future else 0


def _read_only(fd: int) -> int:
    """As it must be mapped before Linux 6.7."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
