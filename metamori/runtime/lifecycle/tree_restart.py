"""The processes of a run made again, each by its parent, so that every wait, group and session is as it was.

The first process opens what several share, then it forks its children, they theirs, and each becomes its program, which
the preload library fills (shim_c/src/memory/restore.c, together.c). The numbers that the kernel gave are in the run
area's list (struct mm_tree). If one of them fails, none comes back.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import struct
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle import (
    child_loop,
    descriptor_restart,
    queue_restart,
    segment_restart,
    socket_restart,
    sysv_restart,
    terminal_restart,
)
from metamori.runtime.lifecycle.descriptor_restart import Place, in_place, open_one, pipes, put_all, up, words_of
from metamori.runtime.memory import file_locks, queues, sysv, watches
from metamori.runtime.memory.family import GONE
from metamori.runtime.memory.stopped import KNOWN, is_stopped
from metamori.store.format.records import DescriptorEntry, FamilyEntry, Launch, MemoryEntry, Meta
from metamori.store.io.os_io import opened_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from metamori._area import mm_member

_LOCK = 24                                 # sizeof(struct mm_came_lock), and of struct mm_came_notice
_PATIENCE_S = 30.0
_NO_LIMIT = 2**64 - 1
_TAKES_ORPHANS = 36                       # PR_SET_CHILD_SUBREAPER
_LATE = resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_AS     # set when all are back: MM_LATE_LIMITS
_REMOVED, _WHOLE = 1, 2                    # MM_CAME_... of shim_c/src/memory/comeback.h


def fork_as(number: int) -> int:
    """os.fork; the child has this number, if it is free and we may choose (CAP_CHECKPOINT_RESTORE): then locks by which
    the kernel knows their owner come back. A C library before 2.25 remembers the number that its own fork gave."""
    if _translates():
        return os.fork()
    libc = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ").split(".")
    if [int(each) for each in libc[:2] if each.isdigit()] >= [2, 25] and len(os.listdir("/proc/self/task")) == 1:
        child: int = lib.mm_fork_as(number)
        if child >= 0:
            return child
    return os.fork()


def _translates() -> bool:
    """As for a user who may not choose."""
    return os.environ.get("METAMORI_MEMORY_NUMBERS") == "new"


def descriptions(meta: Meta) -> list[tuple[DescriptorEntry, bytes]]:
    """Descriptors of all processes, one for each open description, with the folder that the process was in."""
    again = {(process.pid, each.descriptor) for process in meta.family for each in process.shared}
    return [(each, entry.cwd) for entry in meta.memory for each in entry.descriptors
            if each.same_as < 0 and (entry.pid, each.descriptor) not in again]


@dataclass(frozen=True)
class Member:
    """A process that comes back. paths: of tracked descriptors; images: of its memory, the complete one first."""

    entry: MemoryEntry
    launch: Launch
    environ: dict[bytes, bytes]
    paths: dict[int, bytes]
    images: tuple[bytes, ...]

    @property
    def descriptors(self) -> list[DescriptorEntry]:
        """Those that it has itself."""
        return [each for each in self.entry.descriptors if each.descriptor >= 0]


@dataclass
class Tree:
    """All of them. Only in a process that is to become the first."""

    area: Area
    meta: Meta
    members: tuple[Member, ...]
    given: dict[Place, int] = field(default_factory=dict)
    objects: dict[Place, int] = field(default_factory=dict)    # of System V
    queues: dict[Place, int] = field(default_factory=dict)     # of POSIX
    base: int = 0                          # descriptors from here on are out of the way
    terminals: dict[int, tuple[int, int]] = field(default_factory=dict)    # by session: master, group in the foreground

    def __post_init__(self) -> None:
        pids = [each.entry.pid for each in self.members]
        self.family = self.meta.family or tuple(FamilyEntry(pid, 0, 0, 0) for pid in pids)
        self.by_pid = {process.pid: process for process in self.family}
        self.member = dict(zip(pids, self.members, strict=True))
        tree = self.area.head.tree
        numbers = [process.pid for process in self.family]
        said = [each.data for member in self.members for each in member.entry.descriptors if each.kind == "standard"]
        group, its, *settings = next(filter(None, said), b"0 0").split()
        self.forward, outer = int(group), int(its)
        self.outer = next((each.group for each in self.family if each.group not in numbers), outer)
        numbers += [self.outer] if self.outer else []
        for place, number in enumerate(numbers):
            each = tree.member[place]
            each.known, each.real, each.placed, each.comes_back, each.tries = number, 0, 0, 0, 0
            each.stops = each.unseen = each.parent = each.may_stop = each.stood = each.had_turn = 0
        tree.back = tree.lost = tree.opened = tree.ready = 0
        ffi.buffer(tree.terminal)[:] = terminal_restart.to_be_given(*settings)
        tree.translates = _translates()
        tree.watching = any(each.kind == "inotify" for member in self.members for each in member.entry.descriptors)
        tree.processes, tree.count = len(self.members), len(numbers)
        self.place = {number: place for place, number in enumerate(numbers)}
        for process in self.family:
            if is_stopped(process.status):
                slot = self._slot(process.pid)
                slot.stops = signal.SIGSTOP if process.status == KNOWN else os.WSTOPSIG(process.status)
                slot.unseen, slot.parent = process.status != KNOWN, process.parent

    def _slot(self, number: int) -> mm_member:
        return self.area.head.tree.member[self.place[number]]

    def become(self) -> None:
        """Does not return; OSError."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)   # else nothing would be left of one that ends
        try:
            self._open_together()
            if self.outer:
                outer = self._slot(self.outer)
                outer.real, outer.placed = os.getpgrp(), 1
            self._slot(self.family[0].pid).real = os.getpid()
            self._become(self.family[0])
        except socket_restart.InUse as error:
            self.area.head.tree.lost = 1
            self._drop()
            child_loop.say(str(error))
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
        except BaseException:
            self.area.head.tree.lost = 1
            self._drop()
            raise

    def _drop(self) -> None:
        sysv_restart.drop(self.objects)
        queue_restart.drop(self.queues)

    # -- the family ----------------------------------------------------------------------------------

    def _children(self, process: FamilyEntry) -> list[FamilyEntry]:
        return [each for each in self.family if each.parent == process.pid and not self._is_taken(each)]

    def _is_taken(self, process: FamilyEntry) -> bool:
        """An orphan that its parent has taken (PR_SET_CHILD_SUBREAPER), from a session of which that is not."""
        parent = self.by_pid.get(process.parent)
        if parent is None or process.session in (0, process.pid, parent.session) or _is_over(process):
            return False
        while parent and parent.pid != process.session:
            parent = self.by_pid.get(parent.parent)
        return parent is None

    def _become(self, process: FamilyEntry) -> None:
        children = self._children(process)
        leads_session = process.session == process.pid
        before = [each for each in children if leads_session and process.session not in self._sessions(each)]
        is_first = process is self.family[0]
        if any(each.parent == process.pid and self._is_taken(each) for each in self.family):
            import ctypes  # which few programs need

            ctypes.CDLL(None).prctl(_TAKES_ORPHANS, 1, 0, 0, 0)    # its own image says whether it does so later
        master, foreground = self.terminals.get(process.session, (-1, 0))
        for each in before:
            self._fork(each)
        if is_first:
            self._fork_orphans(0)
        if leads_session:
            os.setsid()
            if master >= 0:
                terminal_restart.take(master)
        for each in children:
            if each not in before:
                self._fork(each)
        if leads_session:
            self._fork_orphans(process.session)
        elif process.group == process.pid:
            os.setpgid(0, 0)               # after the children: to a group of another namespace nobody can go back
        if process.pid == foreground and not leads_session:
            terminal_restart.come_forward()
        elif process.pid == self.forward:
            terminal_restart.take_over(self._slot(self.outer).real)
        self._slot(process.pid).placed = 1
        self._join_group(process)
        for each in children:
            if each.status == GONE:        # whoever it led has come
                os.waitpid(self._slot(each.pid).real, 0)
            elif _has_ended(each):         # before the program, which may ask, is there
                os.waitid(os.P_PID, self._slot(each.pid).real, os.WEXITED | os.WNOWAIT)
        if process.status == GONE:
            self._await_followers(process.pid)
            os._exit(0)
        if _has_ended(process):
            _end_as(process.status)
        self._become_program(self.member[process.pid])

    def _sessions(self, process: FamilyEntry) -> set[int]:
        return {process.session}.union(*map(self._sessions, self._children(process)))

    def _fork(self, process: FamilyEntry) -> None:
        child = fork_as(process.pid)
        self._slot(process.pid).real = child or os.getpid()    # from here on it is missed when it is killed
        if child == 0:
            self._become(process)

    def _fork_orphans(self, session: int) -> None:
        """Of a session, by its leader; those that lead one themselves by the first."""
        for each in self.family[1:]:
            if (not each.parent or self._is_taken(each)) and \
                    session == (0 if each.session == each.pid else each.session):
                self._orphan(each)

    def _orphan(self, process: FamilyEntry) -> None:
        """Its parent has ended: it is nobody's child here."""
        between = os.fork()
        if between == 0:
            self._fork(process)
            os._exit(0)
        _, status = os.waitpid(between, 0)
        if status:
            raise OSError(f"process {process.pid} does not come back")

    def _join_group(self, process: FamilyEntry) -> None:
        if process.group in (0, process.pid):
            return
        leader = self._slot(process.group)
        self._await(lambda: leader.placed != 0, process.group)
        if leader.real != os.getpgrp():    # a parent may have its own since
            os.setpgid(0, leader.real)

    def _await_followers(self, number: int) -> None:
        """All whose group a number is are in it."""
        own = os.getpid()
        for each in self.family:
            if each.group == number and (each.status == -1 or is_stopped(each.status)):
                self._await(partial(_is_led_by, self._slot(each.pid), own), each.pid)

    def _await(self, condition: Callable[[], bool], number: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if self.area.head.tree.lost or time.monotonic() > deadline:
                raise OSError(f"process {number} does not come back")
            time.sleep(0.001)

    # -- one process -----------------------------------------------------------------------------------

    def _become_program(self, member: Member) -> None:
        entry = member.entry
        in_place(member.launch, but=_LATE)
        given = {fd: high for (pid, fd), high in self.given.items() if pid == entry.pid}
        for each in member.descriptors:
            if each.kind == "pidfd" and each.same_as < 0:
                given[each.descriptor] = self._pidfd(int(each.data), each.flags & os.O_NONBLOCK)
        put_all(member.descriptors, given, member.paths)
        shared = {each.descriptor for each in self.by_pid[entry.pid].shared}
        for each in member.descriptors:
            if each.kind == "epoll" and each.same_as < 0 and each.descriptor not in shared:
                descriptor_restart.watch(each, partial(self._source, entry.pid))
        self._slot(entry.pid).comes_back = 1
        os.execve(member.launch.exe, words_of(member.launch), member.environ)

    def _source(self, pid: int, place: Place) -> int:
        return place[1] if place[0] == pid and place[1] >= 0 else self.given[place]

    def _pidfd(self, number: int, flags: int) -> int:
        """0: of one that was waited for. Each has its own: it has no position that others could share."""
        if number:
            process = self._slot(number)
            self._await(lambda: process.real != 0, number)
            return up(os.pidfd_open(process.real, flags), self.base)
        ended = os.fork()
        if ended == 0:
            os._exit(0)
        fd = up(os.pidfd_open(ended, flags), self.base)
        os.waitpid(ended, 0)
        return fd

    def _note(self, member: Member, segments: dict[Place, int]) -> None:
        """What the preload library reads in the new process (struct mm_comeback)."""
        entry = member.entry
        held = file_locks.packed(entry.descriptors)
        notices = queues.notices(entry.descriptors)
        shared = {each.descriptor for each in self.by_pid[entry.pid].shared}
        watched, watched_paths = watches.packed(each for each in entry.descriptors if each.descriptor not in shared)
        counts = (len(member.images), len(member.descriptors), len(held) // _LOCK, len(segments), len(notices) // _LOCK,
                  len(watched_paths))
        limits = [each & _NO_LIMIT for number in _LATE for each in entry.limits[number]]
        data = struct.pack("=IIIIII6Q", *counts, *limits) + held + notices + watched
        for each in member.descriptors:
            data += struct.pack("=iiII", each.descriptor, each.same_as, each.close_on_exec, each.kind == "followed")
        known = {(each.kind, each.inode): each for each in self.meta.segments}
        own: dict[tuple[int, ...], int] = {tuple(map(int, each.data.split()[:2])): each.descriptor
                                           for each in member.descriptors if each.kind == "segment" and each.data}
        for place, fd in segments.items():
            this = known[place]
            how = _REMOVED * (this.kind == sysv.MEMORY and this.mode & sysv.REMOVED != 0)
            how |= _WHOLE * segment_restart.is_whole(this)
            data += struct.pack("=QQiIiI", *place, fd, how, own.get(place, -1), segment_restart.late_seals(this))
        data += b"".join(path + b"\0" for path in (*member.images, *watched_paths))
        with open(os.path.join(self.area.path, f"comeback.{entry.pid}"), "wb") as file:
            file.write(data)

    # -- what several have open ------------------------------------------------------------------------

    def _open_together(self) -> None:
        """In the first process, before there is another."""
        _, base = descriptor_restart.raise_limit()
        self.base = base
        descriptor_restart.hold((each for member in self.members for each in member.descriptors), base)
        segments = segment_restart.made(self.meta.segments, base)
        self.objects = sysv_restart.made(self.area, self.meta.segments)
        self.queues = queue_restart.made(self.area, self.meta.segments, base)
        for fd in segments.values():       # the programs map them
            os.set_inheritable(fd, True)
        for member in self.members:
            self._note(member, {**segments, **self.objects})
        shared = {(process.pid, each.descriptor): (each.pid, each.other)
                  for process in self.family for each in process.shared}
        first = set(shared.values())
        entries = {(pid, each.descriptor): each for pid, member in self.member.items()
                   for each in member.entry.descriptors if each.same_as < 0 and (pid, each.descriptor) not in shared}
        ends = {place: each for place, each in entries.items() if each.kind == "pipe"}
        self.given.update(zip(ends, pipes(ends.values(), base), strict=True))
        ends = {place: each for place, each in entries.items() if each.kind == "terminal"}
        self.given.update(zip(ends, terminal_restart.made(list(ends.values()), base), strict=True))
        self.terminals = terminal_restart.owners((each, self.given[place]) for place, each in ends.items())
        for place, each in entries.items():
            if each.kind == "segment":
                self.given[place] = up(_segment(each, {**segments, **self.queues}), base)
        sockets = {place: (each, self.member[place[0]].entry.cwd)
                   for place, each in entries.items() if each.kind == "socket"}
        sent = {shared.get(place, place) for each, _ in sockets.values() for place in socket_restart.sent_to(each)}
        sent |= {shared.get(place, place) for at, each in entries.items()
                 for place in descriptor_restart.watched_at(each) if place[0] != at[0]}
        for place, each in entries.items():
            wanted = place in sent or (place in first and each.kind != "standard")
            if wanted and place not in self.given and place not in sockets:
                self.given[place] = up(open_one(each, self.member[place[0]].paths), base)
                if place[1] < 0:           # else it is locked when its process has it
                    descriptor_restart.lock_all(self.given[place], each)
        socket_restart.again(sockets, base, self.given, shared)
        for place, of in shared.items():
            self.given[place] = self.given[of]


def _segment(entry: DescriptorEntry, segments: dict[Place, int]) -> int:
    """A description of its own of the memory that was made for it."""
    kind, inode, *_ = map(int, entry.data.partition(b"\n")[0].split())
    path = b"/proc/self/fd/%d" % segments[kind, inode]
    flags = entry.flags & ~(os.O_NOFOLLOW | os.O_TMPFILE) | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except PermissionError:                # made with a mode that its own creator's descriptor is not bound by
        with opened_up([os.path.realpath(path)], file_bits=stat.S_IRUSR | stat.S_IWUSR):
            fd = os.open(path, flags)
    os.lseek(fd, entry.position, os.SEEK_SET)
    return fd


def _is_over(process: FamilyEntry) -> bool:
    return process.status != -1 and not is_stopped(process.status)


def _has_ended(process: FamilyEntry) -> bool:
    """And its parent has not waited for it yet."""
    return process.status >= 0 and not is_stopped(process.status)


def _is_led_by(process: mm_member, leader: int) -> bool:
    return process.real != 0 and os.getpgid(process.real) == leader


def _end_as(status: int) -> None:
    number = status & 0x7f
    if number:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    os._exit(status >> 8 & 0xff)
