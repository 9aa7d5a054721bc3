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
from collections.abc import Iterable
from typing import NamedTuple

from metamori.errors import MetamoriError
from metamori.runtime.memory import proc_inspect
from metamori.store.format.records import DescriptorEntry

_OFD_SETLK = 37
_HELD = (errno.EAGAIN, errno.EACCES)


class Lock(NamedTuple):
    kind: str       # FLOCK, OFDLCK or POSIX, as /proc says it
    exclusive: bool
    start: int
    length: int     # 0: to the end, wherever that comes to be

    @property
    def type(self) -> int:
        return fcntl.F_WRLCK if self.exclusive else fcntl.F_RDLCK


class HeldElsewhere(MetamoriError):
    """Another process has a lock that the program had."""

    def __init__(self, path: bytes) -> None:
        super().__init__(f"another process has locked {os.fsdecode(path)}, which the program had locked")


def of(entry: DescriptorEntry) -> list[Lock]:
    """The locks that came by a descriptor; those of dup'ed ones stand at the first of them."""
    if entry.kind not in ("followed", "file") or entry.same_as >= 0:
        return []
    found = []
    for line in proc_inspect.numbers(entry.data, "lock"):
        # 1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF
        words = line.split()
        first, last = words[-2], words[-1]
        length = 0 if last == "EOF" else int(last) - int(first) + 1
        found.append(Lock(words[1], words[3] == "WRITE", int(first), length))
    return found


def take(fd: int, lock: Lock) -> None:
    """Without waiting. OSError when somebody else has it."""
    if lock.kind == "FLOCK":
        fcntl.flock(fd, (fcntl.LOCK_EX if lock.exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    elif lock.kind in ("OFDLCK", "POSIX"):
        asked = struct.pack("=hhxxxxqqixxxx", lock.type, os.SEEK_SET, lock.start, lock.length, 0)
        fcntl.fcntl(fd, _OFD_SETLK if lock.kind == "OFDLCK" else fcntl.F_SETLK, asked)


def check(entries: Iterable[DescriptorEntry]) -> None:
    """HeldElsewhere, while nothing has been touched: looked for in the files as they are now."""
    for entry in entries:
        found = of(entry)
        if not found:
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


def packed(entries: Iterable[DescriptorEntry]) -> bytes:
    """Those of the process, as the preload library takes them (struct mm_came_lock)."""
    return b"".join(struct.pack("=iiqq", entry.descriptor, lock.type, lock.start, lock.length)
                    for entry in entries for lock in of(entry) if lock.kind == "POSIX")
