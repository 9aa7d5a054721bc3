"""Pseudoterminals of programs that come back: new ones with old settings, and the old numbers where they are free."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterable, Sequence
from contextlib import suppress

from metamori.runtime.lifecycle.descriptor_restart import up
from metamori.runtime.memory.terminals import PEER, SETTINGS, set_packets, type_again
from metamori.store.format.records import DescriptorEntry

_UNLOCK, _NUMBER = 0x40045431, 0x80045430  # TIOCSPTLCK, TIOCGPTN


def made(entries: Sequence[DescriptorEntry], base: int) -> list[int]:
    """A descriptor for each, out of the way."""
    ends = {int(each.data.split()[1]): each for each in entries if each.data.startswith(b"master")}
    masters = {number: up(_master(number, bytes.fromhex(each.data.split()[2].decode())), base)
               for number, each in sorted(ends.items())}
    found: list[int] = []
    slaves = set()
    for each in entries:
        words = each.data.split()
        number = int(words[1])
        master = masters[number]
        if words[0] == b"master":
            found.append(up(os.dup(master), base))
            os.set_blocking(found[-1], not each.flags & os.O_NONBLOCK)
        else:
            slaves.add(number)
            way = each.flags & (os.O_ACCMODE | os.O_NONBLOCK)
            found.append(up(fcntl.ioctl(master, PEER, way | os.O_NOCTTY | os.O_CLOEXEC), base))
    for number, master in masters.items():
        settings, typed, flags = _rest(ends[number])
        if b"alone" not in flags:          # when that is closed again the terminal is hung up, if nobody else has it
            with os.fdopen(fcntl.ioctl(master, PEER, os.O_RDWR | os.O_NOCTTY), "rb", buffering=0) as slave:
                if typed and number in slaves:     # else nobody has it any more
                    type_again(master, slave.fileno(), typed, settings)
        if b"packets" in flags:
            set_packets(master, True)
        os.close(master)
    return found


def _rest(entry: DescriptorEntry) -> tuple[bytes, bytes, list[bytes]]:
    """Settings, what was typed before, and flags; older checkpoints do not say all."""
    words = entry.data.split()
    typed = words[5] if len(words) > 5 and words[5] != b"-" else b""
    return bytes.fromhex(words[2].decode())[:SETTINGS], bytes.fromhex(typed.decode()), words[6:]


def _master(number: int, data: bytes) -> int:
    """The kernel gives the lowest number that is free."""
    tried = [os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)]
    while _number(tried[-1]) < number:
        tried.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    fd = tried.pop(-1 if _number(tried[-1]) == number else 0)
    for each in tried:
        os.close(each)
    fcntl.ioctl(fd, _UNLOCK, struct.pack("i", 0))
    fcntl.ioctl(fd, termios.TCSETS, data[:SETTINGS])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, data[SETTINGS:])
    return fd


def _number(master: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(master, _NUMBER, bytes(4)))[0])


# -- controlling terminals ----------------------------------------------------------------------------


def owners(places: Iterable[tuple[DescriptorEntry, int]]) -> dict[int, tuple[int, int]]:
    """By session: its terminal's master as it is open now, and the group in its foreground."""
    found = {}
    for entry, master in places:
        words = entry.data.split()
        if words[0] == b"master" and len(words) > 4 and int(words[3]):
            found[int(words[3])] = master, int(words[4])
    return found


def take(master: int) -> None:
    """For the session that this process leads."""
    fd = fcntl.ioctl(master, PEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
    finally:
        os.close(fd)


def take_over(group: int) -> None:
    """As `come_forward`, in the terminal of whoever continues, unless another group than theirs works there."""
    with suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:       # there may be none
        now = os.tcgetpgrp(terminal.fileno())
        if now in (group, os.getpgrp()) or not _is_there(now):     # a rollback has ended the one that had it
            come_forward()


def to_be_given(settings: bytes = b"") -> bytes:
    """To the terminal of whoever continues, when nothing can fail any more (shim_c/src/memory/restore.c): those that
    the run's had, in hex, where somebody works there; else zeros."""
    if settings and os.isatty(0) and os.isatty(1):
        with suppress(OSError):            # another session's
            if os.tcgetpgrp(0) == os.getpgrp():
                return bytes.fromhex(settings.decode())[:SETTINGS]
    return bytes(SETTINGS)


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def come_forward() -> None:
    """This process's group, to the foreground of its session's terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    with open("/dev/tty", "rb", buffering=0) as terminal:
        os.tcsetpgrp(terminal.fileno(), os.getpgrp())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
