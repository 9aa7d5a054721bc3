"""Locks of the files of a program that comes back: the kernel's words for them, and taking them again.

Those of an open description (flock, F_OFD_SETLK) come with a descriptor that is opened before the program begins. Those
of the process (F_SETLK, lockf) are dropped as soon as any descriptor of the file is closed, and much is closed before
the program stands where it stood: they are tried here, for the words, and taken by the preload library as its last
step (mm_locks_back).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from metamori.errors import MetamoriError
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.open_files import Descriptions
from metamori.store.format.records import DescriptorEntry

_OFD_SETLK = 37
_HELD = (errno.EAGAIN, errno.EACCES)
_KINDS = ("FLOCK", "OFDLCK", "POSIX")      # not leases, nor who waits for one


class Lock(NamedTuple):
    kind: str       # of _KINDS, as /proc says it
    exclusive: bool
    start: int
    length: int     # 0: to the end, wherever that comes to be

    @classmethod
    def parse(cls, line: str) -> Lock:
        """1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF"""
        words = line.split()
        first, last = words[-2:]
        return cls(words[1], words[3] == "WRITE", int(first), 0 if last == "EOF" else int(last) - int(first) + 1)

    def conflicts(self, other: Lock) -> bool:
        if (self.kind == "FLOCK") != (other.kind == "FLOCK") or not (self.exclusive or other.exclusive):
            return False
        first, second = sorted((self, other), key=lambda each: each.start)
        return not first.length or first.start + first.length > second.start

    @property
    def type(self) -> int:
        return fcntl.F_WRLCK if self.exclusive else fcntl.F_RDLCK


class HeldElsewhere(MetamoriError):
    """Another process has a lock that the program had."""

    errno = errno.EBUSY

    def __init__(self, path: bytes) -> None:
        super().__init__(f"another process has locked {os.fsdecode(path)}, which the program had locked")


def of(entry: DescriptorEntry) -> list[Lock]:
    """The locks that came by a descriptor; those of dup'ed ones stand at the first of them."""
    if entry.kind not in ("followed", "file", "segment") or entry.same_as >= 0:
        return []
    return [Lock.parse(line) for line in proc_inspect.numbers(entry.data, "lock")]


def take(fd: int, lock: Lock) -> None:
    """Without waiting. OSError when somebody else has it."""
    if lock.kind == "FLOCK":
        fcntl.flock(fd, (fcntl.LOCK_EX if lock.exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    elif lock.kind in ("OFDLCK", "POSIX"):
        asked = struct.pack("=hhxxxxqqixxxx", lock.type, os.SEEK_SET, lock.start, lock.length, 0)
        fcntl.fcntl(fd, _OFD_SETLK if lock.kind == "OFDLCK" else fcntl.F_SETLK, asked)


def check(entries: Iterable[DescriptorEntry], own: Collection[int] = ()) -> None:
    """HeldElsewhere, while nothing has been touched: looked for in the files as they are now. own: processes that are
    alive and go back; then none is taken, for one of them may want it just now."""
    for entry in entries:
        found = of(entry)
        if not found:
            continue
        if own:
            others = _of_others(entry, own)
            if any(lock.conflicts(other) for lock in found for other in others):
                raise HeldElsewhere(entry.path)
            continue
        try:
            fd = os.open(entry.path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            continue                       # gone, or not to be written: it is looked at when it has come back
        try:
            for lock in found:
                take(fd, lock)
        except OSError as error:
            if error.errno in _HELD:
                raise HeldElsewhere(entry.path) from None
        finally:
            os.close(fd)


def _of_others(entry: DescriptorEntry, own: Collection[int]) -> list[Lock]:
    """The locks on a file that these processes have not. Its device there is the filesystem's, which is not the file's
    own in a subvolume: an earlier line of this lock tells. Lines of two descriptions can be alike."""
    device = proc_inspect.numbers(entry.data, "lock")[0].split()[-3].rpartition(":")[0]
    try:
        st = os.stat(entry.path)
        with open("/proc/locks", encoding="ascii") as file:
            place = f" {device}:{st.st_ino} "
            lines = Counter(line.partition(": ")[2] for line in map(str.strip, file)
                            if place in line and line.split()[1] in _KINDS)
    except OSError:
        return []                          # gone
    ours = Counter(line for _, line in _lines_of(own, place)) if lines else Counter[str]()
    return [Lock.parse(f"0: {line}") for line in lines - ours]


def _lines_of(pids: Iterable[int], place: str) -> set[tuple[tuple[int, int], str]]:
    """With the first descriptor of each description that has one: all of its descriptors show it."""
    found, seen = set[tuple[tuple[int, int], str]](), Descriptions()
    for pid in pids:
        with suppress(OSError):            # it ends
            for fd in os.listdir(f"/proc/{pid}/fdinfo"):
                with suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
                    for line in proc_inspect.numbers(file.read(), "lock"):
                        if place in line:
                            found.add((seen.met(b"", 0, pid, int(fd)), line.partition(": ")[2].strip()))
    return found


def packed(entries: Iterable[DescriptorEntry]) -> bytes:
    """Those of the process, as the preload library takes them (struct mm_came_lock)."""
    return b"".join(struct.pack("=iiqq", entry.descriptor, lock.type, lock.start, lock.length)
                    for entry in entries for lock in of(entry) if lock.kind == "POSIX")
