"""What processes have open whose memory is saved: each descriptor, and how it comes back.

All processes of a run are looked at together: a pipe or a socket leads out of it unless one of them has the other end,
or nobody has. Whatever could not come back is refused, while nothing has been changed yet.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import struct
import termios
from collections.abc import Callable, Collection, Mapping, Sequence

from metamori._area import lib
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.nameless import KIND as NAMELESS
from metamori.runtime.memory.nameless import SECRET, Nameless, another_name, has_no_name
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.store.format.records import DescriptorEntry

TYPE_CHECKING = False
if TYPE_CHECKING:                          # which few programs need
    from typing import NamedTuple

    from metamori.runtime.memory.proc_look import ProcLook, SeenFd
    from metamori.runtime.memory.socket_connections import Inside
    from metamori.runtime.memory.socket_connections import Sent as Message
    from metamori.store.format.records import DescriptorKind
else:
    from metamori.tables.record import NamedTuple

_CLOEXEC = 0o2000000
_TERMINALS = (4, *range(136, 144))         # the machine's own, and those of windows and logins
_MEMORY = (b"/memfd:", b"/dev/shm/")
_ACCESS = os.O_ACCMODE
_NOTHING = 0, 0
QUEUE = 6                                  # kind of memory that processes share: a message queue of POSIX (queues.py)
_OF_A_PROCESS = re.compile(rb"/proc/[0-9]")
_QUEUE_SIZE = 80                           # of what the kernel has to say of one
_SET_SIZE = 1031                           # F_SETPIPE_SZ


class Followed(NamedTuple):
    """A descriptor that the run knows. tracked: its file is; named: it has a name. files: device and inode of what it
    may lead to; where the kernel says another, the C library closed it unseen. position -1: the kernel's."""

    fit: int
    tracked: bool
    named: bool
    files: set[tuple[int, int]]
    position: int


class Descriptions:
    """Open descriptions, each by the descriptor of it that was met first. The kernel has an order of them."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[bytes, int], list[tuple[int, int]]] = {}

    def met(self, path: bytes, flags: int, pid: int, fd: int) -> tuple[int, int]:
        """Process and descriptor that were the first: these, where no other was met before."""
        key = path, flags & _ACCESS        # which nobody can change
        alike = self._by_path.get(key)
        if alike is None:
            self._by_path[key] = [(pid, fd)]
            return pid, fd
        low, high = 0, len(alike)
        while low < high:
            middle = (low + high) // 2
            order = lib.mm_order_of_descriptions(pid, fd, *alike[middle])
            if not order:
                return alike[middle]
            low, high = (low, middle) if order == 1 else (middle + 1, high)
        alike.insert(low, (pid, fd))
        return pid, fd


class Open:
    """One descriptor as /proc shows it. standard: which of the descriptors that the run inherited this is, -1 none."""

    __slots__ = ("close_on_exec", "fd", "flags", "info", "path", "pid", "position", "st", "standard")
    is_sent = False                        # and in no process (sent.py)
    place = ""                             # where one that is comes back

    def __init__(self, pid: int, seen: SeenFd) -> None:
        self.pid, self.standard = pid, -1
        self.fd, self.path, self.st, self.info, self.position, flags = seen
        self.close_on_exec, self.flags = flags & _CLOEXEC != 0, flags & ~_CLOEXEC

    @property
    def link(self) -> bytes:
        return b"/proc/%d/fd/%d" % (self.pid, self.fd)

    @property
    def inode(self) -> int:
        return self.st.st_ino

    @property
    def is_place(self) -> bool:
        """A fifo's or a socket's, of which it is no end (O_PATH)."""
        return self.flags & os.O_PATH != 0 and stat.S_IFMT(self.st.st_mode) in (stat.S_IFIFO, stat.S_IFSOCK)

    @property
    def locks(self) -> bytes:
        """Its file locks, a line each as /proc has them."""
        return b"\n".join(line for line in self.info.splitlines() if line.startswith(b"lock:"))

    def entry(self, kind: DescriptorKind, same_as: int = -1, position: int | None = None, data: bytes = b"",
              ) -> DescriptorEntry:
        return DescriptorEntry(self.fd, kind, same_as, self.close_on_exec, self.flags,
                               self.position if position is None else position, self.path, data)


class Sent(Open):
    """One that no process has (sent.py), as this process sees it. number: of its entry; called: for people."""

    __slots__ = ("called", "number", "place")
    is_sent = True

    def __init__(self, called: str, seen: SeenFd) -> None:
        super().__init__(os.getpid(), seen)
        self.called, self.number, self.place = called, 0, ""


def of_process(look: ProcLook) -> list[Open]:
    return [Open(look.pid, seen) for seen in look.descriptors()]


def _identity(fd: int) -> tuple[int, int]:
    try:
        st = os.fstat(fd)
    except OSError:
        return _NOTHING
    return st.st_dev, st.st_ino


class Run:
    """What all processes have open. outside: what becomes of what leads out (refuse, close or stdio); known: a
    process's number as the run knows it; members: processes of the run, ended ones too; area: its folder; signals:
    somebody asked that a descriptor signal."""

    def __init__(self, processes: int, outside: str = "refuse", known: Callable[[int], int] = int, area: str = "",
                 signals: bool = False) -> None:
        self.watched = os.path.join(area, "inotify")
        self.signals = signals
        self.processes, self.outside, self.known = processes, outside, known
        self.members: Collection[int] = ()
        self.sockets: dict[int, Open] = {}     # by inode
        self.inside: Inside | None = None
        self.ends: dict[bytes, int] = {}       # of pipes: bits, of O_RDONLY and the others
        self.terminals: set[int] = set()       # by number: masters
        self.slaves: set[int] = set()
        self.emptied: set[bytes] = set()       # pipes whose content is in an entry
        self.empty: dict[bytes, int] = {}      # those known to hold nothing, and how much they can
        self.has_nameless = False              # regular files
        self.nameless = Nameless(())           # those mapped shared
        self.memory: list[Open] = []           # what may be shared memory
        self.queues: list[Open] = []           # of POSIX, one for each description of a process
        self.sent: dict[int, list[Message]] = {}   # in sockets, by inode: what came with descriptors
        self.on_the_way: list[Sent] = []       # those that no process has: open here
        self.ports: list[tuple[int, int]] = [] # process and descriptor: sockets whose port is to be free after a kill
        self.all: list[Open] = []
        self._met: Descriptions | None = None
        self._at: dict[int, dict[int, Open]] = {}      # by process and number, when somebody asked
        self._numbers = frozenset(map(int, os.listdir("/proc/self/fd")))
        self.inherited = {fd: _identity(fd) for fd in (0, 1, 2)}   # this process's own: device and inode
        self._given = {*self.inherited.values()}

    def add(self, opens: Sequence[Open]) -> None:
        """Of one of the processes; all are added before the first `entries`."""
        own = self.inherited
        self.all += opens
        self._at.clear()
        for this in opens:
            identity, fd = this.st[1:3], this.fd
            if fd not in own and not this.is_sent:
                own[fd] = _identity(fd) if fd in self._numbers else _NOTHING
            if identity in self._given or own.get(fd) == identity:
                this.standard = self._standard(this)
            kind = stat.S_IFMT(this.st.st_mode)
            if this.is_place:
                continue
            if kind == stat.S_IFIFO:
                self.ends[this.path] = self.ends.get(this.path, 0) | 1 << (this.flags & _ACCESS)
                if this.st.st_size:
                    self.empty[this.path] = this.st.st_size
            elif kind == stat.S_IFREG:
                self.memory.append(this)
                self.has_nameless = self.has_nameless or has_no_name(this.path)
            elif kind == stat.S_IFSOCK and (this.fd > 2 or (self.processes > 1 and this.standard < 0)):
                self.sockets[this.inode] = this
            elif this.path in proc_inspect.MASTERS:
                self.terminals.update(int(each) for each in proc_inspect.numbers(this.info, "tty-index"))
            elif kind == stat.S_IFCHR and os.major(this.st.st_rdev) in _TERMINALS:
                self.slaves.add(os.minor(this.st.st_rdev))

    def _standard(self, this: Open) -> int:
        identity, own = this.st[1:3], self.inherited
        for fd in (0, 1, 2) if this.is_sent else (0, 1, 2, this.fd):
            if own[fd] == identity and lib.mm_order_of_descriptions(this.pid, this.fd, os.getpid(), fd) == 0:
                return fd
        return -1

    def of_process(self, pid: int) -> dict[int, Open]:
        if pid not in self._at:
            self._at[pid] = {each.fd: each for each in self.all if each.pid == pid}
        return self._at[pid]

    def place(self, this: Open) -> str:
        """The first process, as the run knows it, and descriptor that its open description has."""
        first = self.first(this)
        return first.place if first.is_sent else f"{self.known(first.pid)}:{first.fd}"

    def first(self, this: Open) -> Open:
        """Of the same open description: this, where it is new."""
        if self._met is None:
            self._met = Descriptions()
            for each in self.all:
                self._met.met(each.path, each.flags, each.pid, each.fd)
        pid, fd = self._met.met(this.path, this.flags, this.pid, this.fd)
        return this if (pid, fd) == (this.pid, this.fd) else self.of_process(pid)[fd]

    def close(self) -> None:
        for each in self.on_the_way:
            os.close(each.fd)
        self.on_the_way = []

    def has_both_ends(self, path: bytes) -> bool:
        return self.ends[path] not in (1 << os.O_RDONLY, 1 << os.O_WRONLY)


def entries(run: Run, opens: Sequence[Open], followed: Mapping[int, Followed]) -> list[DescriptorEntry]:
    """All of a stopped process's descriptors. Refused."""
    seen = Descriptions()
    found: list[DescriptorEntry] = []
    by_fit: dict[int, int] = {}
    for this in opens:
        require_of_no_process(this)
        require_silent(this, run)
        known = followed.get(this.fd)
        # a removed folder's name is of no use
        removed = known and stat.S_ISDIR(this.st.st_mode) and this.path.endswith(b" (deleted)")
        mapped = run.nameless.of(this.path, this.st)
        if mapped and (known.named if known and known.tracked else this.st.st_nlink):
            raise another_name(this.path)
        is_file = this.path[:1] == b"/" and not this.path.startswith(_MEMORY)
        if known and not removed and not mapped and (known.tracked or is_file) \
                and (this.st.st_dev, this.st.st_ino) in known.files:
            locks = b"" if known.fit in by_fit else this.locks
            position = known.position if known.position >= 0 else this.position
            found.append(this.entry("followed", same_as=by_fit.get(known.fit, -1), data=locks, position=position))
            by_fit.setdefault(known.fit, this.fd)
            continue
        _, first = seen.met(this.path, this.flags, this.pid, this.fd)
        found.append(this.entry("file", same_as=first) if first != this.fd else entry_of(this, run))
    return found


def require_of_no_process(this: Open) -> None:
    """Refused: it is of a process. Nothing is there by that name when it is back, but it is soon closed, as a rule."""
    if this.standard < 0 and this.path.startswith(b"/proc/") and _OF_A_PROCESS.match(this.path):
        name = this.path.decode(errors="replace")
        raise NotBegun(f"descriptor {this.fd} is '{name}', of a process, which cannot come back with the program")


def require_silent(this: Open, run: Run) -> None:
    """Refused: signals come of it which do not come back; else the preload library sees to them (owners.c)."""
    unknown = this.flags & os.O_ASYNC and (this.is_sent or not run.signals)
    if unknown or b" LEASE " in this.info:
        what = "has a lease" if b" LEASE " in this.info else "signals when it can be used (O_ASYNC)"
        name = this.path.decode(errors="replace")
        raise Refused(f"descriptor {this.fd}, {name}, {what}, which cannot come back with the program")


def entry_of(this: Open, run: Run) -> DescriptorEntry:
    mode, standard = this.st.st_mode, this.standard
    readable = this.flags & _ACCESS == os.O_RDONLY
    if standard >= 0 and not (readable and stat.S_ISREG(mode)) and not (standard > 2 and stat.S_ISSOCK(mode)):
        return this.entry("standard", position=standard, data=_given(standard, run) if stat.S_ISCHR(mode) else b"")
    if this.is_place:
        return _place(this)
    if this.fd <= 2 and _is_of_outside(this, run):
        return this.entry("standard", position=this.fd)
    if stat.S_ISFIFO(mode):
        return _pipe(this, run)
    if stat.S_ISREG(mode) and this.path.startswith(_MEMORY):
        data = b"%d %d" % (1 if this.path.startswith(b"/memfd:") else 2, this.inode)
        return this.entry("segment", data=b"%b\n%b" % (data, this.locks) if this.locks else data)
    if number := run.nameless.of(this.path, this.st):
        if this.locks:
            raise Refused(f"descriptor {this.fd} is a deleted file, mapped and locked, which cannot come back")
        return this.entry("segment", data=b"%d %d" % (NAMELESS, number))
    if stat.S_ISREG(mode) and _is_queue(this):
        run.queues.append(this)
        return this.entry("segment", position=0, data=b"%d %d" % (QUEUE, this.inode))
    is_path = this.path.startswith(b"/") and this.path != SECRET   # of a namespace it is none
    if (stat.S_ISREG(mode) and this.st.st_nlink and is_path) or stat.S_ISDIR(mode):
        return this.entry("file", data=this.locks)
    if stat.S_ISSOCK(mode):
        return _socket(this, run)
    if stat.S_ISCHR(mode) and _remembers_nothing(this.st.st_rdev):
        return this.entry("file", position=0)
    for kind, path in (("eventfd", b"anon_inode:[eventfd]"), ("signalfd", b"anon_inode:[signalfd]")):
        if this.path == path:
            return this.entry(kind, position=0, data=this.info)  # type: ignore[arg-type]
    if this.path == b"anon_inode:[timerfd]":
        from metamori.runtime.memory import timers  # which few programs have

        return this.entry("timerfd", position=0, data=timers.look(this))
    if this.path == b"anon_inode:[eventpoll]":
        from metamori.runtime.memory import sets  # which few programs have

        return this.entry("epoll", position=0, data=sets.look(this, run))
    if this.path == b"anon_inode:inotify":
        from metamori.runtime.memory import watches  # which few programs need

        return this.entry("inotify", position=0, data=watches.look(this, run.watched))
    if this.path == b"anon_inode:[pidfd]" and not this.flags & os.O_EXCL:  # which is one of a thread
        number = int(proc_inspect.numbers(this.info, "Pid")[0])
        if number < 0 or number in run.members:
            return this.entry("pidfd", position=0, data=b"%d" % (run.known(number) if number > 0 else 0))
    name = f"'{this.path.decode(errors='replace')}'"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return _device(this, name, run)
    what = "io_uring" if b"io_uring" in this.path else name
    raise Refused(f"descriptor {this.fd} is {what}, which cannot come back with the program")


def _place(this: Open) -> DescriptorEntry:
    if not this.path.startswith(b"/") or not this.st.st_nlink or _has_lost_its_name(this):
        name = this.path.decode(errors="replace")
        raise Refused(f"descriptor {this.fd} is the place of '{name}', which cannot come back with the program")
    return this.entry("file", position=0)


def _has_lost_its_name(this: Open) -> bool:
    """And has another, which nobody knows. It may really be called so."""
    if not this.path.endswith(b" (deleted)"):
        return False
    try:
        st = os.lstat(this.path)
    except OSError:
        return True
    return (st.st_dev, st.st_ino) != this.st[1:3]


def _is_queue(this: Open) -> bool:
    """Of POSIX: its name is no path."""
    if this.path.rfind(b"/") or this.st.st_size != _QUEUE_SIZE or this.st.st_dev == os.stat("/").st_dev:
        return False
    try:
        with open(this.link, "rb", buffering=0) as file:
            return file.read(6) == b"QSIZE:"
    except PermissionError:
        raise Refused(f"descriptor {this.fd}, {this.path.decode(errors='replace')}, may not be looked at") from None


def _is_of_outside(this: Open, run: Run) -> bool:
    """At 0, 1 or 2: whoever continues gives its own, unless it is the run's."""
    mode = this.st.st_mode
    if stat.S_ISFIFO(mode):
        return not run.has_both_ends(this.path) and not _other_end_is_closed(this)
    if stat.S_ISSOCK(mode):
        return this.inode not in run.sockets
    if stat.S_ISCHR(mode) and os.major(this.st.st_rdev) in _TERMINALS:
        return os.minor(this.st.st_rdev) not in run.terminals and not _is_hung_up(this)
    return (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not _remembers_nothing(this.st.st_rdev)


def _socket(this: Open, run: Run) -> DescriptorEntry:
    from metamori.runtime.memory import socket_connections, sockets  # which few programs need

    run.inside = run.inside or socket_connections.inside(run.sockets, run.sent)
    found = sockets.look(this.pid, this.fd, run.inside)
    if found.why_not:
        why = f"descriptor {this.fd} is {found.what}, which {found.why_not}"
        raise NotBegun(why) if found.soon else Refused(why)
    if found.leads_out and run.outside == "refuse":
        why = f"descriptor {this.fd} is {found.what}, which {found.how}; with --outside close {found.closed}"
        raise NotBegun(why) if found.soon else Refused(why)
    if found.has_port:
        run.ports.append((this.pid, this.fd))
    return this.entry("socket", position=0, data=found.text)


def _device(this: Open, name: str, run: Run) -> DescriptorEntry:
    terminal = stat.S_ISCHR(this.st.st_mode) and os.major(this.st.st_rdev) in _TERMINALS
    if terminal and _is_hung_up(this):
        return this.entry("closed", position=0, data=b"terminal")
    if this.path in proc_inspect.MASTERS or (terminal and os.minor(this.st.st_rdev) in run.terminals):
        from metamori.runtime.memory import terminals  # which few programs have

        has_slave = terminal or not run.slaves.isdisjoint(map(int, proc_inspect.numbers(this.info, "tty-index")))
        return this.entry("terminal", position=0, data=terminals.look(this, run.known, has_slave))
    if run.outside == "refuse":
        kind, back = ("terminal", "hung up") if terminal else ("device", "closed")
        raise Refused(f"descriptor {this.fd} is a {kind}, {name}, which leads out of the run; with --outside close it "
                      f"comes back as {back}")
    if terminal and run.outside == "stdio":
        return this.entry("standard", position=int(this.flags & os.O_ACCMODE == os.O_WRONLY))
    return this.entry("closed", position=0, data=b"terminal" if terminal else b"device")


def _is_hung_up(terminal: Open) -> bool:
    from metamori.runtime.memory import terminals  # which few programs have

    return terminals.is_hung_up(terminal)


def _given(fd: int, run: Run) -> bytes:
    """Of what the run was given, which may be a terminal."""
    from metamori.runtime.memory import terminals  # which few programs have

    return terminals.given(fd, run.members, run.known)


def _remembers_nothing(device: int) -> bool:
    """/dev/null, zero, full, random and the like, /dev/tty: opened again they are as good as before. A GPU is not."""
    return os.major(device) == 1 or device == os.makedev(5, 0)


# -- pipes ----------------------------------------------------------------------------------------


def _pipe(this: Open, run: Run) -> DescriptorEntry:
    if not run.has_both_ends(this.path) and run.outside == "refuse" and not _other_end_is_closed(this):
        raise Refused(f"descriptor {this.fd} is a pipe to another process")
    if this.path in run.emptied:
        return this.entry("pipe", position=0)
    run.emptied.add(this.path)
    data, size = (b"", run.empty[this.path]) if this.path in run.empty else _in_pipe(this)
    if data and this.flags & os.O_DIRECT:
        raise Refused(f"descriptor {this.fd} is a pipe of packets that holds some, which cannot come back")
    return this.entry("pipe", position=size, data=data)


def _other_end_is_closed(this: Open) -> bool:
    """A reader finds the end, a writer nobody who reads."""
    if this.flags & os.O_ACCMODE == os.O_RDWR:
        return False
    try:
        fd = os.open(this.link, this.flags & os.O_ACCMODE | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:                        # of a fifo that nobody reads
        return True
    try:
        if not this.path.startswith(b"pipe:") and this.flags & os.O_ACCMODE == os.O_RDONLY:
            return _is_at_its_end(fd)
        poll = select.poll()
        poll.register(fd, 0)
        return bool(dict(poll.poll(0)).get(fd, 0) & (select.POLLHUP | select.POLLERR))
    finally:
        os.close(fd)


def _is_at_its_end(fifo: int) -> bool:
    """It holds nothing, and nobody writes."""
    count, = struct.unpack("i", fcntl.ioctl(fifo, termios.FIONREAD, b"\0" * 4))
    try:
        return not count and not os.read(fifo, 1)
    except BlockingIOError:
        return False


def _in_pipe(this: Open) -> tuple[bytes, int]:
    """What has been written into a pipe and not yet been read: copied, not taken; and how much it can hold."""
    said = int(lib.mm_pipe_holds(this.link))
    if said < 0:
        raise OSError(-said, os.strerror(-said))
    size, count = divmod(said, 1 << 32)
    if not count:
        return b"", size
    source = os.open(this.link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            fcntl.fcntl(writer, _SET_SIZE, size)
            got = lib.mm_tee(source, writer, count)
            data = os.read(reader, count) if got > 0 else b""
            if len(data) != count:
                raise Refused(f"descriptor {this.fd}: what is in the pipe cannot be copied")
            return data, size
        finally:
            os.close(reader)
            os.close(writer)
    finally:
        os.close(source)
