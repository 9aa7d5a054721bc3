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
  mode: of the name of a unix socket, octal
  option: LEVEL NAME VALUE (hex), each that differs from a new socket's
  name: of an end of a pair, a sockaddr in hex; to: of its other end; peer: the inode of the pair's other end
  shut: 1 nothing more is received, 2 sent; waiting: bytes in hex, not read yet
  datagram: one that was not read yet, in hex, and the address of the socket in the run that sent it, if it had one
  Behind both: descriptors that were sent with it, each PROCESS:DESCRIPTOR (sent.py)
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import struct
import termios
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Protocol

from metamori._area import ffi, lib
from metamori.runtime.memory import backlog, proc_inspect, unread
from metamori.tables.record import field, record, replace

_FAMILIES = {socket.AF_UNIX: "a unix socket", socket.AF_INET: "a socket", socket.AF_INET6: "a socket"}
_SYN_SENT, _FIN_WAIT2, _CLOSED, _CLOSE_WAIT = 2, 5, 7, 8   # of the kernel's list of states of TCP
_SHUT = (4, 5, 9, 11)                      # FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING: nothing more is sent
_MOST_WAITING = 2 << 20                    # the loopback device takes more without a reader
_TCP, _IP, _IPV6, _SOCKET = socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET
_SOCKADDR = 128
_REUSED = f"option: {_SOCKET} {socket.SO_REUSEADDR} 01000000"
_LEFT = "holds a connection that was closed and not accepted yet"
Sent = tuple[bytes, Any, Sequence[str]]      # bytes, who sent them, places of descriptors that came with them
# level, names in <asm-generic/socket.h>, <linux/in.h>, <linux/in6.h>, <linux/tcp.h>
_OPTIONS = {
    _SOCKET: (2, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 18, 20, 21, 25, 29, 34, 35, 37, 46),
    _IP: (1, 2, 6, 8, 10, 11, 12, 13, 15, 19, 20, 24, 32, 33, 34, 49),
    _IPV6: (16, 18, 19, 23, 25, 26, 49, 51, 66, 67, 70),
    _TCP: (1, 4, 5, 6, 7, 8, 9, 13, 18, 23, 25),
}


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


# -- looking ------------------------------------------------------------------------------------------


@record
class Inside:
    """All sockets of the run: their inodes, names of both ends of connections, addresses that somebody listens at."""

    inodes: frozenset[int]
    connections: frozenset[tuple[bytes, bytes]] = frozenset()
    listens: frozenset[bytes] = frozenset()
    datagrams: frozenset[bytes] = frozenset()      # addresses of sockets for them
    unsent: tuple[tuple[tuple[bytes, bytes], int], ...] = ()   # bytes of a connection that do not reach its other end
    asks: Mapping[int, backlog.Asks] = field(default_factory=dict)     # by inode, whom nobody has accepted
    sent: Mapping[int, Sequence[Sent]] = field(default_factory=dict)   # by inode: what is in those with descriptors
    servers: frozenset[int] = frozenset()  # inodes of those that listen
    left: frozenset[int] = frozenset()     # of these: where a client has closed what nobody has accepted

    @property
    def senders(self) -> frozenset[int]:
        """Inodes of clients that have sent what nobody can look at before it is accepted."""
        return frozenset(inode for inode, each in self.asks.items() if each.holds)


class _Open(Protocol):
    pid: int
    fd: int


def inside(sockets: Mapping[int, _Open], sent: Mapping[int, Sequence[Sent]]) -> Inside:
    """By inode, each as some process has it open."""
    connections, listens, datagrams = {}, set(), set()
    clients: dict[bytes, int] = {}         # by their own names
    asks: dict[int, backlog.Asks] = {}
    servers: dict[int, bytes] = {}
    left: set[int] = set()
    for inode, each in sockets.items():
        try:
            with closing(taken(each.pid, each.fd)) as this:
                own, other = _name(this), _name(this, of_peer=True)
                if own and this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN):
                    listens.add(own)
                    servers[inode] = own
                    if this.family == socket.AF_UNIX:
                        waiting = _waiting_at(inode)
                        asks.update(_backlog_of(inode, waiting, sockets))
                        left.update([inode] if 0 in waiting else [])
                elif own and other and this.family != socket.AF_UNIX and this.type == socket.SOCK_STREAM:
                    connections[own, other] = each.pid, each.fd
                    clients[own] = inode
                elif own and this.type == socket.SOCK_DGRAM and _is_bound(this.family, own):
                    datagrams.add(own)
        except OSError:
            continue                       # `look` says what is wrong with it
    alone = {clients[names[0]]: names for names in connections if names[::-1] not in connections}
    asks.update(backlog.of_tcp(alone, listens, lambda inode: taken(*connections[alone[inode]])))
    left.update(inode for inode, name in servers.items() if _has_closed(sockets[inode], name, connections))
    # of all, before one of them is looked at: else what arrives only then would be nowhere
    unsent = {names: _unsent(place, connections.get(names[::-1])) for names, place in connections.items()}
    return Inside(frozenset(sockets), frozenset(connections), frozenset(listens), frozenset(datagrams),
                  tuple((names, count) for names, count in unsent.items() if count), asks, sent, frozenset(servers),
                  frozenset(left))


def _waiting_at(listener: int) -> list[int]:
    """Clients of a unix socket, by inode, in their order; 0: it has closed."""
    return [client for client, in struct.iter_unpack("=I", _unix(listener).get(3, b""))]


def _has_closed(server: _Open, name: bytes, connections: Collection[tuple[bytes, bytes]]) -> bool:
    if name[:2] == struct.pack("=H", socket.AF_UNIX):
        return False
    with closing(taken(server.pid, server.fd)) as this:
        return backlog.closed(this, name, connections)


def _backlog_of(listener: int, waiting: Sequence[int], sockets: Mapping[int, _Open],
                ) -> Iterator[tuple[int, backlog.Asks]]:
    """Of a unix socket."""
    for turn, client in enumerate(waiting):
        if client in sockets:
            with closing(taken(sockets[client].pid, sockets[client].fd)) as this:
                yield client, backlog.of_unix(this, listener, turn)


def _unsent(place: tuple[int, int], other: tuple[int, int] | None) -> int:
    with closing(taken(*place)) as this:
        return _on_its_way(this, other)


def look(pid: int, fd: int, inside: Inside) -> Found:
    """The process is stopped."""
    try:
        with closing(taken(pid, fd)) as this:
            return _look(this, pid, inside)
    except OSError as error:
        return Found(what="a socket", why_not=f"cannot be looked at ({error.strerror})")


def taken(pid: int, fd: int) -> socket.socket:
    """The socket itself, for a moment."""
    return socket.socket(fileno=proc_inspect.descriptor(pid, fd))


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
                    if this.family in (socket.AF_INET, socket.AF_INET6) and _name(this, of_peer=True):
                        this.setsockopt(_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        except OSError:
            continue                       # closed meanwhile


def _look(this: socket.socket, pid: int, inside: Inside) -> Found:
    family, kind = this.family, this.type
    what = _FAMILIES.get(family, f"a socket of family {int(family)}")
    if family not in _FAMILIES or kind not in (socket.SOCK_STREAM, *unread.MESSAGES):
        return Found(what=what, why_not="cannot come back with the program")
    if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
        return Found(what=what, why_not="belongs to another network namespace")
    inode = os.fstat(this.fileno()).st_ino
    unix = _unix(inode) if family == socket.AF_UNIX else {}
    own, other = _name(this), _name(this, of_peer=True)
    asks = inside.asks.get(inode)
    accepts = asks is not None and not asks.holds and (family != socket.AF_UNIX or len(own or b"") <= 2)
    state = "asks" if accepts else _state(this, unix, own, other, inside)
    lines = [f"socket: {int(family)} {int(kind)} {this.proto}", f"state: {state}"]
    ports = {each[2:4] for each, _ in inside.connections} if state == "listens" else ()
    has_port = family != socket.AF_UNIX and (state in ("asks", "tcp") or (own or b"")[2:4] in ports)
    options = [*_options(this), *([_REUSED] if state == "listens" and has_port else [])]
    if state == "listens":
        lines.append(f"backlog: {backlog.most(this, unix)}")
    if state == "pair":
        waiting = _waiting(this, inside)
        if isinstance(waiting, str):
            return Found(what=what, soon=True, why_not=f"holds {waiting}, and cannot come back with the program")
        lines += [f"peer: {_number(unix, 2)}", f"shut: {unix.get(6, bytes(1))[0]}"]
        lines += [" ".join(["waiting:", each.hex(), *places]) for each, _, places in waiting]
        lines += [f"name: {own.hex()}"] if own and len(own) > 2 else []
        lines += [f"to: {other.hex()}"] if other and len(other) > 2 else []
    if asks and state == "asks":
        lines += [f"turn: {asks.listener} {asks.turn}", f"to: {(other or b'').hex()}", f"shut: {_shut(this, unix)}"]
        lines += [f"address: {own.hex()}"] if own and family != socket.AF_UNIX else []
    if state == "tcp":
        why_not, more = _connection(this, inside)
        if why_not:
            return Found(what=f"a connection to {address_text(other or b'')}", soon=True, why_not=why_not)
        lines += [f"address: {(own or b'').hex()}", f"to: {(other or b'').hex()}", *more]
    if state == "sends" and other:
        lines.append(f"to: {other.hex()}")
    if state in ("waits", "sends") and kind == socket.SOCK_DGRAM and own and _is_bound(family, own):
        datagrams = _datagrams(this, inside)
        if isinstance(datagrams, str):
            return Found(what=what, soon=True, why_not=f"holds {datagrams}, and cannot come back with the program")
        lines += datagrams
    if state in ("listens", "waits", "sends") and own and _is_bound(family, own):
        lines.append(f"address: {own.hex()}")
        if path := path_of(own):
            place = os.path.join(b"/proc/%d/cwd" % pid, path)
            if not _is_there(place, unix):
                return Found(what=f"{what} that was called {os.fsdecode(path)}",
                             why_not="cannot come back: the name is gone")
            lines.append(f"mode: {os.stat(place).st_mode & 0o7777:o}")
    if state == "ended" and unread.has_mark(this):
        return Found(what=what, soon=True, why_not=f"holds {unread.URGENT}, and cannot come back with the program")
    if state == "ended" and (count := unread.to_read(this)):
        lines.append(f"waiting: {this.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT).hex()}")
    if inode in inside.left:
        return Found(("\n".join([*lines, *options]) + "\n").encode(), True, True,
                     f"{what} that listens at {address_text(own or b'')}", _LEFT, "that is lost")
    leads_out = state == "reset" or (state == "sends" and not _bound_to(other or b"", inside.datagrams))
    if leads_out:
        what = f"a connection to {address_text(other)}" if other else f"{what} with a connection"
    soon = state == "reset" and _is_on_its_way(this, other, inside)
    found = Found(("\n".join([*lines, *options]) + "\n").encode(), leads_out, soon, what, has_port=has_port)
    return replace(found, how=f"{asks.holds} and was not accepted yet") if asks and asks.holds else found


def _state(this: socket.socket, unix: dict[int, bytes], own: bytes | None, other: bytes | None,
           inside: Inside) -> str:
    """Of the states above; reset: it has a connection, or had one and has not been told of its end."""
    if this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN):
        return "listens"
    if this.family == socket.AF_UNIX:
        if 2 not in unix:
            return "waits"
        if _is_pair(this, unix, own, other, inside):
            return "pair"
        return "sends" if this.type == socket.SOCK_DGRAM else "reset"
    if this.type != socket.SOCK_STREAM:
        return "sends" if other else "waits"
    if this.proto in (0, _TCP) and this.getsockopt(_TCP, socket.TCP_INFO, 1)[0] != _CLOSED:
        return "tcp" if own and other and ((other, own) in inside.connections or _is_closed(other, own)) else "reset"
    poll = select.poll()
    poll.register(this, select.POLLRDHUP)
    events = dict(poll.poll(0)).get(this.fileno(), 0)
    if events & select.POLLERR or other:
        return "reset"
    return "ended" if events & select.POLLRDHUP else "waits"


def _is_closed(other: bytes, own: bytes) -> bool:
    """The other end is here, and nobody has it any more: it has said that it sends nothing more."""
    wanted = [backlog.as_proc_says(other), backlog.as_proc_says(own)]
    return any(words[1:3] == wanted and int(words[3], 16) == _FIN_WAIT2 and words[9] == "0"
               for words in backlog.tcp_lines())


def _is_on_its_way(this: socket.socket, other: bytes | None, inside: Inside) -> bool:
    """Its other end has not been accepted yet, or is closed and this one will be; of one that is just being connected
    the kernel does not say the other end."""
    if this.family == socket.AF_UNIX:
        return other in inside.listens
    if this.type != socket.SOCK_STREAM:
        return False
    state = this.getsockopt(_TCP, socket.TCP_INFO, 1)[0]
    if other is None:
        return state == _SYN_SENT
    return state == _CLOSE_WAIT or other[2:4] in {name[2:4] for name in inside.listens}


def _counted(this: socket.socket) -> tuple[int, int]:
    """Bytes of a TCP connection that the other end has acknowledged, and bytes received."""
    info = this.getsockopt(_TCP, socket.TCP_INFO, 136)
    return struct.unpack_from("=QQ", info, 120) if len(info) == 136 else (0, 0)


def _on_its_way(this: socket.socket, other: tuple[int, int] | None) -> int:
    """Bytes sent that have not reached the other end. The loopback device delivers soon, unless the receiver has no
    room; but the acknowledgment can take 40 ms, for which the sender may hold back more (Nagle): it is told not to. For
    whoever connected the beginning counts as a byte."""
    waits = this.getsockopt(_TCP, socket.TCP_NODELAY)
    this.setsockopt(_TCP, socket.TCP_NODELAY, 1)
    this.setsockopt(_TCP, socket.TCP_NODELAY, waits)
    for _ in range(30):
        unacknowledged, = struct.unpack("i", fcntl.ioctl(this.fileno(), termios.TIOCOUTQ, bytes(4)))
        if not unacknowledged:
            break
        if other:
            with closing(taken(*other)) as there:
                if _counted(this)[0] + unacknowledged == _counted(there)[1]:
                    return 0
        time.sleep(0.002)
    return int(unacknowledged)


def _connection(this: socket.socket, inside: Inside) -> tuple[str, list[str]]:
    """Within the run: why it cannot come back, or what it is like."""
    names = _name(this) or b"", _name(this, of_peer=True) or b""
    if unsent := dict(inside.unsent).get(names):
        return f"has {unsent} bytes sent that have not reached the other end yet", []
    if unread.has_mark(this):
        return f"holds {unread.URGENT}", []
    count = unread.to_read(this)
    data = this.recv(count, socket.MSG_PEEK | socket.MSG_DONTWAIT) if count else b""
    if len(data) != count or count > _MOST_WAITING:
        return f"holds {count} bytes, more than can be given back", []
    server = names[0][2:4] in {name[2:4] for name in inside.listens}
    return "", [f"shut: {_shut(this)}", f"server: {int(server)}", *([f"waiting: {data.hex()}"] if data else [])]


def _shut(this: socket.socket, unix: Mapping[int, bytes] | None = None) -> int:
    if this.family == socket.AF_UNIX:
        return (unix or {}).get(6, bytes(1))[0]
    return 2 if this.getsockopt(_TCP, socket.TCP_INFO, 1)[0] in _SHUT else 0


def _name(this: socket.socket, of_peer: bool = False) -> bytes | None:
    """A sockaddr as it is; None without one."""
    buffer, length = ffi.new("char[]", _SOCKADDR), ffi.new("uint32_t *", _SOCKADDR)
    if lib.mm_name_of_socket(this.fileno(), of_peer, buffer, length) < 0:
        return None
    return bytes(ffi.buffer(buffer, min(length[0], _SOCKADDR)))


def _is_bound(family: int, name: bytes) -> bool:
    return len(name) > 2 if family == socket.AF_UNIX else name[2:4] != b"\0\0"


def path_of(name: bytes) -> bytes:
    """Of a unix socket that has a name in a folder."""
    return name[2:].rstrip(b"\0") if name[:2] == struct.pack("=H", socket.AF_UNIX) and name[2:3] != b"\0" else b""


def address_text(name: bytes) -> str:
    """For people."""
    family, = struct.unpack_from("=H", name)
    if family == socket.AF_UNIX:
        text = os.fsdecode(name[2:].rstrip(b"\0") if name[2:3] != b"\0" else b"@" + name[3:])
        return text or "another process"
    port, = struct.unpack_from(">H", name, 2)
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(family, name[4:8])}:{port}"
    return f"[{socket.inet_ntop(family, name[8:24])}]:{port}"


def _options(this: socket.socket) -> list[str]:
    with closing(socket.socket(this.family, this.type, this.proto)) as new:
        return [f"option: {level} {name} {value.hex()}" for level, name in _options_of(this.family, this.type)
                if (value := _value(this, level, name)) and value != _value(new, level, name)]


def _options_of(family: int, kind: int) -> list[tuple[int, int]]:
    levels = [_SOCKET]
    if family != socket.AF_UNIX:
        levels += [_IP] if family == socket.AF_INET else [_IPV6, _IP]
        levels += [_TCP] if kind == socket.SOCK_STREAM else []
    return [(level, name) for level in levels for name in _OPTIONS[level]]


def _value(this: socket.socket, level: int, name: int) -> bytes:
    try:
        return this.getsockopt(level, name, 64)
    except OSError:
        return b""                         # this kernel, or this kind of socket, does not know it


# -- unix sockets -------------------------------------------------------------------------------------


def _unix(inode: int) -> dict[int, bytes]:
    """The kernel's attributes (UNIX_DIAG_*) of one: 1 file, 2 other end, 3 backlog, 4 queues, 6 ends that are shut."""
    asked = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xffffffff, inode, 2 | 4 | 8 | 0x10, 0xffffffff, 0xffffffff)
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4)) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(asked), 20, 1, 1, 0) + asked)
        answer = kernel.recv(65536)
    if struct.unpack_from("=H", answer, 4)[0] != 20:
        raise OSError(errno.EOPNOTSUPP, "the kernel does not say where it leads")
    found, at = {}, 32
    while at + 4 <= len(answer):
        length, kind = struct.unpack_from("=HH", answer, at)
        found[kind] = answer[at + 4:at + length]
        at += max(4, (length + 3) & ~3)
    return found


def _number(attributes: dict[int, bytes], kind: int) -> int:
    return int(struct.unpack("=I", attributes[kind][:4])[0]) if kind in attributes else 0


def _is_pair(this: socket.socket, unix: dict[int, bytes], own: bytes | None, other: bytes | None,
             inside: Inside) -> bool:
    """Both ends in the run, or the other one closed."""
    if 2 not in unix or (this.type == socket.SOCK_DGRAM and ((own and len(own) > 2) or (other and len(other) > 2))):
        return False
    if _number(unix, 2) in inside.inodes:
        return True
    closed = unix.get(6) == b"\3" or this.type == socket.SOCK_DGRAM
    return closed and _number(unix, 2) == 0


def _is_there(place: bytes, unix: dict[int, bytes]) -> bool:
    try:
        st = os.stat(place)
    except OSError:
        return False
    return stat.S_ISSOCK(st.st_mode) and (1 not in unix or _number(unix, 1) == st.st_ino & 0xffffffff)


def is_unix_with_unread(this: socket.socket) -> bool:
    is_connection = this.family == socket.AF_UNIX and not this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN)
    return is_connection and unread.to_read(this) > 0


def _waiting(this: socket.socket, inside: Inside) -> Sequence[Sent] | str:
    if known := inside.sent.get(os.fstat(this.fileno()).st_ino):
        return known
    found = unread.waiting(this)
    return found if isinstance(found, str) else [(data, sender, ()) for data, sender, _ in found]


def _datagrams(this: socket.socket, inside: Inside) -> list[str] | str:
    """Lines of those that sockets in the run can send again; of others, of another machine's, none."""
    poll = select.poll()
    poll.register(this, select.POLLIN)
    events = dict(poll.poll(0)).get(this.fileno(), 0)
    if events & select.POLLERR:            # whoever looks at messages would take the error from the program
        return "messages, and an error that was not read" if events & select.POLLIN else []
    waiting, found = _waiting(this, inside), []
    if isinstance(waiting, str):
        return waiting
    for data, sender, places in waiting:
        own = _bound_to(_sockaddr(this.family, sender), inside.datagrams)
        if this.family != socket.AF_UNIX and own is None:
            continue
        if sender and own is None:
            return "a message of a socket that is closed"
        found.append(" ".join(["datagram:", data.hex(), (own or b"").hex(), *places]))
    return found


def _sockaddr(family: int, address: Any) -> bytes:
    """Of a sender, as Python says it."""
    if family == socket.AF_UNIX:
        name = os.fsencode(address or b"")
        return struct.pack("=H", family) + name + (b"\0" if name[:1] not in (b"", b"\0") else b"")
    if not address:
        return b""
    port = struct.pack(">H", address[1])
    host = socket.inet_pton(family, address[0].partition("%")[0])
    if family == socket.AF_INET:
        return struct.pack("=H", family) + port + host + bytes(8)
    return struct.pack("=H", family) + port + struct.pack(">I", address[2]) + host + struct.pack("=I", address[3])


def _bound_to(name: bytes, names: Collection[bytes]) -> bytes | None:
    """Which socket of the run has an address: its own, or that port at every one of this machine."""
    if name in names or name[:2] == struct.pack("=H", socket.AF_UNIX):
        return name if name in names else None
    anywhere = name[:4] + bytes(max(0, len(name) - 4))
    return anywhere if anywhere in names and _is_here(name) else None


def _is_here(name: bytes) -> bool:
    """An address of this machine: a socket can have it, at some port."""
    family, = struct.unpack_from("=H", name)
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as tries:
        return lib.mm_bind(tries.fileno(), name[:2] + bytes(2) + name[4:], len(name)) == 0
