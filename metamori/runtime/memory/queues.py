"""Message queues of POSIX: those that processes have open, and those that the run opened by name
(shim_c/src/calls/wrap_sysv.c), which stay when nobody has them open.

The kernel shows no message without giving it away: all are taken and sent again, while every process of the run stands
still. So nobody else may have the queue open, and nobody may wait to be told of the first message (mq_notify) when
there are some. They come back as new ones with the old names (lifecycle/queue_restart.py).
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Collection, Iterable, Iterator

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.memory import apart, proc_inspect, sysv
from metamori.runtime.memory.open_files import QUEUE, Open
from metamori.runtime.memory.proc_inspect import NotBegun, Refused
from metamori.store.format.records import DescriptorEntry, SegmentEntry
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_queue
    from metamori.runtime.memory.images import Image

_HEAD, _WORDS = struct.Struct("=II"), struct.Struct("=qqq")
_NOTICE = struct.Struct("=iii4xQ")        # struct mm_came_notice
_DELETED = b" (deleted)"
_READ_WRITE = 0o600


def attributes(fd: int) -> tuple[int, int, int]:
    """How many messages it takes, of how many bytes, and how many there are."""
    words = ffi.new("char[]", _WORDS.size)
    must(lib.mm_queue_attributes(fd, words))
    return _WORDS.unpack(ffi.buffer(words))


def must(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def title(name: bytes) -> str:
    """For people."""
    return f"the POSIX message queue '{name.decode(errors='replace')}'"


def holders(name: bytes, but: Collection[int]) -> Iterator[int]:
    """Processes that have a queue of this name open."""
    links = {name, name + _DELETED}
    for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if process in but:
            continue
        folder = b"/proc/%d/fd" % process
        try:
            if any(_leads_to(os.path.join(folder, fd), links) for fd in os.listdir(folder)):
                yield process
        except OSError:
            continue                       # it has ended, or is somebody else's, who could not have this


def _leads_to(link: bytes, links: set[bytes]) -> bool:
    try:
        return os.readlink(link) in links
    except FileNotFoundError:
        return False


def _noted(area: Area) -> list[tuple[int, mm_queue]]:
    """With their places."""
    tree = area.head.tree
    found = [(place, tree.queue[place]) for place in range(tree.queues)]
    return [(place, each) for place, each in found if each.state & 3 == 2]


def noted_inodes(area: Area) -> set[int]:
    """Of those that the run opened by name."""
    return {each.inode for _, each in _noted(area)}


def with_notices(area: Area, opens: Iterable[Open], images: Iterable[Image]) -> None:
    """Entries of processes that are told of a message say how. opens: queues. Refused."""
    told: dict[tuple[int, int], tuple[int, bytes]] = {}
    for this in opens:
        if words := _notice(area, this):
            told[this.pid, this.inode] = this.fd, words
    for image in images:
        words_of = {fd: words for (pid, _), (fd, words) in told.items() if pid == image.pid}
        if words_of:
            image.descriptors = [replace(each, data=each.data + words_of.get(each.descriptor, b""))
                                 for each in image.descriptors]


def notices(entries: Iterable[DescriptorEntry]) -> bytes:
    """Those of a process, as the preload library takes them (struct mm_came_notice)."""
    found = ((each.descriptor, [*map(int, each.data.partition(b"\n")[0].split())]) for each in entries
             if each.kind == "segment")
    return b"".join(_NOTICE.pack(fd, how, signal, value) for fd, (_, _, *words) in found
                    for how, signal, value in ([words] if words else []))


def _notice(area: Area, this: Open) -> bytes:
    """b"": it is not."""
    with open(this.link, "rb", buffering=0) as file:
        words = dict(word.split(b":", 1) for word in file.read(99).split())
    waits = int(words[b"NOTIFY_PID"])
    if waits != this.pid:
        return b""
    known = [each.value for _, each in _noted(area) if each.inode == this.inode and each.waits == waits]
    if len(known) != 1:
        raise Refused(f"descriptor {this.fd} is {title(this.path)}, and nobody knows what its process is told "
                      "(mq_notify)")
    return b" %d %d %d" % (int(words[b"NOTIFY"]), int(words[b"SIGNO"]), known[0])


def found(area: Area, pids: Collection[int], opens: Iterable[Open]) -> tuple[SegmentEntry, ...]:
    """All of a run's, while its processes are stopped. Refused, NotBegun."""
    if area.head.tree.queues_lost:
        raise Refused(f"the run has opened more than {lib.MM_QUEUES} POSIX message queues, which cannot come back")
    entries: dict[int, SegmentEntry] = {}
    for this in opens:
        if this.inode not in entries:
            sysv.require_own(pids)
            name = b"" if this.path.endswith(_DELETED) else this.path
            fd = _opened(this.link.decode(), name or this.path.removesuffix(_DELETED))
            entries[this.inode] = _entry(fd, this.inode, name, this.path.removesuffix(_DELETED), pids)
    for place, each in _noted(area):
        if each.inode not in entries and (fd := _by_name(area, place, each)) >= 0:
            name = ffi.string(each.name)
            entries[each.inode] = _entry(fd, each.inode, name, name, pids)
    return tuple(entries.values())


def _opened(link: str, name: bytes) -> int:
    try:
        return os.open(link, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise Refused(f"{title(name)} cannot come back: its user, or its mode, is another than usual") from None


def _by_name(area: Area, place: int, noted: mm_queue) -> int:
    """-1: nothing has it, or another queue; nobody will ask for what was noted."""
    name = ffi.string(noted.name)
    fd = int(lib.mm_queue_open(name[1:], os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC, 0, 0, 0)) if name else -errno.ENOENT
    if fd == -errno.EACCES:
        raise Refused(f"{title(name)} cannot come back: its user, or its mode, is another than usual")
    if fd < 0 and fd != -errno.ENOENT:
        must(fd)
    if fd >= 0 and os.fstat(fd).st_ino != noted.inode:
        os.close(fd)
        fd = -1
    if fd < 0:
        lib.mm_queue_forget(area.pointer, place, noted.state)
    return max(fd, -1)


def _entry(fd: int, inode: int, name: bytes, called: bytes, pids: Collection[int]) -> SegmentEntry:
    """name: b"" of one that lost it."""
    try:
        st = os.fstat(fd)
        if st.st_uid != os.geteuid() or st.st_mode & _READ_WRITE != _READ_WRITE:
            raise Refused(f"{title(called)} cannot come back: its user, or its mode, is another than usual")
        most, size, count = attributes(fd)
        pieces = tuple(_messages(fd, size, count, called, pids)) if count else ()
    finally:
        os.close(fd)
    return SegmentEntry(QUEUE, inode, count, b"%d %d %s" % (most, size, name), st.st_mode & 0o7777, 1, pieces)


def _messages(fd: int, size: int, count: int, called: bytes, pids: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Priorities and messages, the first to be received first."""
    if b"NOTIFY_PID:0 " not in os.pread(fd, 99, 0):
        raise NotBegun(f"{title(called)} holds messages, and a process waits to be told of the first (mq_notify)")
    if other := next(holders(called, {os.getpid(), *pids}), 0):
        raise Refused(f"{title(called)} is open in another process, {proc_inspect.name_of(other)} ({other})")
    data, at = apart.done(lambda: _copied(fd, size, count)), 0
    while at < len(data):
        length, priority = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        yield priority, data[at - length:at]


def _copied(fd: int, size: int, count: int) -> bytes:
    """Each after its length and priority."""
    length = (count + 1) * (size + _HEAD.size)
    room = ffi.new("char[]", length)
    at, data = 0, ffi.buffer(room)
    for _ in range(must(lib.mm_queue_copy(fd, room, length, size))):
        at += _HEAD.size + _HEAD.unpack_from(data, at)[0]
    return bytes(data[:at])
