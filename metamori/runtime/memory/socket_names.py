"""Names of sockets: a sockaddr as the kernel has it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection
from contextlib import closing
from typing import Any

from metamori._area import ffi, lib

_SOCKADDR = 128
_INET, _INET6 = (struct.pack("=H", family) for family in (socket.AF_INET, socket.AF_INET6))
_MAPPED = bytes(10) + b"\xff\xff"


def name_of(this: socket.socket, of_peer: bool = False) -> bytes | None:
    """A sockaddr as it is; None without one."""
    buffer, length = ffi.new("char[]", _SOCKADDR), ffi.new("uint32_t *", _SOCKADDR)
    if lib.mm_name_of_socket(this.fileno(), of_peer, buffer, length) < 0:
        return None
    return bytes(ffi.buffer(buffer, min(length[0], _SOCKADDR)))


def is_bound(family: int, name: bytes) -> bool:
    return len(name) > 2 if family == socket.AF_UNIX else name[2:4] != b"\0\0"


def plain(name: bytes) -> bytes:
    """An address of IPv4 that a socket of IPv6 has, as the other end has it that is one of IPv4."""
    if name[:2] != _INET6 or not name[8:].startswith(_MAPPED):
        return name
    return _INET + name[2:4] + name[20:24] + bytes(8)


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


def sockaddr(family: int, address: Any) -> bytes:
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


def bound_to(name: bytes, names: Collection[bytes]) -> bytes | None:
    """Which of these addresses of sockets another one (`plain`) is: that itself, or its port at every one of this
    machine. A socket may have one of IPv6 where this is of IPv4."""
    if name in names or name[:2] == struct.pack("=H", socket.AF_UNIX):
        return name if name in names else None
    alike = [each for each in names if each[2:4] == name[2:4]]
    found = next((each for each in alike if plain(each) == name), None)
    if found is None and (anywhere := [each for each in alike if _is_any(each) and each[:2] in (name[:2], _INET6)]):
        return next((each for each in anywhere if each[:2] == name[:2]), anywhere[0]) if _is_here(name) else None
    return found


def _is_any(name: bytes) -> bool:
    return not any(name[4:8] if name[:2] == _INET else name[8:24])


def reaches(name: bytes, names: Collection[bytes]) -> bool:
    """Whether a socket of the run has it."""
    return bound_to(plain(name), names) is not None


def _is_here(name: bytes) -> bool:
    """An address of this machine: a socket can have it, at some port."""
    family, = struct.unpack_from("=H", name)
    with closing(socket.socket(family, socket.SOCK_DGRAM)) as tries:
        return lib.mm_bind(tries.fileno(), name[:2] + bytes(2) + name[4:], len(name)) == 0
