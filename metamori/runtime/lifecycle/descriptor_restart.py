"""Descriptors of programs that come back: opened as they were."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import struct
import tempfile
from collections.abc import Callable, Collection, Iterable

from metamori._area import lib
from metamori.runtime.lifecycle import child_loop
from metamori.runtime.memory import file_locks, proc_inspect, timers
from metamori.store.format.records import DescriptorEntry, Launch
from metamori.store.io.os_io import opened_up

GONE = b" (deleted)"                       # the kernel's words behind what was a path
_HIGH = 100000
_STACK = 1 << 30                           # bytes: without a limit mappings would be at other places
_AT = "at:"                               # memory/sets.py
Place = tuple[int, int]                    # number of a process, descriptor
_POLLED = 0x0fffffff                       # of an epoll entry's events, those that it waits for
_SET_SIZE, _USUAL_SIZE = 1031, 65536        # F_SETPIPE_SZ
_SET_TICKS = 0x40085400                    # TFD_IOC_SET_TICKS


def in_place(launch: Launch, but: Collection[int] = ()) -> None:
    """Folder, umask and limits as the program had them. but: limits that are as wide as may be."""
    for number, (soft, hard) in enumerate(launch.limits):
        if number in but:
            widest = resource.getrlimit(number)[1]
            _limit(number, max(soft, _STACK) if number == resource.RLIMIT_STACK and soft >= 0 else widest, widest)
        else:
            _limit(number, soft, hard)
    go_to(launch.cwd)
    os.umask(launch.umask)


def words_of(launch: Launch) -> list[bytes]:
    """Its command line, which a program may have wiped out."""
    words = [*launch.argv] or [b""]
    return [words[0] or launch.exe, *words[1:]]


def go_to(folder: bytes) -> None:
    """The folder that a process was in, which can have been removed."""
    try:
        os.chdir(folder)
    except PermissionError:                # shut since it went there
        with opened_up([folder], inside=True):
            os.chdir(folder)
    except FileNotFoundError:
        if not folder.endswith(GONE):
            raise
        removed = _removed_folder(os.O_PATH)
        os.fchdir(removed)
        os.close(removed)


def _removed_folder(flags: int) -> int:
    """One without a name, in which nothing can be made."""
    path = tempfile.mkdtemp()
    try:
        return os.open(path, flags)
    finally:
        os.rmdir(path)


def _limit(number: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):          # what a user may not raise again: the soft limit at least
        try:
            resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        except (OSError, ValueError):
            return


def raise_limit() -> tuple[tuple[int, int], int]:
    """Of the number of descriptors, as far as it goes: what it was, and a number out of the way of all."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    return limit, min(_HIGH, limit[1] // 2) if limit[1] > 0 else _HIGH


def hold(entries: Iterable[DescriptorEntry], base: int) -> None:
    """Numbers out of the way that programs have: nothing else is opened there."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for number in {each.descriptor for each in entries if each.descriptor >= base}:
        try:
            got = fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, number)
        except OSError:                    # taken, as all are up to the limit, or beyond that: nothing else comes there
            continue
        if got != number:                  # something is
            os.close(got)
    os.close(nothing)


def put_all(entries: Iterable[DescriptorEntry], given: dict[int, int], paths: dict[int, bytes]) -> None:
    """In the process itself. What is open already is out of the way first, the rest is opened into place, from the last
    number on: for all of them twice there may be no room, and the first are this process's own.

    given: those that are open, out of the way, by the number that they are to have.
    """
    entries = list(entries)
    limit, base = raise_limit()
    hold(entries, base)
    own = {each.descriptor: up(open_one(each, paths), base) for each in entries
           if each.kind == "standard" and each.same_as < 0 and each.descriptor not in given}
    for each in sorted(entries, key=lambda each: (each.same_as >= 0, -each.descriptor)):
        at = each.descriptor
        source = each.same_as if each.same_as >= 0 else given.get(at, own.get(at, -1))
        if source >= 0:
            os.dup2(source, at)            # close on exec comes in the program itself
            continue
        opened = open_one(each, paths)
        if opened == at:
            os.set_inheritable(at, True)
        else:
            os.dup2(opened, at)
            os.close(opened)
    for high in own.values():
        os.close(high)
    for fd in {0, 1, 2} - {each.descriptor for each in entries}:
        try:
            os.close(fd)
        except OSError:
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    for each in entries:
        lock_all(each.descriptor, each)


def lock_all(fd: int, entry: DescriptorEntry) -> None:
    for lock in file_locks.of(entry):
        try:
            file_locks.take(fd, lock)
        except OSError:
            child_loop.say(str(file_locks.HeldElsewhere(entry.path)))
            raise


def up(fd: int, base: int) -> int:
    """Out of the way."""
    high: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)
    os.close(fd)
    return high


def open_one(entry: DescriptorEntry, paths: dict[int, bytes]) -> int:
    """One that needs no other process."""
    if entry.kind in ("followed", "file"):
        return _reopen(paths.get(entry.descriptor, entry.path), entry.flags, entry.position)
    if entry.kind == "standard":
        try:
            return os.dup(entry.position)
        except OSError:
            return os.open(os.devnull, os.O_RDWR)
    if entry.kind == "eventfd":
        return _counter(entry)
    if entry.kind == "epoll":
        return int(lib.mm_epoll())
    if entry.kind == "inotify":            # the preload library watches again (restore.c)
        return int(lib.mm_inotify(entry.flags & os.O_NONBLOCK))
    if entry.kind == "closed":
        return _closed(entry.data)
    if entry.kind == "signalfd":
        mask = int(proc_inspect.numbers(entry.data, "sigmask")[0], 16)
        return int(lib.mm_signalfd(mask, entry.flags & os.O_NONBLOCK))
    return _timer(entry)


def _counter(entry: DescriptorEntry) -> int:
    """Its beginning has 32 bits, the rest of its 64 is written."""
    semaphore = proc_inspect.numbers(entry.data, "eventfd-semaphore") == ["1"]         # known since Linux 6.5
    fd = os.eventfd(0, entry.flags & os.O_NONBLOCK | (os.EFD_SEMAPHORE if semaphore else 0))
    os.eventfd_write(fd, int(proc_inspect.numbers(entry.data, "eventfd-count")[0], 16))
    return fd


def _closed(what: bytes) -> int:
    """The number stays taken; a terminal says that it was hung up, of a device every call says EBADF."""
    if what == b"terminal":
        other, fd = os.openpty()
        os.close(other)
        return fd
    return os.open(os.devnull, os.O_PATH)


def _reopen(path: bytes, flags: int, position: int) -> int:
    folder = 0 if flags & os.O_TMPFILE == os.O_TMPFILE else flags & os.O_DIRECTORY   # which is a part of the other
    flags = flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_TMPFILE | os.O_NOFOLLOW) | folder | os.O_NOCTTY
    try:
        fd = os.open(path, flags)
    except PermissionError:                # created without the permission that its own creator's descriptor has
        with opened_up([os.path.realpath(path)], file_bits=stat.S_IRUSR | stat.S_IWUSR):
            fd = os.open(path, flags)
    except FileNotFoundError:              # of a file nobody saves that
        if not path.endswith(GONE):
            raise
        fd = _removed_folder(flags)
    try:
        os.lseek(fd, position, os.SEEK_SET)
    except OSError:
        pass                               # a device without positions
    return fd


def watch(entry: DescriptorEntry, source: Callable[[Place], int]) -> None:
    """The epoll set as it was: descriptor, events, data; first those that have fired once and are not to do it again.
    source: where a place's descriptor is here."""
    lines = [line.split() for line in proc_inspect.numbers(entry.data, "tfd")]
    for words in sorted(lines, key=lambda words: int(words[2], 16) & _POLLED != 0):
        number, event = int(words[0]), struct.pack("=IQ", int(words[2], 16), int(words[4], 16))
        if words[-1].startswith(_AT):
            _watch_as(number, source(place_of(words[-1].removeprefix(_AT))), entry.descriptor, event)
        else:
            lib.mm_epoll_add(entry.descriptor, number, event)


def watched_at(entry: DescriptorEntry) -> set[Place]:
    """Of a set: places of descriptors that it knows by numbers which are not theirs."""
    lines = proc_inspect.numbers(entry.data, "tfd") if entry.kind == "epoll" else []
    return {place_of(word.removeprefix(_AT)) for line in lines for word in line.split()[-1:] if word.startswith(_AT)}


def place_of(text: str) -> Place:
    pid, fd = text.split(":")
    return int(pid), int(fd)


def _watch_as(number: int, source: int, epoll: int, event: bytes) -> None:
    """A descriptor has the number for a moment, whoever has it before and after."""
    limit, base = raise_limit()
    held = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base) for fd in (source, epoll)]
    try:
        before = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, base)
    except OSError:
        before = -1
    os.dup2(held[0], number)
    lib.mm_epoll_add(held[1], number, event)
    if before >= 0:
        os.dup2(before, number)
        held.append(before)
    else:
        os.close(number)
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def _timer(entry: DescriptorEntry) -> int:
    info = entry.data
    clock, ticks = (int(proc_inspect.numbers(info, name)[0]) for name in ("clockid", "ticks"))
    left, interval, how = timers.pair(info, "it_value"), timers.pair(info, "it_interval"), 0
    if proc_inspect.numbers(info, "until"):
        left, how = timers.pair(info, "until"), timers.how(info)
    elif ticks and not any(left):          # it has gone off, and the kernel waits for whoever reads that
        left = interval
    fd = int(lib.mm_timerfd(clock, entry.flags & os.O_NONBLOCK, how, struct.pack("=qqqq", *interval, *left)))
    if ticks:
        fcntl.ioctl(fd, _SET_TICKS, struct.pack("=Q", ticks))
    return fd


# -- pipes: both ends at once ------------------------------------------------------------------------


def pipes(entries: Iterable[DescriptorEntry], base: int) -> list[int]:
    """Open descriptors, one for each entry; nobody else has an end of any."""
    entries = list(entries)
    ends: dict[bytes, tuple[int, int]] = {}
    for each in entries:
        if each.path not in ends:
            ends[each.path] = _pipe(each.path, base)
    for each in entries:
        writer = ends[each.path][1]
        if each.position:
            fcntl.fcntl(writer, _SET_SIZE, each.position)
        elif len(each.data) > _USUAL_SIZE:
            fcntl.fcntl(writer, _SET_SIZE, len(each.data))
    for each in entries:
        if each.data and os.write(ends[each.path][1], each.data) != len(each.data):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
    found = [_end(each, ends[each.path]) for each in entries]
    for pair in ends.values():
        for fd in pair:
            os.close(fd)
    return [up(fd, base) for fd in found]


def _pipe(path: bytes, base: int) -> tuple[int, int]:
    if path.startswith(b"/") and not path.endswith(GONE):
        fd = up(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), base)
        return fd, up(os.dup(fd), base)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    return up(reader, base), up(writer, base)


def _end(entry: DescriptorEntry, pair: tuple[int, int]) -> int:
    """A description of its own."""
    way = entry.flags & os.O_ACCMODE
    source = pair[1] if way == os.O_WRONLY else pair[0]
    flags = entry.flags & (os.O_NONBLOCK | os.O_DIRECT | os.O_APPEND) | os.O_CLOEXEC
    return os.open(f"/proc/self/fd/{source}", way | flags)
