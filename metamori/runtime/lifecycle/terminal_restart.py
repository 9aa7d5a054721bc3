"""Pseudoterminals of programs that come back: new ones with the old settings."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Sequence

from metamori.runtime.lifecycle.descriptor_restart import up
from metamori.runtime.memory.terminals import SETTINGS
from metamori.store.format.records import DescriptorEntry

_UNLOCK, _PEER = 0x40045431, 0x5441        # TIOCSPTLCK, TIOCGPTPEER


def made(entries: Sequence[DescriptorEntry], base: int) -> list[int]:
    """A descriptor for each, out of the way."""
    masters: dict[bytes, int] = {}
    found, slaves = [], set()
    for each in entries:
        _, number, data = each.data.split()
        if number not in masters:
            masters[number] = up(_master(bytes.fromhex(data.decode())), base)
    for each in entries:
        end, number, _ = each.data.split()
        master = masters[number]
        if end == b"master":
            found.append(up(os.dup(master), base))
            os.set_blocking(found[-1], not each.flags & os.O_NONBLOCK)
        else:
            slaves.add(number)
            way = each.flags & (os.O_ACCMODE | os.O_NONBLOCK)
            found.append(up(fcntl.ioctl(master, _PEER, way | os.O_NOCTTY | os.O_CLOEXEC), base))
    for number, master in masters.items():
        if number not in slaves:           # nobody has it any more
            os.close(fcntl.ioctl(master, _PEER, os.O_RDWR | os.O_NOCTTY))
        os.close(master)
    return found


def _master(data: bytes) -> int:
    fd = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(fd, _UNLOCK, struct.pack("i", 0))
    fcntl.ioctl(fd, termios.TCSETS, data[:SETTINGS])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, data[SETTINGS:])
    return fd
