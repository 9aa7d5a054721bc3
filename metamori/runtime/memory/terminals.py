"""Pseudoterminals of a run's own: one process has the master, others the slave, for some of them it is the controlling
terminal. What an entry says is words: which end, number, settings and size in hex, known numbers of the session and of
the group in the foreground (0: none), in hex what was typed and not read yet (-: nothing), and `packets` (TIOCPKT) or
`alone` (nobody has opened the slave yet).

What was written to the slave must have been read. What was typed only shows when lines are not put together: it is read
that way, and typed again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import termios
from contextlib import contextmanager

from metamori.runtime.memory import apart, proc_inspect
from metamori.runtime.memory.proc_inspect import NotBegun, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
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
PEER = 0x5441                              # TIOCGPTPEER
PACKETS = 0x5420                           # TIOCPKT
_HAS_PACKETS, _SESSION = 0x80045438, 0x5429    # TIOCGPKT, TIOCGSID
_LINES, _STOPS, _END, _LEAST = 2, 0x400, 4, 6  # ICANON, IXON, VEOF, VMIN
_FLAGS = struct.Struct("=IIII")            # of input, output, control, local: what the settings begin with
_MOST_TYPED = 4000                         # bytes that a terminal holds


def given(fd: int, members: Collection[int], known: Callable[[int], int]) -> bytes:
    """Of the run's own terminal: the group in its foreground, where it is not the run's, and that, else 0; its settings
    in hex, where one of the run's works there, and nobody else in a pipe with it."""
    try:
        group, own = os.tcgetpgrp(fd), os.getpgrp()
    except OSError:                        # it is none, or another session's
        return b""
    words = [b"0 0" if group == own else b"%d %d" % (known(group), known(own))]
    if os.isatty(0) and os.isatty(1) and (group == own or any(group == _group(each) for each in members)):
        words.append(fcntl.ioctl(fd, termios.TCGETS, bytes(SETTINGS)).hex().encode())
    return b" ".join(words)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@contextmanager
def _taken(this: Open) -> Iterator[int]:
    try:
        fd = proc_inspect.descriptor(this.pid, this.fd)
    except ProcessLookupError:
        raise                              # it has ended
    except OSError as error:
        raise Refused(f"descriptor {this.fd} is a terminal that cannot be looked at ({error.strerror})") from None
    try:
        yield fd
    finally:
        os.close(fd)


def look(this: Open, known: Callable[[int], int] = int, has_slave: bool = True) -> bytes:
    """What an entry says of one end. known: a process's number, of the kernel's. Refused, NotBegun."""
    is_master = this.path in proc_inspect.MASTERS
    number = int(proc_inspect.numbers(this.info, "tty-index")[0]) if is_master else os.minor(this.st.st_rdev)
    with _taken(this) as fd:
        data = fcntl.ioctl(fd, termios.TCGETS, bytes(SETTINGS)) + fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(SIZE))
        if not is_master:
            return b"slave %d %s" % (number, data.hex().encode())
        poll = select.poll()               # which has the kernel pass on what is on its way
        poll.register(fd, select.POLLIN)
        events = dict(poll.poll(0)).get(fd, 0)
        if events & select.POLLIN:         # or, in packet mode, what was done to the terminal
            raise NotBegun(f"descriptor {this.fd} is a terminal of the run's own that holds unread bytes")
        session, group = (known(_number(fd, which)) for which in (_SESSION, termios.TIOCGPGRP))
        flags = [b"packets"] * _has_packets(fd) + [b"alone"] * (not has_slave and not events & select.POLLHUP)
        typed = _typed(fd, data[:SETTINGS]) if has_slave else b""
        if len(typed) > _MOST_TYPED:
            raise Refused(f"descriptor {this.fd} is a terminal that holds more than {_MOST_TYPED} bytes unread")
    words = [b"master %d %s %d %d" % (number, data.hex().encode(), session, group), typed.hex().encode() or b"-"]
    return b" ".join(words + flags)


def is_hung_up(this: Open) -> bool:
    """Nobody has its master any more; another terminal may have its number."""
    with _taken(this) as fd:
        try:
            fcntl.ioctl(fd, termios.TCGETS, bytes(SETTINGS))
        except OSError as error:
            return error.errno == errno.EIO
    return False


def _has_packets(master: int) -> bool:
    return bool(struct.unpack("i", fcntl.ioctl(master, _HAS_PACKETS, bytes(4)))[0])


def set_packets(master: int, on: bool) -> None:
    fcntl.ioctl(master, PACKETS, struct.pack("i", on))


def _number(fd: int, which: int) -> int:
    try:
        return int(struct.unpack("i", fcntl.ioctl(fd, which, bytes(4)))[0])
    except OSError:                        # it is nobody's
        return 0


def _typed(master: int, settings: bytes) -> bytes:
    """Copied: when there is something, it is taken and typed again."""
    slave = fcntl.ioctl(master, PEER, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _arrived(slave)
        if not _FLAGS.unpack_from(settings)[3] & _LINES and not _count(slave):
            return b""                     # of a line that is not ended the kernel says nothing
        return apart.done(lambda: _copied(master, slave, settings))
    finally:
        os.close(slave)


def _copied(master: int, slave: int, settings: bytes) -> bytes:
    packets = _has_packets(master)
    set_packets(master, False)             # else this would be told to whoever has the master
    fcntl.ioctl(slave, termios.TCSETS, _as_bytes(settings))
    found = b""
    while count := _count(slave):
        found += os.read(slave, count)
    type_again(master, slave, found, settings)
    set_packets(master, packets)
    return found


def _count(slave: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, bytes(4)))[0])


def type_again(master: int, slave: int, data: bytes, settings: bytes) -> None:
    """Nothing of it is taken for a key that does something, or shown. Where lines are put together, a byte 0 is what
    the kernel keeps of the key that ends a file."""
    lines = _FLAGS.unpack_from(settings)[3] & _LINES
    end = next(byte for byte in range(255, 0, -1) if byte not in data)
    fcntl.ioctl(slave, termios.TCSETS, _as_bytes(settings, lines, end))
    if lines:
        data = data.replace(b"\0", bytes([end]))
    while data:
        data = data[os.write(master, data):]
        _arrived(slave)
    fcntl.ioctl(slave, termios.TCSETS, settings)


def _as_bytes(settings: bytes, lines: int = 0, end: int = 0) -> bytes:
    """Bytes as they are; lines: put together, as _LINES or 0."""
    given, output, control, _ = _FLAGS.unpack_from(settings)
    keys = bytearray(SETTINGS - _FLAGS.size)       # none; the first byte is the line discipline
    keys[1 + _END], keys[1 + _LEAST] = (end, 0) if lines else (0, 1)
    return _FLAGS.pack(given & _STOPS, output, control, lines) + keys  # a terminal that was stopped stays so


def _arrived(slave: int) -> None:
    """The kernel passes on what is on its way when somebody asks."""
    poll = select.poll()
    poll.register(slave, select.POLLIN)
    poll.poll(0)
