"""What /proc says of processes that stand still, read in one pass (shim_c/src/process/proc_look.c)."""

from __future__ import annotations

import os
import re
import struct
import threading
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from metamori._area import ffi, lib
from metamori.store.format.records import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:                          # which few programs need
    from typing import NamedTuple

    from metamori._area import mm_memory
else:
    from metamori.tables.record import NamedTuple

_FD = struct.Struct("=iIIIQQQQQQqQ")        # struct mm_seen_fd
_LENGTHS = struct.Struct(f"={lib.MM_SEEN_TEXTS}I")
_GROUPS = struct.Struct("=qq")
_LIMITS = struct.Struct("=32Q")
_NO_LIMIT = 2**64 - 1
_FILE = re.compile(rb"^\S+ ...p \S+ \S+ \S+ +(/.*)$", re.MULTILINE)


class Stat(NamedTuple):
    """As os.stat says it."""

    st_mode: int
    st_dev: int
    st_ino: int
    st_size: int
    st_nlink: int
    st_rdev: int
    st_blksize: int


class SeenFd(NamedTuple):
    """A descriptor."""

    fd: int
    path: bytes
    st: Stat
    info: bytes
    position: int
    flags: int


@lru_cache(maxsize=64)                     # a fork's are its parent's
def _files(maps: bytes) -> Iterable[bytes]:
    return dict.fromkeys(_FILE.findall(maps))


class ProcLook:
    """A process."""

    def __init__(self, pid: int, data: bytes) -> None:
        self.pid, self._data = pid, data
        ends = [*accumulate(_LENGTHS.unpack_from(data), initial=_LENGTHS.size)]
        self._groups, self._status, self._children, self.maps, self._cmdline, self._environ, self._limits, self._exe, \
            self._cwd = map(data.__getitem__, map(slice, ends, ends[1:]))
        self._at = ends[-1]

    def descriptors(self) -> list[SeenFd]:
        """All of them, by number."""
        found, data, at = [], self._data, self._at
        while at < len(data):
            fd, mode, path, info, dev, ino, size, nlink, rdev, block, position, flags = _FD.unpack_from(data, at)
            path += at + _FD.size
            info += path
            found.append(SeenFd(fd, data[at + _FD.size:path], Stat(mode, dev, ino, size, nlink, rdev, block),
                                data[path:info], position, flags))
            at = info
        return found

    @property
    def family(self) -> tuple[int, int, int]:
        """Parent, group, session."""
        group, session = _GROUPS.unpack(self._groups)
        return int(self._field(b"PPid")), group, session

    @property
    def children(self) -> list[int]:
        """Live (or not yet reaped)."""
        return [*map(int, self._children.split())]

    @property
    def users(self) -> tuple[list[bytes], list[bytes]]:
        """Real, effective, saved: of users and groups."""
        return self._field(b"Uid").split()[:3], self._field(b"Gid").split()[:3]

    @property
    def files(self) -> Iterable[bytes]:
        """Those mapped, but for those mapped shared: they belong to its files."""
        return _files(self.maps)

    def launch(self) -> Launch:
        """How the program that it now is was started."""
        limits = [-1 if each == _NO_LIMIT else each for each in _LIMITS.unpack(self._limits)]
        return Launch(
            self._exe, tuple(self._cmdline.split(b"\0")[:-1]), tuple(filter(None, self._environ.split(b"\0"))),
            self._cwd, int(self._field(b"Umask") or b"022", 8), tuple(zip(limits[::2], limits[1::2], strict=True)))

    def _field(self, name: bytes) -> bytes:
        start = self._status.find(b"\n" + name + b":") + 1
        return self._status[start + len(name) + 1:self._status.find(b"\n", start)].strip() if start else b""


def looks(processes: Sequence[tuple[int, mm_memory]]) -> Generator[ProcLook]:
    """Of each, in this order; to be closed. Another thread, which needs nothing of Python's, looks on while what is
    there is taken apart."""
    seen, next_one, count = ffi.new("struct mm_seen[]", processes), ffi.new("uint32_t *"), len(processes)
    other = threading.Thread(target=lib.mm_proc_looks, args=(seen, count, next_one, count))
    if count > 1:
        other.start()
    try:
        for each in seen:
            while not each.length:
                if not lib.mm_proc_looks(seen, count, next_one, 1):
                    other.join()           # it is at the last one
            yield ProcLook(each.pid, bytes(ffi.buffer(each.text, _must(each.length))))
    finally:
        next_one[0] = count                # nobody takes another
        if count > 1:
            other.join()
        lib.mm_proc_looked(seen, count)


def _must(length: int) -> int:
    if length < 0:
        raise OSError(-length, os.strerror(-length))
    return length
