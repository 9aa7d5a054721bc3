"""What has been sent to a socket and not been read: copied, not taken.

A look at descriptors that were sent (SCM_RIGHTS) opens them here, too: they are closed, unless who looks wants them.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import Iterable

from metamori._area import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:                          # which few programs need
    from typing import Any, NamedTuple
else:
    from metamori.tables.record import NamedTuple

MESSAGES = (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
DESCRIPTORS = "descriptors that were sent and not received"
ERROR = "an error that was not read"
URGENT = "urgent data"                     # MSG_OOB: what is behind it cannot be looked at, nor where it stands
_SOCKET = socket.SOL_SOCKET
_PEEK_OFF, _PIDFD = 42, 4                  # SO_PEEK_OFF, SCM_PIDFD
_GRO = 104                                 # UDP_GRO
_MOST_FDS = 253                            # in a message: SCM_MAX_FD
_ROOM = socket.CMSG_SPACE(4 * _MOST_FDS) + 4 * socket.CMSG_SPACE(256)      # and for all else that options may ask for
_FLAGS = socket.MSG_PEEK | socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_empty: set[int] = set()                   # sockets in which an empty message was met


class Message(NamedTuple):
    """Or bytes of a stream that came with the same descriptors. sender: as Python says it."""

    data: bytes
    sender: Any
    fds: tuple[int, ...]


def waiting(this: socket.socket, keeps: bool = False) -> list[Message] | str:
    """All of it; or what it is, where it cannot come back. keeps: whoever asks closes the descriptors."""
    if why_not := _keeps_from_looking(this):
        return why_not
    found: list[Message] = []
    inode, is_unix = os.fstat(this.fileno()).st_ino, this.family == socket.AF_UNIX
    before = [(name, this.getsockopt(_SOCKET, name)) for name in (_PEEK_OFF, *[socket.SO_PASSCRED][:is_unix])]
    try:
        if is_unix:                        # an empty message differs from the end by whose it is
            this.setsockopt(_SOCKET, socket.SO_PASSCRED, 1)
        this.setsockopt(_SOCKET, _PEEK_OFF, -1 if inode in _empty else 0)  # then it goes on behind what was looked at
        why_not = _all(this, found, inode)
    except BaseException:
        close(found)
        raise
    finally:
        for name, value in before:
            this.setsockopt(_SOCKET, name, value)
    if not why_not and not keeps and any(each.fds for each in found):
        why_not = DESCRIPTORS
    if why_not or not keeps:
        close(found)
    return why_not or found


def close(messages: Iterable[Message]) -> None:
    for each in messages:
        for fd in each.fds:
            os.close(fd)


def _keeps_from_looking(this: socket.socket) -> str:
    """An error, which a look would take from the program, or urgent data; ""."""
    poll = select.poll()
    poll.register(this, select.POLLPRI)
    events = dict(poll.poll(0)).get(this.fileno(), 0)
    return ERROR if events & select.POLLERR else URGENT if events & select.POLLPRI else ""


def has_mark(this: socket.socket) -> bool:
    """Of TCP, where urgent data is or was: unless it comes in line, what is there is counted up to it. A kill between
    the two settings leaves the program's socket with the other one, as with `SO_PEEK_OFF` above."""
    count, in_line = to_read(this), this.getsockopt(_SOCKET, socket.SO_OOBINLINE)
    this.setsockopt(_SOCKET, socket.SO_OOBINLINE, not in_line)
    try:
        return to_read(this) != count
    finally:
        this.setsockopt(_SOCKET, socket.SO_OOBINLINE, in_line)


def to_read(this: socket.socket) -> int:
    count, = struct.unpack("i", fcntl.ioctl(this.fileno(), termios.FIONREAD, bytes(4)))
    return int(count)


def to_send(this: socket.socket) -> int:
    count, = struct.unpack("i", fcntl.ioctl(this.fileno(), termios.TIOCOUTQ, bytes(4)))
    return int(count)


def looked_at(this: socket.socket, count: int) -> bytes:
    """Of TCP, from the beginning, wherever the program's own next look (`SO_PEEK_OFF`, since Linux 6.9) goes on."""
    if not count:
        return b""
    try:
        at = this.getsockopt(_SOCKET, _PEEK_OFF)
    except OSError:                        # there is none
        at = -1
    if at < 0:
        return this.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    this.setsockopt(_SOCKET, _PEEK_OFF, -1)
    try:
        return this.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    finally:
        this.setsockopt(_SOCKET, _PEEK_OFF, at)


def _all(this: socket.socket, found: list[Message], inode: int) -> str:
    """Why they cannot come back."""
    at = 0
    while True:
        try:
            said, flags, has_more, size = _peek(this, _most(this))
        except BlockingIOError:
            break
        found += [said] if not size else [said._replace(data=said.data[place:place + size])
                                          for place in range(0, len(said.data), size)]
        if flags & socket.MSG_CTRUNC:
            return DESCRIPTORS             # more than this process may have open
        if has_more and this.type in MESSAGES and (inode in _empty or not said.data):
            _empty.add(inode)              # the kernel passes over it the next time
            return "an empty message"
        if not said.data:
            found.pop()
            break
        if said.fds and this.type == socket.SOCK_STREAM and (start := _start(this, at, len(said.data))):
            found[-1:] = said._replace(data=said.data[:start], fds=()), said._replace(data=said.data[start:])
        at += len(said.data)
    _empty.discard(inode)
    return ""


def _peek(this: socket.socket, most: int) -> tuple[Message, int, bool, int]:
    """With flags; whether there is anything, also where it has no bytes; of several in one (UDP_GRO) the size, else
    0."""
    data, more, flags, sender = this.recvmsg(most, _ROOM, _FLAGS)
    fds, size = array.array("i"), 0
    for level, kind, what in more:
        if (level, kind) == (socket.IPPROTO_UDP, _GRO):
            size, = struct.unpack_from("i", what)
        if level == _SOCKET and kind in (socket.SCM_RIGHTS, _PIDFD):
            its = array.array("i", what[:len(what) // 4 * 4])
            if kind == socket.SCM_RIGHTS:
                fds += its
            else:
                os.close(its[0])           # of the sender, made for whoever looks
    return Message(data, sender, tuple(fds)), flags, bool(more or sender), size


def _start(this: socket.socket, at: int, length: int) -> int:
    """Where bytes of a stream begin that come with descriptors: who reads no further does not get them. A look that
    ends before shows them all the same."""
    this.setsockopt(_SOCKET, _PEEK_OFF, at)
    before = int(lib.mm_bytes_before(this.fileno(), ffi.new("char[]", length), length))
    this.setsockopt(_SOCKET, _PEEK_OFF, at + length)
    if before < 0:
        raise OSError(-before, os.strerror(-before))
    return before


def _most(this: socket.socket) -> int:
    """More than there is, so that no look ends in the middle."""
    return max(1 << 16, to_read(this) + 1, this.getsockopt(_SOCKET, socket.SO_RCVBUF) * 4)
