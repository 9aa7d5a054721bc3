"""What /proc says of processes that stand still, read in one pass (shim_c/src/process/proc_look.c)."""

from __future__ import annotations

import errno
import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_LENGTHS = struct.Struct(f"={lib.MM_SEEN_TEXTS}I"), struct.Struct(f"={lib.MM_SEEN_REST}I")
_MAPS, _CMDLINE, _ENVIRON, _LIMITS_AT, _EXE, _CWD, _GROUP, _PLACES, _STATUS = range(lib.MM_SEEN_REST)
_GROUPS = struct.Struct("=qq")
_LIMITS = struct.Struct("=32Q")
_NO_LIMIT = 2**64 - 1
_WHOSE = re.compile(rb"\nPPid:\s+(\d+)\n(?s:.*?)\nUid:\s+(.*)\nGid:\s+(.*)\n(?s:.*?)\nGroups:(.*)\n")
_CONFINED = re.compile(rb"\nCapPrm:\s+(\w+)\nCapEff:\s+(\w+)\nCapBnd:\s+(\w+)\nCapAmb:\s+(\w+)\n(?s:.*?)"
                       rb"\nSeccomp_filters:\s+(\d+)\n")
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


def confined(status: bytes) -> tuple[Sequence[bytes], int]:
    """Capabilities (permitted, effective, bounding, ambient), and how many filters of calls; from /proc/PID/status."""
    found = _CONFINED.search(status)
    return (found.group(1, 2, 3, 4), int(found[5])) if found else ((), 0)


@lru_cache(maxsize=64)                     # a fork's are its parent's
def _files(maps: bytes) -> Iterable[bytes]:
    return dict.fromkeys(_FILE.findall(maps))


def _ends(data: bytes, lengths: struct.Struct) -> list[int]:
    """Of the texts: each begins where the one before it ends."""
    return [*accumulate(lengths.unpack_from(data), initial=lengths.size)]


def _maps(pid: int) -> bytes:
    with open(f"/proc/{pid}/maps", "rb") as file:
        return file.read()


class ProcLook:
    """A process."""

    family: tuple[int, int, int]           # parent, group, session
    users: Sequence[bytes]                 # real, effective, saved, that of files
    groups: Sequence[bytes]
    others: Sequence[bytes]                # groups that it belongs to, too

    def __init__(self, pid: int, data: bytes) -> None:
        self.pid, self._data = pid, data
        start, self._at = _ends(data, _LENGTHS[0])
        self._children = data[start:self._at]

    def know_rest(self, data: bytes) -> None:
        """What can wait."""
        self._rest, self._ends = data, _ends(data, _LENGTHS[1])
        self.maps = self._text(_MAPS)
        whose = _WHOSE.search(data, self._ends[_STATUS])
        assert whose
        self.users, self.groups, self.others = (each.split() for each in whose.group(2, 3, 4))
        self.family = int(whose[1]), *_GROUPS.unpack_from(data, self._ends[_GROUP])

    def _text(self, which: int) -> bytes:
        return self._rest[self._ends[which]:self._ends[which + 1]]

    @property
    def confined(self) -> tuple[Sequence[bytes], int]:
        return confined(self._text(_STATUS))

    @property
    def places(self) -> bytes:
        """Its root and its namespaces, one behind the other."""
        return self._text(_PLACES)

    @property
    def exe(self) -> bytes:
        return self._text(_EXE)

    def descriptors(self) -> list[SeenFd]:
        """All of them, by number."""
        found, data, at = [], self._data, self._at
        while at < len(data):
            fd, mode, path, info, dev, ino, size, nlink, rdev, block, position, flags = _FD.unpack_from(data, at)
            info += at + _FD.size
            path += info
            found.append(SeenFd(fd, data[info:path], Stat(mode, dev, ino, size, nlink, rdev, block),
                                data[at + _FD.size:info], position, flags))
            at = path
        return found

    @property
    def children(self) -> list[int]:
        """Live (or not yet reaped)."""
        return [*map(int, self._children.split())]

    @property
    def files(self) -> Iterable[bytes]:
        """Those mapped, but for those mapped shared: they belong to its files."""
        return _files(self.maps)

    def launch(self) -> Launch:
        """How the program that it now is was started."""
        limits = [-1 if each == _NO_LIMIT else each for each in _LIMITS.unpack(self._text(_LIMITS_AT))]
        return Launch(
            self.exe, tuple(self._text(_CMDLINE).split(b"\0")[:-1]),
            tuple(filter(None, self._text(_ENVIRON).split(b"\0"))),
            self._text(_CWD), int(self._field(b"Umask") or b"022", 8),
            tuple(zip(limits[::2], limits[1::2], strict=True)))

    def _field(self, name: bytes) -> bytes:
        status = self._text(_STATUS)
        start = status.find(b"\n" + name + b":") + 1
        return status[start + len(name) + 1:status.find(b"\n", start)].strip() if start else b""


class Looks:
    """At processes, to be closed. Another thread, which needs nothing of Python's, looks on while what is there is
    taken apart. unseen(PID, errno): what is raised of one that may not be looked at."""

    def __init__(self, processes: Sequence[tuple[int, mm_memory]],
                 unseen: Callable[[int, int], Exception] = lambda _, error: OSError(error, os.strerror(error))) -> None:
        self._unseen = unseen
        first: dict[int, int] = {}
        self._seen = ffi.new("struct mm_proc_view[]", [
            (pid, memory, first.setdefault(memory.maps_key, number)) for number, (pid, memory) in enumerate(processes)])
        self._next = ffi.new("uint32_t *")
        self._count, self._end = len(processes), lib.MM_SEEN_PARTS * len(processes)
        all_of_it = self._seen, self._count, self._next, self._end
        self._other = threading.Thread(target=lib.mm_proc_looks, args=all_of_it)
        if self._count > 1:
            self._other.start()

    def first(self) -> Iterator[ProcLook]:
        """Of each, in their order."""
        return (ProcLook(each.pid, data) for each, data in zip(self._seen, self._data(0), strict=True))

    def rest(self, looks: Sequence[ProcLook]) -> None:
        """Into each of these. What processes had mapped alike is read once, if no name of it has changed since."""
        for each, look, data in zip(self._seen, looks, self._data(1), strict=True):
            look.know_rest(data)
            first = self._seen[each.like]
            each.memory.maps_changed = not first.as_held
            if first.pid != look.pid:
                look.maps = looks[each.like].maps if first.as_held else _maps(look.pid)

    def _data(self, part: int) -> Iterator[bytes]:
        for each in self._seen:
            while not each.length[part]:
                if not lib.mm_proc_looks(self._seen, self._count, self._next, 1):
                    self._other.join()     # it is at the last one
            yield bytes(ffi.buffer(each.text[part], self._must(each.length[part], each.pid)))

    def _must(self, length: int, pid: int) -> int:
        if length in (-errno.EPERM, -errno.EACCES):
            raise self._unseen(pid, -length)
        if length < 0:
            raise OSError(-length, os.strerror(-length))
        return length

    def close(self) -> None:
        self._next[0] = self._end          # nobody takes another
        if self._count > 1:
            self._other.join()
        lib.mm_proc_looked(self._seen, self._count)
        self._count = 0
