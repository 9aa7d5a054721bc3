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


def name_of(this: socket.socket, of_peer: bool = False) -> bytes | None:
    """A sockaddr as it is; None without one."""
    buffer, length = ffi.new("char[]", _SOCKADDR), ffi.new("uint32_t *", _SOCKADDR)
    if lib.mm_name_of_socket(this.fileno(), of_peer, buffer, length) < 0:
        return None
    return bytes(ffi.buffer(buffer, min(length[0], _SOCKADDR)))


def is_bound(family: int, name: bytes) -> bool:
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
