"""The sockets of a run among each other: connections between them, whom nobody has accepted, what is on its way."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from metamori.runtime.memory import backlog, proc_inspect, unix_sockets, unread
from metamori.runtime.memory.socket_names import is_bound, name_of, plain
from metamori.tables.record import field, record

_SYN_SENT, _FIN_WAIT2, _CLOSE_WAIT = 2, 5, 8   # of the kernel's list of states of TCP
_TCP, _SOCKET = socket.IPPROTO_TCP, socket.SOL_SOCKET
Sent = tuple[bytes, Any, Sequence[str]]      # bytes, who sent them, places of descriptors that came with them


def taken(pid: int, fd: int) -> socket.socket:
    """The socket itself, for a moment."""
    return socket.socket(fileno=proc_inspect.descriptor(pid, fd))


@record
class Inside:
    """All sockets of the run: their inodes, names of both ends of connections (`plain`), addresses of who listens."""

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
                own, other = name_of(this), name_of(this, of_peer=True)
                if own and this.getsockopt(_SOCKET, socket.SO_ACCEPTCONN):
                    listens.add(plain(own))
                    servers[inode] = own
                    if this.family == socket.AF_UNIX:
                        waiting = _waiting_at(inode)
                        asks.update(_backlog_of(inode, waiting, sockets))
                        left.update([inode] if 0 in waiting else [])
                elif own and other and this.family != socket.AF_UNIX and this.type == socket.SOCK_STREAM:
                    names = plain(own), plain(other)
                    connections[names] = each.pid, each.fd
                    clients[names[0]] = inode
                elif own and this.type == socket.SOCK_DGRAM and is_bound(this.family, own):
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
    return [client for client, in struct.iter_unpack("=I", unix_sockets.attributes(listener).get(3, b""))]


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


def is_closed(other: bytes, own: bytes) -> bool:
    """The other end is here, and nobody has it any more: it has said that it sends nothing more."""
    wanted = [[backlog.as_proc_says(plain(name), mapped) for name in (other, own)] for mapped in (False, True)]
    return any(words[1:3] in wanted and int(words[3], 16) == _FIN_WAIT2 and words[9] == "0"
               for words in backlog.tcp_lines())


def is_on_its_way(this: socket.socket, other: bytes | None, inside: Inside) -> bool:
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
        unacknowledged = unread.to_send(this)
        if not unacknowledged:
            break
        if other:
            with closing(taken(*other)) as there:
                if _counted(this)[0] + unacknowledged == _counted(there)[1]:
                    return 0
        time.sleep(0.002)
    return unacknowledged
