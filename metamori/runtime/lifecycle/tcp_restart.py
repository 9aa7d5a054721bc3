"""Connections between processes that come back together: both ends made again, with what was on its way."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from metamori._area import lib
from metamori.runtime.lifecycle import child_loop
from metamori.runtime.memory.socket_names import address_text, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _Made = TypeVar("_Made")

_PATIENCE_S = 3.0                          # what is left of a killed connection keeps its place for a second
Fields = dict[str, list[str]]
Ends = list[tuple[Fields, socket.socket]]


def _address(fields: Fields, which: str = "address") -> bytes:
    return bytes.fromhex(fields[which][0])


def _names(fields: Fields) -> tuple[bytes, bytes]:
    """Of both ends."""
    return plain(_address(fields)), plain(_address(fields, "to"))


def made(sockets: Sequence[Fields]) -> Ends:
    """Connected, empty; before the sockets that listen at their ports."""
    by_name = {_names(each): each for each in sockets}
    for (own, other), fields in list(by_name.items()):
        if (other, own) not in by_name:    # whoever had it has closed it
            by_name[other, own] = {**fields, "address": fields["to"], "to": fields["address"], "closes": [],
                                   "shut": ["0"], "option": [], "waiting": [],
                                   "server": [str(1 - int(fields["server"][0]))]}
    found: Ends = []
    for (own, other), fields in by_name.items():
        peer = by_name[other, own]
        if fields["server"] == ["1"] or (peer["server"] == ["0"] and own < other):
            server, client = _connected(fields, peer)
            found += [(fields, server), (peer, client)]
    return found


def fill(ends: Ends) -> None:
    """What each was about to read is sent by the other one; then those are shut or closed that were."""
    by_name = {_names(fields): end for fields, end in ends}
    for fields, _ in ends:
        other = by_name[_names(fields)[::-1]]
        other.setblocking(False)
        for data in fields.get("waiting", []):
            if other.send(bytes.fromhex(data)) != len(data) // 2:
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
    for fields, end in ends:
        if "closes" in fields:
            end.close()
        elif shut := int(fields["shut"][0]):
            end.shutdown(shut - 1)         # SHUT_RD, SHUT_WR, SHUT_RDWR


def _new(fields: Fields, at: bytes) -> socket.socket:
    family, kind, protocol = map(int, fields["socket"][0].split())
    this = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    this.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if number := -lib.mm_bind(this.fileno(), at, len(at)):
        this.close()
        raise OSError(number, f"{address_text(at)}: {os.strerror(number)}")
    return this


def _connected(server: Fields, client: Fields) -> tuple[socket.socket, socket.socket]:
    """The end that accepts, and the other one; at another port where somebody else has theirs."""
    own, other = _address(server), _address(client)
    deadline = time.monotonic() + _PATIENCE_S
    for taken, at in ((b"", other), (other, _any_port(other))):
        found = _when_free(partial(_once, server, own, client, at), deadline)
        if found:
            if taken:
                _say_moved(taken, own)
            return found
    found = _once(server, _any_port(own), client, _any_port(other))
    _say_moved(own, other)
    return found


def _when_free(make: Callable[[], _Made], deadline: float) -> _Made | None:
    """None: until then somebody else had the port."""
    while True:
        try:
            return make()
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                raise
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)


def asking(fields: Fields, own: bytes, to: bytes) -> socket.socket:
    """Connected to one that listens, from the same port if it is free."""
    this = _when_free(partial(_asks, fields, own, to), time.monotonic() + _PATIENCE_S)
    if this:
        return this
    this = _asks(fields, _any_port(own), to)
    _say_moved(own, to)
    return this


def _asks(fields: Fields, own: bytes, to: bytes) -> socket.socket:
    return _connect(_new(fields, own), to)


def _connect(this: socket.socket, to: bytes) -> socket.socket:
    """Without waiting in the call: for the kernel nobody has heard yet that it is connected, and a program that was in
    the middle of it may call again."""
    this.setblocking(False)
    number = -lib.mm_connect(this.fileno(), to, len(to))
    if number == errno.EINPROGRESS:
        poll = select.poll()
        poll.register(this, select.POLLOUT)
        is_done = poll.poll(_PATIENCE_S * 1000)
        number = this.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if is_done else errno.ETIMEDOUT
    if number:
        this.close()
        raise OSError(number, f"{address_text(to)}: {os.strerror(number)}")
    return this


def _say_moved(taken: bytes, to: bytes) -> None:
    child_loop.say(f"{address_text(taken)} is in use: the program's connection from there to {address_text(to)} "
                   "has another port now")


def _any_port(name: bytes) -> bytes:
    return name[:2] + struct.pack(">H", 0) + name[4:]


def _once(server: Fields, own: bytes, client: Fields, other: bytes) -> tuple[socket.socket, socket.socket]:
    """At these addresses. One end may be of IPv6 where the other is of IPv4."""
    with closing(_new(server, own)) as listens:
        listens.listen(1)
        to, port = _address(client, "to"), struct.pack(">H", listens.getsockname()[1])
        connects = _connect(_new(client, other), to[:2] + port + to[4:])
        accepted, _ = listens.accept()
        accepted.set_inheritable(False)
        return accepted, connects
