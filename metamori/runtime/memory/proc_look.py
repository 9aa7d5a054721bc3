"""What /proc says of processes that stand still, read in one pass (shim_c/src/process/proc_look.c)."""

from __future__ import annotations

import errno
import os
import re
import struct
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from metamori._area import ffi, lib
from metamori.store.format.records import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:                          # which few programs need
    from typing import Any, NamedTuple
else:
    from metamori.tables.record import NamedTuple

_FD = struct.Struct("=iIIIQQQQQQ")         # struct mm_seen_fd
_LENGTH = struct.Struct("=I")
_LIMITS = struct.Struct("=32Q")
_NO_LIMIT = 2**64 - 1
_FILE = re.compile(rb"^\S+ ...p \S+ \S+ \S+ +(/.*)$", re.MULTILINE)
_USUAL = 1 << 18                           # bytes for what is said of one


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


@lru_cache(maxsize=64)                     # a fork's are its parent's
def _files(maps: bytes) -> Iterable[bytes]:
    return dict.fromkeys(_FILE.findall(maps))


class ProcLook:
    """A process."""

    def __init__(self, pid: int, data: bytes) -> None:
        self.pid, self._data, self._at = pid, data, 0
        self._stat, self._status, self._children, self.maps, self._cmdline, self._environ, self._limits, self._exe, \
            self._cwd = (self._text() for _ in range(9))

    def _text(self) -> bytes:
        start = self._at + _LENGTH.size
        self._at = start + _LENGTH.unpack_from(self._data, self._at)[0]
        return self._data[start:self._at]

    def descriptors(self) -> list[SeenFd]:
        """All of them, by number."""
        found, data, at = [], self._data, self._at
        while at < len(data):
            fd, mode, path, info, dev, ino, size, nlink, rdev, block = _FD.unpack_from(data, at)
            path += at + _FD.size
            info += path
            found.append(SeenFd(fd, data[at + _FD.size:path], Stat(mode, dev, ino, size, nlink, rdev, block),
                                data[path:info]))
            at = info
        return found

    @cached_property
    def stat_words(self) -> list[bytes]:
        """Of /proc/PID/stat, from the state on."""
        return self._stat.rpartition(b") ")[2].split()

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


def looks(pids: Sequence[int], but: Any) -> list[ProcLook]:
    """Of each, by two threads: the kernel takes the time. but: descriptors, ended by -1, that are not told."""
    left, failed = iter(range(len(pids))), []
    found: dict[int, bytes] = {}

    def look() -> None:
        room, size = ffi.new("char[]", _USUAL), _USUAL
        for i in left:
            while (n := lib.mm_proc_look(pids[i], but[i], room, size)) == -errno.ENOSPC:
                size *= 4
                room = ffi.new("char[]", size)
            if n < 0:
                failed.append(OSError(-n, os.strerror(-n)))
                return
            found[i] = bytes(ffi.buffer(room, n))

    other = threading.Thread(target=look)
    if len(pids) > 1:
        other.start()
    look()
    if len(pids) > 1:
        other.join()
    if failed:
        raise failed[0]
    return [ProcLook(pid, found[i]) for i, pid in enumerate(pids)]
