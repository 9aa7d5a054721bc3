"""Sockets of a program whose memory is saved: what each is. socket_restart.py makes one like it.

Made again are sockets that wait for others (listening, bound, or not used yet) and both ends of connections within the
run, with what is on its way. A connection to anybody else leads out of the run: it comes back as one that its other end
has reset.
What is found is lines of text in the descriptor's entry:

  socket: FAMILY TYPE PROTOCOL
  state: waits | listens | pair (unix) | tcp | asks (backlog.py) | sends (datagrams to a fixed address) | reset |
    ended (both ways)
  server: 1, of the end of a TCP connection that was accepted; backlog: N; address:, to: a sockaddr in hex
  turn: of a socket that asks: inode of the one that listens, and its place there
  mode: of the name of a unix socket, octal; called: its name in that folder, where it was renamed since
  option: LEVEL NAME VALUE (hex), each that differs from a new socket's
  name: of an end of a pair, a sockaddr in hex; to: of its other end; peer: the inode of the pair's other end
  shut: 1 nothing more is received, 2 sent; waiting: bytes in hex, not read yet
  datagram: one that was not read yet, in hex, and the address that it came from, if it had one
  Behind both: descriptors that were sent with it, each PROCESS:DESCRIPTOR (sent.py)
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress

from metamori.runtime.memory import backlog, unix_sockets, unread
from metamori.runtime.memory.socket_connections import Inside, Sent, is_closed, is_on_its_way, taken
from metamori.runtime.memory.socket_names import (
    address_text,
    bound_to,
    is_bound,
    name_of,
    path_of,
    plain,
    reaches,
    sockaddr,
)
from metamori.tables.record import record, replace

_FAMILIES = {socket.AF_UNIX: "a unix socket", socket.AF_INET: "a socket", socket.AF_INET6: "a socket"}
_CLOSED = 7                                # of the kernel's list of states of TCP
_SHUT = (4, 5, 9, 11)                      # FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING: nothing more is sent
_OTHER_SENDS = (1, 4, 5)                   # ESTABLISHED, FIN_WAIT1, FIN_WAIT2: the other end has not shut its side
_MOST_WAITING = 2 << 20                    # the loopback device takes more without a reader
_TCP, _IP, _IPV6, _SOCKET = socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET
_UDP, _ULP = socket.IPPROTO_UDP, 31          # TCP_ULP
_REUSED = f"option: {_SOCKET} {socket.SO_REUSEADDR} 01000000"
_LEFT = "holds a connection that was closed and not accepted yet"
_NEVER = "and cannot come back with the program"
_BUFFER_LOCK = 72                           # SO_BUF_LOCK
_BUFFERS = {socket.SO_SNDBUF: 1, socket.SO_RCVBUF: 2}      # SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK
# level, names in <asm-generic/socket.h>, <linux/in.h>, <linux/in6.h>, <linux/tcp.h>, <linux/udp.h>
_OPTIONS = {
    _SOCKET: (1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 20, 21, 25, 29, 34, 35, 36, 37, 40, 41, 42, 43, 45, 46,
              47, 49, 60, 61, 63, 64, 65, 69, 70, 73, 74, 75, 76, 82, 83, 84),
    _IP: (1, 2, 4, 6, 7, 8, 10, 11, 12, 13, 15, 18, 19, 20, 21, 23, 24, 25, 26, 32, 33, 34, 49, 50, 51),
    _IPV6: (2, 3, 4, 5, 8, 11, 16, 17, 18, 19, 23, 25, 26, 29, 30, 31, 33, 49, 51, 53, 54, 55, 56, 57, 58, 59, 60, 62,
            66, 67, 70, 72, 73, 74, 75, 76, 77, 78),
    _TCP: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 18, 23, 25, 27, 30, 33, 34, 36, 37, 44, 45, 46),
    _UDP: (1, 100, 101, 102, 103, 104),
}
_OF_WHO_WAITS = ((_TCP, socket.TCP_MAXSEG), (_TCP, socket.TCP_WINDOW_CLAMP))   # a connection says what came of them


@record
class Found:
    """A socket as it is. leads_out: to somebody who does not come back with the program. why_not: it never can."""

    text: bytes = b""
    leads_out: bool = False
    soon: bool = False                     # it is about to be one within the run, or to be closed, or emptied
    what: str = ""
    how: str = "leads out of the run"
    closed: str = "it comes back as reset"     # what --outside close makes of it
    why_not: str = ""
    has_port: bool = False                 # which is to be free when its process was killed: see share_port


class _Cannot(Exception):
    """It cannot come back. soon: it may be able to."""

    def __init__(self, what: str, why: str, soon: bool = True) -> None:
        super().__init__(what, why)
        self.found = Found(what=what, soon=soon, why_not=why)


@record
class _Seen:
    """One whose state is known. unix: what the kernel says of it; own, other: names of both ends."""

    this: socket.socket
    pid: int
    inode: int
    state: str
    unix: dict[int, bytes]
    own: bytes | None
    other: bytes | None
    inside: Inside
    asks: backlog.Asks | None

    @property
    def what(self) -> str:
        return _what(self.this)

    @property
    def is_unix(self) -> bool:
        return self.this.family == socket.AF_UNIX

    @property
    def bound(self) -> bytes:
        """Its address, b"" if it has none."""
        return self.own if self.own and is_bound(self.this.family, self.own) else b""


# -- looking ------------------------------------------------------------------------------------------


def look(pid: int, fd: int, inside: Inside) -> Found:
    """The process is stopped."""
    try:
        with closing(taken(pid, fd)) as this:
            return _look(this, pid, inside)
    except OSError as error:
        return Found(what="a socket", why_not=f"cannot be looked at ({error.strerror})")


def share_port(pid: int, fd: int) -> None:
    """After a kill what is left of a connection must not keep its port; what is accepted has that of who listens."""
    with suppress(OSError), closing(taken(pid, fd)) as this:
        this.setsockopt(_SOCKET, socket.SO_REUSEADDR, 1)


def reset_at_end(pid: int) -> None:
    """When the process is killed its connections end at once, instead of holding its ports for a minute."""
    for fd in map(int, os.listdir(f"/proc/{pid}/fd")):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:") and fd > 2:
                with closing(taken(pid, fd)) as this:
                    if this.family in (socket.AF_INET, socket.AF_INET6) and name_of(this, of_peer=True):
                        this.setsockopt(_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        except OSError:
            continue                       # closed meanwhile


def _look(this: socket.socket, pid: int, inside: Inside) -> Found:
    try:
        _require_known(this, pid)
        seen = _seen(this, pid, inside)
        lines = [f"socket: {int(this.family)} {int(this.type)} {this.proto}", f"state: {seen.state}"]
        for part in _LINES.get(seen.state, ()):
            lines += part(seen)
    except _Cannot as error:
        return error.found
    has_port = _has_port(seen)
    lines += [*_options(this, seen.state), *([_REUSED] if seen.state == "listens" and has_port else [])]
    return replace(_verdict(seen), text=("\n".join(lines) + "\n").encode(), has_port=has_port)


def _what(this: socket.socket) -> str:
    return _FAMILIES.get(this.family, f"a socket of family {int(this.family)}")


def _require_known(this: socket.socket, pid: int) -> None:
    if this.family not in _FAMILIES or this.type not in (socket.SOCK_STREAM, *unread.MESSAGES):
        raise _Cannot(_what(this), "cannot come back with the program", soon=False)
    if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
        raise _Cannot(_what(this), "belongs to another network namespace", soon=False)


def _seen(this: socket.socket, pid: int, inside: Inside) -> _Seen:
    inode = os.fstat(this.fileno()).st_ino
    unix = unix_sockets.attributes(inode) if this.family == socket.AF_UNIX else {}
    own, other = name_of(this), name_of(this, of_peer=True)
    asks = inside.asks.get(inode)
    accepts = asks is not None and not asks.holds and (this.family != socket.AF_UNIX or len(own or b"") <= 2)
    state = "asks" if accepts else _state(this, unix, own, other, inside)
    return _Seen(this, pid, inode, state, unix, own, other, inside, asks)


def _state(this: socket.socket, unix: dict[int, bytes], own: bytes | None, other: bytes | None,
           inside: Inside) -> str:
    """Of the states above; reset: it has a connection, or had one and has not been told of its end."""
    if this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN):
        return "listens"
    if this.family == socket.AF_UNIX:
        if 2 not in unix:
            return "waits"
        if unix_sockets.is_pair(this, unix, own, other, inside.inodes):
            return "pair"
        return "sends" if this.type == socket.SOCK_DGRAM else "reset"
    if this.type != socket.SOCK_STREAM:
        return "sends" if other else "waits"
    if this.proto in (0, _TCP) and this.getsockopt(_TCP, socket.TCP_INFO, 1)[0] != _CLOSED:
        is_ours = own and other and ((plain(other), plain(own)) in inside.connections or is_closed(other, own))
        return "tcp" if is_ours else "reset"
    events = _events(this, select.POLLRDHUP)
    if events & select.POLLERR or other:
        return "reset"
    return "ended" if events & select.POLLRDHUP else "waits"


def _events(this: socket.socket, asked: int) -> int:
    """And errors."""
    poll = select.poll()
    poll.register(this, asked)
    return dict(poll.poll(0)).get(this.fileno(), 0)


def _has_port(seen: _Seen) -> bool:
    """Which connections within the run hold."""
    if seen.is_unix or seen.state not in ("listens", "asks", "tcp"):
        return False
    return seen.state != "listens" or (seen.own or b"")[2:4] in {own[2:4] for own, _ in seen.inside.connections}


def _verdict(seen: _Seen) -> Found:
    """Whether it leads out of the run."""
    if seen.inode in seen.inside.left:
        what = f"{seen.what} that listens at {address_text(seen.own or b'')}"
        return Found(b"", True, True, what, _LEFT, "that is lost")
    other, what = seen.other, seen.what
    leads_out = seen.state == "reset" or (seen.state == "sends" and not reaches(other or b"", seen.inside.datagrams))
    if leads_out:
        what = f"a connection to {address_text(other)}" if other else f"{what} with a connection"
    soon = seen.state == "reset" and is_on_its_way(seen.this, other, seen.inside)
    found = Found(b"", leads_out, soon, what)
    return replace(found, how=f"{seen.asks.holds} and was not accepted yet") if seen.asks and seen.asks.holds else found


# -- lines of a state -----------------------------------------------------------------------------------


def _most(seen: _Seen) -> list[str]:
    return [f"backlog: {backlog.most(seen.this, seen.unix)}"]


def _pair(seen: _Seen) -> list[str]:
    lines = [f"peer: {unix_sockets.number(seen.unix, 2)}", f"shut: {_shut(seen)}"]
    lines += [" ".join(["waiting:", each.hex(), *places]) for each, _, places in _waiting(seen)]
    lines += [f"name: {seen.own.hex()}"] if seen.own and len(seen.own) > 2 else []
    return [*lines, *([f"to: {seen.other.hex()}"] if seen.other and len(seen.other) > 2 else [])]


def _asking(seen: _Seen) -> list[str]:
    assert seen.asks
    lines = [f"turn: {seen.asks.listener} {seen.asks.turn}", f"to: {(seen.other or b'').hex()}", f"shut: {_shut(seen)}"]
    return [*lines, *([f"address: {seen.own.hex()}"] if seen.own and not seen.is_unix else [])]


def _connection(seen: _Seen) -> list[str]:
    """Within the run."""
    own, other = seen.own or b"", seen.other or b""
    what = f"a connection to {address_text(other)}"
    if layer := _value(seen.this, _TCP, _ULP).rstrip(b"\0"):
        raise _Cannot(what, f"the kernel encrypts, or the like (TCP_ULP: {layer.decode()}), {_NEVER}", soon=False)
    if unsent := dict(seen.inside.unsent).get((plain(own), plain(other))):
        raise _Cannot(what, f"has {unsent} bytes sent that have not reached the other end yet")
    if unread.has_mark(seen.this):
        raise _Cannot(what, f"holds {unread.URGENT}")
    count = unread.to_read(seen.this)
    data = unread.looked_at(seen.this, count)
    if len(data) != count or count > _MOST_WAITING:
        raise _Cannot(what, f"holds {count} bytes, more than can be given back")
    server = own[2:4] in {name[2:4] for name in seen.inside.listens}
    return [f"address: {own.hex()}", f"to: {other.hex()}", f"shut: {_shut(seen)}", f"server: {int(server)}",
            *([f"waiting: {data.hex()}"] if data else [])]


def _to(seen: _Seen) -> list[str]:
    return [f"to: {seen.other.hex()}"] if seen.other else []


def _address(seen: _Seen) -> list[str]:
    if not seen.bound:
        return []
    lines = [f"address: {seen.bound.hex()}"]
    if path := path_of(seen.bound):
        place = os.path.join(b"/proc/%d/cwd" % seen.pid, path)
        there = unix_sockets.found(place, seen.unix)
        if not there or (there != place and seen.state != "listens"):
            raise _Cannot(f"{seen.what} that was called {os.fsdecode(path)}", "cannot come back: the name is gone",
                          soon=False)
        lines += [f"mode: {os.stat(there).st_mode & 0o7777:o}", f"called: {os.path.basename(there).hex()}"]
    return lines


def _rest(seen: _Seen) -> list[str]:
    """Of one that has ended both ways."""
    if unread.has_mark(seen.this):
        raise _Cannot(seen.what, f"holds {unread.URGENT}, {_NEVER}")
    data = unread.looked_at(seen.this, unread.to_read(seen.this))
    return [f"waiting: {data.hex()}"] if data else []


def _datagrams(seen: _Seen) -> list[str]:
    """Those that sockets in the run can send again; of others, of another machine's, none."""
    if seen.this.type != socket.SOCK_DGRAM or not seen.bound:
        return []
    if not seen.is_unix and unread.to_send(seen.this):
        raise _Cannot(seen.what, f"was given a part of a message (UDP_CORK, MSG_MORE), {_NEVER}")
    events = _events(seen.this, select.POLLIN)
    if events & select.POLLERR:            # whoever looks at messages would take the error from the program
        if events & select.POLLIN:
            raise _Cannot(seen.what, f"holds messages, and an error that was not read, {_NEVER}")
        return []
    found = []
    for data, sender, places in _waiting(seen):
        own = plain(sockaddr(seen.this.family, sender))
        is_known = bound_to(own, seen.inside.datagrams) is not None
        if sender and not is_known and seen.is_unix:
            raise _Cannot(seen.what, f"holds a message of a socket that is closed, {_NEVER}")
        if seen.is_unix or is_known:
            found.append(" ".join(["datagram:", data.hex(), own.hex() if is_known else "", *places]))
    return found


def _waiting(seen: _Seen) -> Sequence[Sent]:
    if known := seen.inside.sent.get(seen.inode):
        return known
    found = unread.waiting(seen.this)
    if isinstance(found, str):
        raise _Cannot(seen.what, f"holds {found}, {_NEVER}")
    return [(each.data, each.sender, ()) for each in found]


def _shut(seen: _Seen) -> int:
    if seen.is_unix:
        return seen.unix.get(6, bytes(1))[0]
    state = seen.this.getsockopt(_TCP, socket.TCP_INFO, 1)[0]
    receives = state not in _OTHER_SENDS or not _events(seen.this, select.POLLRDHUP) & select.POLLRDHUP
    return (0 if receives else 1) | (2 if state in _SHUT else 0)


_LINES: Mapping[str, Sequence[Callable[[_Seen], list[str]]]] = {
    "listens": (_most, _address), "pair": (_pair,), "asks": (_asking,), "tcp": (_connection,),
    "sends": (_to, _datagrams, _address), "waits": (_datagrams, _address), "ended": (_rest,)}


# -- options ----------------------------------------------------------------------------------------------


def _options(this: socket.socket, state: str) -> list[str]:
    with closing(socket.socket(this.family, this.type, this.proto)) as new:
        return [f"option: {level} {name} {value.hex()}" for level, name in _options_of(this.family, this.type)
                if state in ("listens", "waits") or (level, name) not in _OF_WHO_WAITS
                if (value := _value(this, level, name)) and value != _value(new, level, name)]


def _options_of(family: int, kind: int) -> list[tuple[int, int]]:
    levels = [_SOCKET]
    if family != socket.AF_UNIX:
        levels += [_IP] if family == socket.AF_INET else [_IPV6, _IP]
        levels += [_TCP if kind == socket.SOCK_STREAM else _UDP]
    return [(level, name) for level in levels for name in _OPTIONS[level]]


def _value(this: socket.socket, level: int, name: int) -> bytes:
    if level == _SOCKET and name in _BUFFERS and not _chosen(this) & _BUFFERS[name]:
        return b""
    try:
        return this.getsockopt(level, name, 1024)
    except OSError:
        return b""                         # this kernel, or this kind of socket, does not know it


def _chosen(this: socket.socket) -> int:
    """Of its buffers, those whose size the program has set: of others the kernel sees to it as the connection goes."""
    try:
        return this.getsockopt(_SOCKET, _BUFFER_LOCK)
    except OSError:                        # before Linux 5.14
        return ~0


def is_unix_with_unread(this: socket.socket) -> bool:
    is_connection = this.family == socket.AF_UNIX and not this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN)
    return is_connection and unread.to_read(this) > 0
