"""What the kernel says of unix sockets beside what they say themselves (sock_diag)."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Collection
from contextlib import closing, suppress


def attributes(inode: int) -> dict[int, bytes]:
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


def number(attributes: dict[int, bytes], kind: int) -> int:
    return int(struct.unpack("=I", attributes[kind][:4])[0]) if kind in attributes else 0


def is_pair(this: socket.socket, unix: dict[int, bytes], own: bytes | None, other: bytes | None,
            inodes: Collection[int]) -> bool:
    """Both ends in the run, or the other one closed."""
    if 2 not in unix or (this.type == socket.SOCK_DGRAM and ((own and len(own) > 2) or (other and len(other) > 2))):
        return False
    if number(unix, 2) in inodes:
        return True
    closed = unix.get(6) == b"\3" or this.type == socket.SOCK_DGRAM
    return closed and number(unix, 2) == 0


def is_there(place: bytes, unix: dict[int, bytes]) -> bool:
    try:
        st = os.stat(place)
    except OSError:
        return False
    return stat.S_ISSOCK(st.st_mode) and (1 not in unix or number(unix, 1) == st.st_ino & 0xffffffff)


def found(place: bytes, unix: dict[int, bytes]) -> bytes:
    """Where it is: it may have been renamed since, in its folder; b"": nowhere there."""
    if is_there(place, unix):
        return place
    with suppress(OSError), os.scandir(os.path.dirname(place)) as entries:
        for each in entries:
            if each.inode() & 0xffffffff == number(unix, 1) and is_there(each.path, unix):
                return each.path
    return b""
