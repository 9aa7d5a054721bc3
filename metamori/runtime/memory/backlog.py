"""Connections that nobody has accepted yet: one end is in the run, its other end only in the backlog of a socket of the
run that listens. They are made again, in their order, when that one listens (lifecycle/socket_restart.py).

What was sent over one cannot be looked at before somebody accepts it, nor who closed it: whoever listens is waited for
(tree.py).
"""

from __future__ import annotations

import fcntl
import heapq
import socket
import struct
import termios
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing

from metamori.tables.record import record

_ESTABLISHED, _FIN_WAIT1, _CLOSE_WAIT = 1, 4, 8   # of the kernel's list of states of TCP
_MAPPED = "0000000000000000FFFF0000"       # what /proc writes before an address of IPv4 in one of IPv6
_LAST_SENT = struct.Struct("=44xI")        # tcpi_last_data_sent: of one that has sent nothing since it was connected
_LISTENS = struct.Struct("=24xII")         # tcpi_unacked, tcpi_sacked: of one that listens, how many wait, and may
_TICKS, _TRIES = 6, 50                    # CLOCK_MONOTONIC_COARSE
_BATCH = 1024                              # LAST_INO_BATCH of the kernel's fs/inode.c


@record
class Asks:
    """A connection. turn: of those of the same listener, whose inode that is (0: of TCP); holds: for people, ""."""

    listener: int
    turn: int
    holds: str = ""


def of_unix(this: socket.socket, listener: int, turn: int) -> Asks:
    count, = struct.unpack("i", fcntl.ioctl(this.fileno(), termios.TIOCOUTQ, bytes(4)))    # as memory for it
    return Asks(listener, turn, "holds what was sent" if count else "")


def of_tcp(clients: Mapping[int, tuple[bytes, bytes]], listens: Collection[bytes],
           taken: Callable[[int], socket.socket]) -> dict[int, Asks]:
    """By inode, of sockets with both names whose other end no process has. clients: in the order of processes, and of
    descriptors within each. The kernel says to a tick of its clock when each was connected."""
    asked = {inode: names for inode, names in clients.items() if _listens(names[1], listens)}
    queued = _queued() if asked else {}
    found = {inode: queued[ends] for inode, (own, other) in asked.items() for mapped in (False, True)
             if (ends := (as_proc_says(other, mapped), as_proc_says(own, mapped))) in queued}
    ages: dict[int, tuple[int, bool]] = {}
    for _ in range(_TRIES if found else 0):
        before = time.clock_gettime(_TICKS)
        ages = {inode: _age(taken(inode)) for inode in found}
        if time.clock_gettime(_TICKS) == before:
            break
    in_order = _in_order({inode: age for inode, (age, _) in ages.items()}, clients)
    return {inode: Asks(0, turn, "holds what was sent" if found[inode] or ages[inode][1] else "")
            for turn, inode in enumerate(in_order)}


def _in_order(ages: Mapping[int, int], clients: Iterable[int]) -> Iterable[int]:
    """Oldest first. Within a tick sockets were made in the order of their inodes, if these are of one batch: each
    processor gives away those of its own. Else those of earlier processes come first, and lower descriptors."""
    batches: dict[tuple[int, int], list[int]] = {}
    for inode in sorted(ages):
        batches.setdefault((ages[inode], (inode - 1) // _BATCH), []).append(inode)
    place = {inode: number for number, inode in enumerate(clients)}
    return heapq.merge(*batches.values(), key=lambda inode: (-ages[inode], place[inode]))


def most(this: socket.socket, unix: Mapping[int, bytes]) -> int:
    """That may wait at one that listens."""
    if this.family == socket.AF_UNIX:
        return struct.unpack_from("=II", unix[4])[1] if 4 in unix else socket.SOMAXCONN
    try:
        return int(_LISTENS.unpack(this.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LISTENS.size))[1])
    except OSError:
        return socket.SOMAXCONN


def closed(this: socket.socket, name: bytes, known: Collection[tuple[bytes, bytes]]) -> bool:
    """Whether nobody has accepted a TCP connection to one that listens, and its client, here, has closed it. known:
    both names of those whose client the run has."""
    if not _LISTENS.unpack(this.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LISTENS.size))[0]:
        return False
    clients = {(as_proc_says(other, mapped), as_proc_says(own, mapped)) for own, other in known
               for mapped in (False, True)}
    lines = [(words[1], words[2], int(words[3], 16), words[9]) for words in tcp_lines()]
    alive = {(other, own) for own, other, _, inode in lines if inode != "0"}
    return any(state == _CLOSE_WAIT and inode == "0" and (own, other) not in clients | alive
               and _is_at(own, name) and _is_of_here(own, other) for own, other, state, inode in lines)


def _is_at(own: str, name: bytes) -> bool:
    """As /proc says it: of one that listens at a name, which may be every address."""
    at, anywhere = as_proc_says(name), not any(_address(name))
    return own == at or own == as_proc_says(name, mapped=True) or (anywhere and own[-5:] == at[-5:])


def _is_of_here(own: str, other: str) -> bool:
    """Of this machine: its own address, or one of the loopback device."""
    return own[:-5] == other[:-5] or other[:-5].endswith("7F")


def _listens(name: bytes, listens: Collection[bytes]) -> bool:
    """At an address, or at every one."""
    return name in listens or any(each[2:4] == name[2:4] and not any(_address(each)) for each in listens)


def _age(this: socket.socket) -> tuple[int, bool]:
    """Milliseconds since it was connected, if it has sent nothing; and whether it has, without having got there."""
    with closing(this):
        info = this.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_SENT.size)
        count, = struct.unpack("i", fcntl.ioctl(this.fileno(), termios.TIOCOUTQ, bytes(4)))
    return _LAST_SENT.unpack(info)[0], count > (info[0] == _FIN_WAIT1)     # that nothing more comes counts as a byte


def _queued() -> dict[tuple[str, str], int]:
    """By both names: bytes that have come to an end which nobody has accepted."""
    found = {}
    for words in tcp_lines():
        if words[9] == "0" and int(words[3], 16) in (_ESTABLISHED, _CLOSE_WAIT):
            came = int(words[4].partition(":")[2], 16)
            found[words[1], words[2]] = came - (int(words[3], 16) == _CLOSE_WAIT and came > 0)
    return found


def tcp_lines() -> Iterable[list[str]]:
    """As /proc/net has them."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                next(file)
                yield from map(str.split, file)
        except FileNotFoundError:
            continue                       # a kernel without IPv6


def as_proc_says(name: bytes, mapped: bool = False) -> str:
    """mapped: an address of IPv4 as IPv6 has it."""
    address = _address(name)
    words = struct.unpack(f"={len(address) // 4}I", address)
    text = "".join(f"{word:08X}" for word in words)
    return (_MAPPED if mapped and len(address) == 4 else "") + text + f":{struct.unpack_from('>H', name, 2)[0]:04X}"


def _address(name: bytes) -> bytes:
    return name[8:24] if len(name) > 16 else name[4:8]
