"""A program continues from an index: with its memory where the index holds it, else its command from the start.

The files are at the index already. The new process is one of the same program file, started as the old one was; it
finds its descriptors open, and the preload library fills its memory before anything of it runs
(shim_c/src/memory/restore.c).
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
from dataclasses import dataclass

from metamori._area import ffi, lib
from metamori.errors import Damaged, MetamoriError
from metamori.runtime.area import launch_record
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.lifecycle import child_loop, socket_restart
from metamori.runtime.memory import file_locks, images, proc_inspect
from metamori.store.format.records import DescriptorEntry, Launch, MappedEntry, MemoryEntry, Meta
from metamori.store.read import image
from metamori.store.read.state import State
from metamori.store.read.store import Store

_HIGH = 100000
_LOCK = 24                                 # sizeof(struct mm_came_lock)


class CannotComeBack(MetamoriError):
    """The memory of an index cannot go on here."""


def chain(store: Store, index: int) -> list[int]:
    """The indexes whose images make up an index's memory, the complete one first."""
    found = [index]
    while base := store.meta(found[-1]).memory[0].base:
        found.append(base)
    return found[::-1]


def check(store: Store, index: int) -> MemoryEntry:
    """Before anything is touched. CannotComeBack: another kernel, processor, library or user than recorded; Damaged: an
    image of the chain is not what its record says."""
    entry = store.meta(index).memory[0]
    why = images.no_return() or proc_inspect.machine_refuses(entry.machine)
    if not why and (entry.uid, entry.gid) != (os.geteuid(), os.getegid()):
        why = f"it ran as user {entry.uid}, group {entry.gid}"
    if not why:
        why = ", ".join(f"{os.fsdecode(each.path)} is not what it was" for each in _changed_files(store, index, entry))
    if why:
        raise CannotComeBack(f"the memory of checkpoint {index} cannot be continued: {why}")
    for each in chain(store, index):       # the program's own side believes every byte of them
        memory = store.meta(each).memory[0]
        if wrong := image.check(store.door, store.layout.memory(each, memory.process), memory):
            raise Damaged(f"the memory of checkpoint {index} cannot be continued: {wrong}")
    return entry


def check_free(entry: MemoryEntry) -> None:
    """Nobody has taken what the program had: locks, addresses. HeldElsewhere, InUse. Not while it is still alive."""
    file_locks.check(entry.descriptors)
    socket_restart.check(entry.descriptors, entry.cwd)


def _changed_files(store: Store, index: int, entry: MemoryEntry) -> list[MappedEntry]:
    """Files of the run are put back with the others and do not count."""
    names = store.state(index).names
    return [each for each in entry.mapped if each.path not in names and proc_inspect.changed(each)][:3]


def launch_of(store: Store, index: int) -> Launch:
    """How the run that continues from an index was started, for its own record."""
    return launch_record.of_index(store, index)


@dataclass(frozen=True)
class Start:
    """All that the new process needs before it begins."""

    launch: Launch
    environ: dict[bytes, bytes]
    descriptors: tuple[DescriptorEntry, ...] = ()
    paths: dict[int, bytes] | None = None   # of followed descriptors
    memory: bool = False


def prepare(session: Session, index: int, environ: dict[str, str]) -> Start:
    """With memory: the run area says how to come back. environ: what Metamori itself adds."""
    store, area = session.store, session.area
    meta = store.meta(index) if index else None
    added = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
    if meta is None or not meta.memory:
        launch = launch_record.of_index(store, index)
        return Start(launch, {**_environ(launch.env), **added})
    entry = meta.memory[0]
    paths = _followed(session, meta, entry)
    _comeback(store, area, index, entry)
    launch = Launch(entry.exe, entry.argv, entry.env, entry.cwd, entry.umask, entry.limits)
    launch_record.note(area, launch, "process")
    return Start(launch, {**_environ(entry.env), **added}, entry.descriptors, paths, True)


def _environ(lines: tuple[bytes, ...]) -> dict[bytes, bytes]:
    return dict(line.split(b"=", 1) for line in lines if b"=" in line)


def _followed(session: Session, meta: Meta, entry: MemoryEntry) -> dict[int, bytes]:
    """Where the file of each followed descriptor is now; one without a name is tracked again in the store."""
    state = session.store.state(meta.index)
    fits = {fd: fit for fit in meta.fits if fit.process == entry.process for fd in (fit.descriptor, *fit.dup_list)}
    found = {}
    for each in entry.descriptors:
        if each.kind == "followed" and each.same_as < 0:
            fit = fits.get(each.descriptor)
            inode = fit.inode if fit else 0
            names = state.paths(inode) if inode else []
            path = each.path.removesuffix(b" (deleted)")
            if names:
                found[each.descriptor] = path if path in names else names[0]
            else:
                found[each.descriptor] = (inode and _nameless(session, state, inode)) or path
    return found


def _nameless(session: Session, state: State, inode: int) -> bytes:
    """A file that only descriptors hold: the run area is told of it, as the run that unlinked it did."""
    area, store = session.area, session.store
    for slot in area.pifs():
        if area.pif(slot).object == inode:
            return store.layout.kept(area.kept_name(slot))
    name = next((kept.name for kept in store.head.kept if kept.inode == inode), b"%d" % inode)
    home = store.layout.kept(name)
    if not os.path.exists(home):
        return b""
    pif = state.pifs[inode]
    slot = area.new_pif(home, pif.filename)
    p = area.pif(slot)
    p.object, p.fresh_from, p.deleted = inode, pif.size, 1
    p.old_size, p.old_mtime_ns, p.old_mode, p.old_uid, p.old_gid = pif.size, pif.mtime_ns, pif.mode, pif.uid, pif.gid
    p.flags |= lib.MM_NAMELESS | lib.MM_KEPT | lib.MM_INDEXED
    area.touch_pif(slot)
    own = store.layout.kept(area.kept_name(slot))
    os.rename(home, own)
    return own


def _comeback(store: Store, area: Area, index: int, entry: MemoryEntry) -> None:
    """What the preload library reads in the new process (struct mm_comeback)."""
    images = [store.layout.memory(each, store.meta(each).memory[0].process) for each in chain(store, index)]
    held = file_locks.packed(entry.descriptors)
    data = struct.pack("=IIII", len(images), len(entry.descriptors), len(held) // _LOCK, 0) + held
    for each in entry.descriptors:
        data += struct.pack("=iiII", each.descriptor, each.same_as, each.close_on_exec, each.kind == "followed")
    data += b"".join(path + b"\0" for path in images)
    path = os.fsencode(os.path.join(area.path, "comeback"))
    with open(path, "wb") as file:
        file.write(data)
    memory = area.head.memory
    ffi.memmove(memory.path, path + b"\0", len(path) + 1)
    memory.tries, memory.came_back, memory.come_back, memory.come_from = 0, 0, 1, index


def become(start: Start) -> None:
    """In the child: everything as it was, then the program. Does not return; OSError."""
    launch = start.launch
    for number, (soft, hard) in enumerate(launch.limits):
        _limit(number, soft, hard)
    os.chdir(launch.cwd)
    os.umask(launch.umask)
    if start.memory:
        _open_all(start)
    os.execve(launch.exe, list(launch.argv), start.environ)


def _limit(number: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):          # what a user may not raise again: the soft limit at least
        try:
            resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        except (OSError, ValueError):
            return


def _open_all(start: Start) -> None:
    """Each at a number out of the way first, then into place: no order can go wrong."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    base = min(_HIGH, limit[1] // 2) if limit[1] > 0 else _HIGH
    opened: dict[int, int] = {}
    pipes: dict[bytes, tuple[int, int]] = {}
    for each in start.descriptors:
        if each.same_as < 0 and each.kind != "socket":
            opened[each.descriptor] = _up(_open(each, start.paths or {}, pipes), base)
    try:
        for fd, made in socket_restart.again(start.descriptors).items():
            opened[fd] = _up(made, base)
    except socket_restart.InUse as error:
        child_loop.say(str(error))
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
    for reader, writer in pipes.values():
        os.close(reader)
        os.close(writer)
    wanted = {each.descriptor for each in start.descriptors}
    for each in start.descriptors:
        source = opened[each.same_as if each.same_as >= 0 else each.descriptor]
        os.dup2(source, each.descriptor)   # close on exec comes in the program itself
    for fd in opened.values():
        os.close(fd)
    for each in start.descriptors:
        if each.kind == "epoll" and each.same_as < 0:
            _watch(each)
    for fd in {0, 1, 2} - wanted:
        try:
            os.close(fd)
        except OSError:
            pass
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    for each in start.descriptors:
        for lock in file_locks.of(each):
            try:
                file_locks.take(each.descriptor, lock)
            except OSError:
                child_loop.say(str(file_locks.HeldElsewhere(each.path)))
                raise


def _up(fd: int, base: int) -> int:
    high: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, base)
    os.close(fd)
    return high


def _open(entry: DescriptorEntry, paths: dict[int, bytes], pipes: dict[bytes, tuple[int, int]]) -> int:
    if entry.kind in ("followed", "file"):
        return _reopen(paths.get(entry.descriptor, entry.path), entry.flags, entry.position)
    if entry.kind == "standard":
        try:
            return os.dup(entry.position)
        except OSError:
            return os.open(os.devnull, os.O_RDWR)
    if entry.kind == "pipe":
        if entry.path not in pipes:
            pipes[entry.path] = os.pipe()
        reader, writer = pipes[entry.path]
        if entry.data:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, max(len(entry.data), 65536))
            os.write(writer, entry.data)
        end = os.dup(writer if entry.flags & os.O_ACCMODE == os.O_WRONLY else reader)
        os.set_blocking(end, not entry.flags & os.O_NONBLOCK)
        return end
    if entry.kind == "eventfd":
        return os.eventfd(int(proc_inspect.numbers(entry.data, "eventfd-count")[0], 16), entry.flags & os.O_NONBLOCK)
    if entry.kind == "epoll":
        return int(lib.mm_epoll())
    if entry.kind == "closed":
        return _closed(entry.data)
    if entry.kind == "signalfd":
        mask = int(proc_inspect.numbers(entry.data, "sigmask")[0], 16)
        return int(lib.mm_signalfd(mask, entry.flags & os.O_NONBLOCK))
    return _timer(entry)


def _closed(what: bytes) -> int:
    """The number stays taken; a terminal says that it was hung up, of a device every call says EBADF."""
    if what == b"terminal":
        other, fd = os.openpty()
        os.close(other)
        return fd
    return os.open(os.devnull, os.O_PATH)


def _reopen(path: bytes, flags: int, position: int) -> int:
    folder = 0 if flags & os.O_TMPFILE == os.O_TMPFILE else flags & os.O_DIRECTORY   # which is a part of the other
    flags = flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_TMPFILE | os.O_NOFOLLOW) | folder
    try:
        fd = os.open(path, flags | os.O_NOCTTY)
    except PermissionError:                # created without the permission that its own creator's descriptor has
        mode = os.stat(path).st_mode
        os.chmod(path, mode | 0o600)
        try:
            fd = os.open(path, flags)
        finally:
            os.chmod(path, mode & 0o7777)
    try:
        os.lseek(fd, position, os.SEEK_SET)
    except OSError:
        pass                               # a device without positions
    return fd


def _watch(entry: DescriptorEntry) -> None:
    """The epoll set as it was: descriptor, events, data."""
    for line in proc_inspect.numbers(entry.data, "tfd"):
        words = line.split()
        event = struct.pack("=IQ", int(words[2], 16), int(words[4], 16))
        lib.mm_epoll_add(entry.descriptor, int(words[0]), event)


def _timer(entry: DescriptorEntry) -> int:
    info = entry.data
    clock = int(proc_inspect.numbers(info, "clockid")[0])

    def pair(name: str) -> tuple[int, int]:
        seconds, nanoseconds = proc_inspect.numbers(info, name)[0].strip("()").split(",")
        return int(seconds), int(nanoseconds)

    value = struct.pack("=qqqq", *pair("it_interval"), *pair("it_value"))
    return int(lib.mm_timerfd(clock, entry.flags & os.O_NONBLOCK, value))
