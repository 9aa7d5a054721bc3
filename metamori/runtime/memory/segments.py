"""Memory that several processes may share: nameless (MAP_SHARED, memfd), in /dev/shm, or a file that was deleted.

What a process has mapped of it is in that process's image, or in that of another which has mapped the same. The rest of
what is open is copied here. Each comes back as a new one, which all processes that had it are given.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import nameless, sysv
from metamori.runtime.memory.nameless import DELETED, Nameless
from metamori.runtime.memory.open_files import Open
from metamori.runtime.memory.proc_inspect import Refused
from metamori.store.format.records import SegmentEntry

NAMELESS, POSIX, SYSV = 1, 2, 3            # shared_kind of shim_c/src/memory/image_engine.h
_MOST = 64 << 20                           # bytes of one that nobody has mapped
_GET_SEALS = 1034
SEAL_WRITE, SEAL_FUTURE_WRITE, _KNOWN = 8, 16, 63      # with F_SEAL_SEAL, _SHRINK, _GROW, _EXEC
_SHARED = re.compile(rb"^(\w+)-(\w+) ...s (\w+) (\w+):(\w+) (\d+) +(/.*|\[anon_shmem:.*)$",
                     re.MULTILINE)
_PRIVATE = re.compile(rb"^\S+ ...p \S+ \S+ (\d+) +(/(?:memfd:|dev/shm/).*)$", re.MULTILINE)
_PATHS = (b"/dev/zero", b"/memfd:", b"/SYSV", b"/dev/shm/")
_LARGE = 1 << 16                           # a block of what lies in large pages
_AVAILABLE = re.compile(rb"^MemAvailable:\s+(\d+)", re.MULTILINE)
_CACHED = re.compile(rb"^(?:in)?active_file (\d+)$", re.MULTILINE)
_CACHED_BELOW = re.compile(rb"^total_(?:in)?active_file (\d+)$", re.MULTILINE)


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""


def _left_in_group(folder: str, most: str, used: str, cached: re.Pattern[bytes]) -> Iterator[int]:
    """In a control group and in those around it, where they have a limit; files' pages count as free."""
    while folder.startswith("/sys/fs/cgroup"):
        limit = _read(f"{folder}/{most}").strip()
        if limit.isdigit():
            files = sum(map(int, cached.findall(_read(f"{folder}/memory.stat"))))
            yield max(int(limit) - int(_read(f"{folder}/{used}") or 0) + files, 0)
        folder = os.path.dirname(folder)


def room_for_copies(pid: int) -> int:
    """Bytes of memory that copies of shared memory may take for a while: three quarters of what is left
    (proc_meminfo(5), cgroups(7))."""
    found = _AVAILABLE.search(_read("/proc/meminfo"))
    left = [int(found[1]) << 10 if found else 0]
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        number, names, path = os.fsdecode(line).split(":", 2)
        if number == "0":
            left += _left_in_group(f"/sys/fs/cgroup{path}".rstrip("/"), "memory.max", "memory.current", _CACHED)
        elif "memory" in names.split(","):
            left += _left_in_group(f"/sys/fs/cgroup/memory{path}".rstrip("/"), "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", _CACHED_BELOW)
    return min(left) * 3 // 4


class _Segment:
    """Where it is mapped, and one descriptor of it."""

    def __init__(self, kind: int, inode: int, path: bytes) -> None:
        self.kind, self.inode, self.path = kind, inode, path
        self.mapped: list[tuple[int, int]] = []
        self.open: Open | None = None


def _kind(path: bytes) -> int:
    if path.startswith((b"/dev/zero", b"[anon_shmem:", b"/memfd:")):     # the second: named by the program
        return NAMELESS
    if path.startswith(b"/SYSV"):
        return SYSV
    return POSIX if path.startswith(b"/dev/shm/") else nameless.KIND if nameless.has_no_name(path) else 0


@lru_cache(maxsize=64)                     # a fork's are its parent's
def _shared(maps: bytes) -> list[tuple[int, int, int, int, int, int, bytes]]:
    """Kind, start, end, offset, device, inode, path."""
    return [(kind, int(start, 16), int(end, 16), int(offset, 16), os.makedev(int(major, 16), int(minor, 16)),
             int(inode), path)
            for start, end, offset, major, minor, inode, path in _SHARED.findall(maps) if (kind := _kind(path))]


@lru_cache(maxsize=64)
def _private(maps: bytes) -> set[tuple[int, int]]:
    """Memory files mapped so: kind and inode."""
    return {(_kind(path), int(inode)) for inode, path in _PRIVATE.findall(maps)}


def found(area: Area, maps: Mapping[int, bytes], opens: Iterable[Open], gone: Nameless) -> tuple[SegmentEntry, ...]:
    """All of a run's, while its processes are stopped. maps: by process. Refused."""
    segments: dict[tuple[int, int], _Segment] = {}
    attached: sysv.Mapped = {}
    for pid, text in maps.items():
        for kind, start, end, offset, device, inode, path in _shared(text):
            if kind == SYSV:
                attached.setdefault(inode, []).append((pid, start - offset, end - start))
                continue
            if kind == nameless.KIND:
                nameless.require_none(area, path, device, inode)
                inode = nameless.number(os.major(device), os.minor(device), inode)
            this = segments.setdefault((kind, inode), _Segment(kind, inode, path))
            this.mapped.append((offset, offset + end - start))
    for each in opens:
        if each.path.startswith(_PATHS) and (kind := _kind(each.path)) and each.path != b"/dev/zero":
            segments.setdefault((kind, each.inode), _Segment(kind, each.inode, each.path)).open = each
        elif number := gone.of(each.path, each.st):
            segments[nameless.KIND, number].open = each
    _find_other_names([this for (kind, _), this in segments.items() if kind == POSIX and this.path.endswith(DELETED)])
    entries = [*map(_entry, segments.values())]
    change = {(each.kind, each.inode) for each in entries if not each.seals & SEAL_WRITE}
    for text in maps.values():
        if not _private(text).isdisjoint(change):
            raise Refused("it maps a memory file privately that is open, or mapped shared")
    return (*entries, *sysv.found(area, maps.keys(), attached))


def _find_other_names(gone: list[_Segment]) -> None:
    """sem_open makes it under one name, and then gives it its own: maps and links show the first."""
    names: dict[bytes, dict[int, bytes]] = {}
    for this in gone:
        folder = os.path.dirname(this.path)
        if folder not in names:
            names[folder] = {}
            with suppress(OSError), os.scandir(folder) as entries:
                names[folder] = {each.inode(): each.path for each in entries if each.is_file(follow_symlinks=False)}
        this.path = names[folder].get(this.inode, this.path)


def _entry(this: _Segment) -> SegmentEntry:
    named = this.kind == POSIX and not this.path.endswith(DELETED)
    path = this.path.removesuffix(DELETED) if named or this.path.startswith(b"/memfd:") else b""
    if this.open is None:
        size, mode = max(end for _, end in this.mapped), 0o600
        if named:
            now = os.stat(path)
            size, mode = now.st_size, now.st_mode & 0o7777
        return SegmentEntry(this.kind, this.inode, size, path, mode)
    st = this.open.st
    fd = os.open(this.open.link, os.O_RDONLY | os.O_CLOEXEC)
    try:
        seals = _seals(fd) if this.kind == NAMELESS else 1
        if seals & ~_KNOWN or st.st_blksize > _LARGE:
            raise Refused(f"descriptor {this.open.fd} is a memory file in large pages, which cannot come back with the "
                          "program")
        # into what nobody may write no mapping fills anything
        pieces = tuple(_unmapped(fd, st.st_size, [] if seals & SEAL_WRITE else sorted(this.mapped)))
    finally:
        os.close(fd)
    if sum(len(data) for _, data in pieces) > _MOST:
        raise Refused(f"descriptor {this.open.fd} is a file without a name of which more than 64 MiB are not mapped")
    return SegmentEntry(this.kind, this.inode, st.st_size, path, st.st_mode & 0o7777, seals, pieces)


def _seals(fd: int) -> int:
    return int(fcntl.fcntl(fd, _GET_SEALS))


def is_sealed_late(fd: int) -> bool:
    """So that nobody may map it writable any more, who had it mapped may write on."""
    return _seals(fd) & (SEAL_WRITE | SEAL_FUTURE_WRITE) == SEAL_FUTURE_WRITE


def _unmapped(fd: int, size: int, mapped: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Where it has content, in pieces."""
    at, most = 0, _MOST + 1
    for start, end in [*mapped, (size, size)]:
        while at < min(start, size) and most > 0:
            try:
                first = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return
            last = min(os.lseek(fd, first, os.SEEK_HOLE), start, size) if first < min(start, size) else first
            at = last
            if first < last:
                data = os.pread(fd, min(last - first, most), first)
                most -= len(data)
                yield first, data
            else:
                at = min(start, size)
        at = max(at, end)
