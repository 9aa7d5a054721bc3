"""Sockets of a program that comes back, made from what sockets.py found of them."""

from __future__ import annotations

import array
import errno
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing, suppress
from functools import cached_property
from typing import Any

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.lifecycle import tcp_restart
from metamori.runtime.lifecycle.descriptor_restart import Place, go_to, place_of, up
from metamori.runtime.memory import unix_sockets
from metamori.runtime.memory.socket_connections import taken
from metamori.runtime.memory.socket_names import address_text, bound_to, name_of, path_of
from metamori.store.format.records import DescriptorEntry

_SOCKET = socket.SOL_SOCKET
_SHUT = {1: socket.SHUT_RD, 2: socket.SHUT_WR, 3: socket.SHUT_RDWR}
_UNIX = -socket.AF_UNIX                    # no kind of socket
# to be set when what the socket held is there: they would keep that back, cut it up, or not let it in (SO_PASSRIGHTS;
# IP_OPTIONS; what IPv6 sends with each packet; TCP_CORK, TCP_TX_DELAY; UDP_CORK, UDP_SEGMENT)
_LATE = {(_SOCKET, 83), (0, 4), (41, 54), (41, 55), (41, 57), (41, 59), (6, 3), (6, 37), (17, 1), (17, 103)}
_HALVED = {(_SOCKET, socket.SO_SNDBUF), (_SOCKET, socket.SO_RCVBUF)}   # the kernel doubles what it is given


class InUse(MetamoriError):
    """Somebody else has the address that the program had."""

    errno = errno.EBUSY

    def __init__(self, entry: DescriptorEntry, name: str = "address") -> None:
        where = address_text(_address(_fields(entry), name))
        super().__init__(f"{where} is in use, where the program had the socket of descriptor {entry.descriptor}")


def _fields(entry: DescriptorEntry) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in entry.data.decode().splitlines():
        name, value = line.split(": ", 1)
        found.setdefault(name, []).append(value)
    return found


def _address(fields: dict[str, list[str]], name: str = "address") -> bytes:
    return bytes.fromhex(fields.get(name, [""])[0])


def _paths(fields: dict[str, list[str]], name: str = "address") -> list[bytes]:
    """Of a unix socket: that which it was bound to, and that by which it is called since."""
    path = path_of(_address(fields, name))
    called = bytes.fromhex(fields["called"][0]) if "called" in fields and name == "address" else os.path.basename(path)
    return [*dict.fromkeys((path, os.path.join(os.path.dirname(path), called)))] if path else []


class _Sockets:
    """Of processes that are alive and go back: what these have is free by then."""

    def __init__(self, pids: Collection[int]) -> None:
        self._pids = pids

    @cached_property
    def _found(self) -> set[tuple[int, int | bytes]]:
        """Kinds and ports of both ends; of unix sockets names, and numbers of their files."""
        found: set[tuple[int, int | bytes]] = set()
        for pid in self._pids:
            with suppress(OSError):        # it ends
                for fd in map(int, os.listdir(f"/proc/{pid}/fd")):
                    with suppress(OSError):
                        link = os.readlink(f"/proc/{pid}/fd/{fd}")
                        if link.startswith("socket:"):
                            found |= self._of(pid, fd, int(link[8:-1]))
        return found

    def _of(self, pid: int, fd: int, inode: int) -> set[tuple[int, int | bytes]]:
        with closing(taken(pid, fd)) as this:
            found = {_place(this, name) for name in (name_of(this), name_of(this, of_peer=True)) if name}
            if this.family == socket.AF_UNIX:
                found.add((_UNIX, unix_sockets.number(unix_sockets.attributes(inode), 1)))
            return found

    def have(self, this: socket.socket, address: bytes) -> bool:
        return _place(this, address) in self._found

    def have_name(self, path: bytes) -> bool:
        """Or it is no socket any more: the program's own files go back."""
        with suppress(OSError):
            st = os.lstat(path)
            return not stat.S_ISSOCK(st.st_mode) or (_UNIX, st.st_ino & 0xffffffff) in self._found
        return False


def _place(this: socket.socket, name: bytes) -> tuple[int, int | bytes]:
    return (_UNIX, name) if this.family == socket.AF_UNIX else (this.type, int.from_bytes(name[2:4], "big"))


def check(entries: Iterable[tuple[DescriptorEntry, bytes]], own: Collection[int] = ()) -> None:
    """InUse, while nothing has been touched. With the folder that its process was in. own: processes that are alive
    and go back; what they have is not asked for, and the rest for a moment only: one of them may want it just now."""
    ours = _Sockets(own)
    for entry, cwd in entries:
        if entry.kind != "socket":
            continue
        fields = _fields(entry)
        address = _address(fields)
        for name in ("address", "name"):   # the second is taken for a moment, also where nobody listens any more
            for path in _paths(fields, name):
                place = os.path.join(cwd, path)
                if not (own and ours.have_name(place)) and _taken(place, fields):
                    raise InUse(entry, name)
        if address and not path_of(address) and fields["state"][0] not in ("tcp", "asks"):
            with closing(_new(fields)) as this:
                if not (own and ours.have(this, address)):
                    _options(this, fields)
                    _bind(this, entry, address)


def sent_to(entry: DescriptorEntry) -> set[Place]:
    """Places of descriptors that are on their way to it."""
    fields = _fields(entry)
    return {place_of(word) for name, first in (("waiting", 1), ("datagram", 2))
            for line in fields.get(name, []) for word in line.split(" ")[first:]}


def again(entries: dict[Place, tuple[DescriptorEntry, bytes]], base: int, given: dict[Place, int],
          shared: dict[Place, Place]) -> None:
    """A descriptor for each, out of the way and closed on exec, joins those that are given already. With the folder
    that its process was in, where this one is then. shared: places of what others have. InUse, OSError."""
    sockets = [(entry, _fields(entry)) for entry, _ in entries.values()]
    folders = [cwd for _, cwd in entries.values()]
    pairs = {_inode(entry): fields for entry, fields in sockets if fields["state"] == ["pair"]}
    folder_of = dict(zip((_inode(entry) for entry, _ in sockets), folders, strict=True))
    ends, alone = _pairs(pairs, folder_of)
    connected = tcp_restart.made([fields for _, fields in sockets if fields["state"] == ["tcp"]])
    for (entry, fields), cwd in zip(sockets, folders, strict=True):
        if fields["state"][0] not in ("tcp", "pair", "asks"):
            go_to(cwd)
            ends[_inode(entry)] = _one(entry, fields)
    for fields, end in connected:          # the kernel lets listeners have their ports when these say that it may
        _options(end, fields)
    tcp_restart.fill(connected)
    called = {_inode(entry): paths[-1] for entry, fields in sockets if (paths := _paths(fields))}
    for entry, fields in sorted((each for each in sockets if each[1]["state"] == ["asks"]), key=_turn):
        listener = fields["turn"][0].split()[0]
        go_to(folder_of.get(listener, b"/"))
        ends[_inode(entry)] = _asking(fields, called.get(listener, b""))
    ends.update({_inode(entry): end for (entry, fields) in sockets for its, end in connected if its is fields})
    fds = {**given, **{place: ends[_inode(entry)].fileno() for place, (entry, _) in entries.items()}}
    carried = _Carried({**fds, **{place: fds[of] for place, of in shared.items() if of in fds}})
    _fill(pairs, ends, alone, carried)
    _send_again([(ends[_inode(entry)], fields) for entry, fields in sockets], folders, carried)
    for (entry, fields), cwd in zip(sockets, folders, strict=True):
        if fields["state"] == ["sends"]:
            go_to(cwd)
            to = _address(fields, "to")    # where nobody is there any more: as if he had gone later
            lib.mm_connect(ends[_inode(entry)].fileno(), to, len(to))
    for place, (entry, _) in entries.items():
        this = ends[_inode(entry)]
        _options(this, _fields(entry), is_filled=True)
        this.setblocking(not entry.flags & os.O_NONBLOCK)
        given[place] = up(this.detach(), base)


class _Carried:
    """Open descriptors by place, for messages that they come with."""

    def __init__(self, fds: dict[Place, int]) -> None:
        self._fds = fds

    def send(self, by: socket.socket, data: str, places: list[str], *to: Any) -> None:
        """Without waiting."""
        fds = array.array("i", [self._fds[place_of(each)] for each in places])
        by.setblocking(False)
        with_it = [(_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
        if by.sendmsg([bytes.fromhex(data)], with_it, 0, *to) != len(data) // 2:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))


def _inode(entry: DescriptorEntry) -> str:
    return os.fsdecode(entry.path).removeprefix("socket:[").rstrip("]")


def _new(fields: dict[str, list[str]]) -> socket.socket:
    family, kind, protocol = map(int, fields["socket"][0].split())
    return socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)


def _one(entry: DescriptorEntry, fields: dict[str, list[str]]) -> socket.socket:
    state, address = fields["state"][0], _address(fields)
    this = _broken(fields, state) if state in ("reset", "ended") else _new(fields)
    _options(this, fields)
    paths = _paths(fields)
    for path in paths:
        if _taken(path, fields):
            raise InUse(entry)
        if os.path.lexists(path):
            os.unlink(path)                # the old process has left it behind
    before = this.getsockopt(_SOCKET, socket.SO_REUSEADDR)
    if address:
        _bind(this, entry, address)
    if paths:
        os.chmod(paths[0], int(fields["mode"][0], 8))
        os.rename(paths[0], paths[-1])
    if state == "listens":
        _options(this, fields, is_filled=True)     # which those have that it accepts
        this.listen(int(fields["backlog"][0]))
    this.setsockopt(_SOCKET, socket.SO_REUSEADDR, before)  # not before: connections that come back have the port, too
    return this


def _turn(each: tuple[DescriptorEntry, dict[str, list[str]]]) -> int:
    return int(each[1]["turn"][0].split()[1])


def _asking(fields: dict[str, list[str]], called: bytes) -> socket.socket:
    """Connected to one that listens by now, by what that is called; nobody accepts it before the program does."""
    own, to = _address(fields), _address(fields, "to")
    if called:
        to = to[:2] + called + b"\0"
    this = tcp_restart.asking(fields, own, to) if own else _new(fields)
    _options(this, fields)
    this.setblocking(False)                # else a full backlog would be waited for
    if not own and (number := -lib.mm_connect(this.fileno(), to, len(to))):
        raise OSError(number, f"{address_text(to)}: {os.strerror(number)}")
    if shut := int(fields["shut"][0]):
        this.shutdown(_SHUT[shut])
    return this


def _send_again(sockets: Sequence[tuple[socket.socket, dict[str, list[str]]]], folders: Sequence[bytes],
                carried: _Carried) -> None:
    """Datagrams that were not read, from whoever sent them: before a connection lets in only those of one."""
    by_address = {_address(fields): this for this, fields in sockets
                  if this.type == socket.SOCK_DGRAM and _address(fields)}       # TCP's ports are others
    for (this, fields), cwd in zip(sockets, folders, strict=True):
        for line in fields.get("datagram", []):
            data, sender, *places = line.split(" ")
            go_to(cwd)
            with closing(socket.socket(this.family, this.type)) as nameless:
                name = bytes.fromhex(sender)
                by = by_address.get(bound_to(name, by_address) or b"", nameless)
                carried.send(by, data, places, _name_to(by, this, name))


def _name_to(by: socket.socket, this: socket.socket, sender: bytes) -> Any:
    """Its address; where the message came by IPv4, that of IPv4, as the socket that sends it names it."""
    address = this.getsockname()
    if this.family == socket.AF_UNIX or sender[:2] != struct.pack("=H", socket.AF_INET):
        return address
    host = address[0].rpartition(":")[2] or "127.0.0.1"
    return f"::ffff:{host}" if by.family == socket.AF_INET6 else host, address[1]


def _options(this: socket.socket, fields: dict[str, list[str]], is_filled: bool = False) -> None:
    """is_filled: what it held is there, for which smaller buffers may have no room."""
    for line in fields.get("option", []):
        words = line.split()
        level, name, data = int(words[0]), int(words[1]), bytes.fromhex(words[2])
        if (level, name) in _LATE and not is_filled:
            continue
        if (level, name) in _HALVED:
            size, = struct.unpack("=i", data)
            if not is_filled and size < this.getsockopt(level, name):
                continue
            data = struct.pack("=i", size // 2)
        try:
            this.setsockopt(level, name, data)
        except OSError:
            continue                       # what only root may set


def _bind(this: socket.socket, entry: DescriptorEntry, address: bytes) -> None:
    """What is left of the old process's connections does not count; somebody who listens does."""
    if this.type == socket.SOCK_STREAM:
        this.setsockopt(_SOCKET, socket.SO_REUSEADDR, 1)
    number = -lib.mm_bind(this.fileno(), address, len(address))
    if number:
        if number in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            raise InUse(entry)
        raise OSError(number, os.strerror(number))


def _taken(path: bytes, fields: dict[str, list[str]]) -> bool:
    """Whether a name belongs to somebody: it is no socket, or somebody answers at it."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return True
    except FileNotFoundError:
        return False
    family, kind, _ = map(int, fields["socket"][0].split())
    with closing(socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)) as asks:
        return asks.connect_ex(path) != errno.ECONNREFUSED


def _broken(fields: dict[str, list[str]], state: str) -> socket.socket:
    """A connection whose other end has reset it: reads and writes say ECONNRESET, then end of file and EPIPE. Or one
    that has ended both ways, with what was not read."""
    family, kind, _ = map(int, fields["socket"][0].split())
    if family == socket.AF_UNIX:
        this, other = socket.socketpair(family, kind)
        this.send(b"\0")                   # not read when the other end is closed: that is what a reset is here
        other.close()
        return this
    loopback = "127.0.0.1" if family == socket.AF_INET else "::1" if _has_ipv6() else "::ffff:127.0.0.1"
    with closing(socket.socket(family, kind)) as listens:
        listens.bind((loopback, 0))
        listens.listen(1)
        this = socket.socket(family, kind)
        this.connect(listens.getsockname())
        other, _ = listens.accept()
    if state == "ended":
        for data in fields.get("waiting", []):
            other.setblocking(False)
            if other.send(bytes.fromhex(data)) != len(data) // 2:
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        other.close()
        this.shutdown(socket.SHUT_WR)
    else:
        other.setsockopt(_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        other.close()
    return this


def _has_ipv6() -> bool:
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_STREAM)) as tries:
        try:
            tries.bind(("::1", 0))
        except OSError:
            return False
    return True


def _connected(family: int, kind: int, name: bytes) -> tuple[socket.socket, socket.socket]:
    """The end that was accepted at a name, and the other one."""
    path = path_of(name)
    with closing(socket.socket(family, kind)) as listens, closing(socket.socket(family, kind)) as connects:
        if path and os.path.lexists(path):
            os.unlink(path)                # whoever listens there comes after us, or nobody does any more
        if number := -(lib.mm_bind(listens.fileno(), name, len(name)) or 0):
            raise OSError(number, os.strerror(number))
        listens.listen(1)
        if number := -lib.mm_connect(connects.fileno(), name, len(name)):
            raise OSError(number, os.strerror(number))
        accepted, _ = listens.accept()
        if path:
            os.unlink(path)
        return accepted, connects.dup()


Ends = dict[str, socket.socket]            # by the inode that each had


def _pairs(pairs: dict[str, dict[str, list[str]]], folder_of: dict[str, bytes]) -> tuple[Ends, Ends]:
    """Both ends of pairs; and, by the end that is there, the other one, to be closed."""
    ends: Ends = {}
    alone: Ends = {}
    for inode, fields in pairs.items():
        if inode in ends:
            continue
        family, kind, _ = map(int, fields["socket"][0].split())
        accepted = next((each for each in (inode, fields["peer"][0]) if "name" in pairs.get(each, {})), "")
        if accepted:
            go_to(folder_of[accepted])
            two = _connected(family, kind, _address(pairs[accepted], "name"))
            ends[inode], other = two if accepted == inode else two[::-1]
        elif "to" in fields:               # whoever accepted it has closed it
            go_to(folder_of[inode])
            other, ends[inode] = _connected(family, kind, _address(fields, "to"))
        else:
            ends[inode], other = socket.socketpair(family, kind)
        if fields["peer"][0] in pairs:
            ends[fields["peer"][0]] = other
        else:
            alone[inode] = other
    for inode, fields in pairs.items():
        _options(ends[inode], fields)
    return ends, alone


def _fill(pairs: dict[str, dict[str, list[str]]], ends: Ends, alone: Ends, carried: _Carried) -> None:
    """With what was on its way between them; then those are shut that were."""
    for inode, fields in pairs.items():
        other = alone.get(inode) or ends[fields["peer"][0]]
        for line in fields.get("waiting", []):
            data, *places = line.split(" ")
            carried.send(other, data, places)
    for inode, fields in pairs.items():
        shut = int(fields["shut"][0])
        if shut and inode not in alone:
            ends[inode].shutdown(_SHUT[shut])
    for other in alone.values():
        other.close()
