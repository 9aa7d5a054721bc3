"""What a rollback asks while its run is alive: who else has a lock or a port, and nobody is disturbed."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from metamori.runtime.lifecycle import socket_restart
from metamori.runtime.memory import file_locks, sockets
from metamori.runtime.memory.socket_connections import Inside
from metamori.store.format.records import DescriptorEntry

OFD_SETLK = 37


@contextmanager
def in_a_process(does: Callable[[], object]) -> Iterator[int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = does()
        os.write(writer, b"x")
        signal.pause()
        os._exit(kept is None)
    try:
        assert os.read(reader, 1) == b"x"
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)


def locked(path: Path) -> int:
    """For reading, by the open description."""
    fd = os.open(path, os.O_RDWR)
    fcntl.fcntl(fd, OFD_SETLK, struct.pack("=hhxxxxqqixxxx", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    return fd


def test_locks_that_are_alike(tmp_path: Path) -> None:
    """Of one description twice, in a process of the run; of another one, of somebody else."""
    path = tmp_path / "file"
    path.touch()
    with in_a_process(lambda: os.dup(locked(path))) as own:
        here = b":%d " % path.stat().st_ino        # what forked it may have locks of its own
        lines = {line for fd in os.listdir(f"/proc/{own}/fdinfo")
                 for line in Path(f"/proc/{own}/fdinfo/{fd}").read_bytes().splitlines()
                 if line.startswith(b"lock:") and here in line}
        assert len(lines) == 1
        data = lines.pop().replace(b"READ", b"WRITE")
        wanted = DescriptorEntry(3, "file", -1, False, os.O_RDWR, 0, bytes(path), data)
        file_locks.check([wanted], [own])
        other = locked(path)
        with pytest.raises(file_locks.HeldElsewhere, match="another process has locked"):
            file_locks.check([wanted], [own])
        os.close(other)
        file_locks.check([wanted], [own])


def test_a_port_of_the_run_is_not_asked_for() -> None:
    """Whoever binds it, too, takes what is sent there."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as this:
        this.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        this.bind(("127.0.0.1", 0))
        found = sockets.look(os.getpid(), this.fileno(), Inside(frozenset()))
        entry = DescriptorEntry(this.fileno(), "socket", -1, False, os.O_RDWR, 0, b"socket:[1]", found.text)
        before = socket_restart._bind
        asked = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket_restart, "_bind", lambda *words: (asked.append(1), before(*words)))
            socket_restart.check([(entry, b"/")], [os.getpid()])
            assert asked == []
            socket_restart.check([(entry, b"/")])
            assert asked == [1]
