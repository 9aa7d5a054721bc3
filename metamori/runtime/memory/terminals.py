"""Pseudoterminals of a run's own: one process has the master, others the slave. Settings and size are saved; what is on
its way must have been read.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from contextlib import contextmanager

from metamori._area import lib
from metamori.runtime.memory import proc_inspect
from metamori.runtime.memory.proc_inspect import NotBegun, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from metamori.runtime.memory.proc_look import Stat

    class Open(Protocol):
        """A descriptor of a process."""

        pid: int
        fd: int
        path: bytes
        info: bytes
        st: Stat

SETTINGS, SIZE = 36, 8                     # bytes of the kernel's struct termios and of struct winsize
_PACKETS = 0x80045438                      # TIOCGPKT
_TERMINAL = 4                              # of the words of /proc/PID/stat: the controlling one


@contextmanager
def _taken(this: Open) -> Iterator[int]:
    """The very same, in this process: opened anew a master would be another one."""
    process = os.pidfd_open(this.pid)
    try:
        fd = lib.mm_take_descriptor(process, this.fd)
    finally:
        os.close(process)
    if fd < 0:
        raise Refused(f"descriptor {this.fd} is a terminal that cannot be looked at ({os.strerror(-fd)})")
    try:
        yield fd
    finally:
        os.close(fd)


def look(this: Open) -> bytes:
    """What an entry says of one end. Refused, NotBegun."""
    is_master = this.path in proc_inspect.MASTERS
    number = int(proc_inspect.numbers(this.info, "tty-index")[0]) if is_master else os.minor(this.st.st_rdev)
    if int(proc_inspect.stat_words(this.pid)[_TERMINAL]) == os.makedev(136, number):
        raise Refused(f"descriptor {this.fd} is the controlling terminal of its process, which cannot come back")
    with _taken(this) as fd:
        poll = select.poll()               # which has the kernel pass on what is on its way
        poll.register(fd, select.POLLIN)
        if dict(poll.poll(0)).get(fd, 0) & select.POLLIN:
            raise NotBegun(f"descriptor {this.fd} is a terminal of the run's own that holds unread bytes")
        if is_master and struct.unpack("i", fcntl.ioctl(fd, _PACKETS, bytes(4)))[0]:
            raise Refused(f"descriptor {this.fd} is a terminal in packet mode, which cannot come back")
        data = fcntl.ioctl(fd, termios.TCGETS, bytes(SETTINGS)) + fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(SIZE))
    return b"%s %d %s" % (b"master" if is_master else b"slave", number, data.hex().encode())
