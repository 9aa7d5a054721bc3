"""What a checkpoint takes to look at it is put back, also when `metamori run` is killed in between."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import termios
import tty

import pytest

from metamori.runtime.memory import terminals

LIBC = ctypes.CDLL(None, use_errno=True)
QUEUE = """
import ctypes, os, signal, sys
from metamori._area import ffi, lib
from metamori.runtime.memory import queues

class Killed:
    def mm_queue_copy(self, fd, room, length, size):
        here, data = ctypes.CDLL(None), ctypes.create_string_buffer(size)
        count = here.mq_receive(fd, data, size, None)
        os.kill(asks, signal.SIGKILL)
        assert here.mq_send(fd, data, count, 0) == 0
        os._exit(0)
    def __getattr__(self, name):
        return getattr(lib, name)

asks, name = os.getpid(), sys.argv[2].encode()
fd = ctypes.CDLL(None).mq_open(name, os.O_RDWR)
queues.lib = Killed()
list(queues._messages(fd, 8192, 1, name, ()))
"""
TERMINAL = """
import os, signal, sys, termios, fcntl
from metamori.runtime.memory import terminals

def killed(*words):
    os.kill(asks, signal.SIGKILL)
    again(*words)

asks, again, master = os.getpid(), terminals.type_again, int(sys.argv[2])
terminals.type_again = killed
terminals._typed(master, fcntl.ioctl(master, termios.TCGETS, bytes(terminals.SETTINGS)))
"""


def killed(script: str, word: str, *inherits: int) -> None:
    """Once none of its processes is left."""
    ended, holds = os.pipe()
    done = subprocess.run([sys.executable, "-c", script, str(holds), word], pass_fds=[holds, *inherits], check=False)
    os.close(holds)
    with open(ended, "rb") as file:
        assert file.read() == b""
    assert done.returncode == -signal.SIGKILL


def test_messages_of_a_queue() -> None:
    name = f"/metamori-test-{os.getpid()}".encode()
    fd = LIBC.mq_open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600, None)
    if fd < 0:
        pytest.skip("there are no POSIX message queues here")
    try:
        assert LIBC.mq_send(fd, b"kept", 4, 0) == 0
        os.close(fd)                       # nobody else may have it open
        killed(QUEUE, name.decode())
        fd = LIBC.mq_open(name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        data = ctypes.create_string_buffer(8192)
        assert LIBC.mq_receive(fd, data, 8192, None) == 4 and data.value == b"kept"
    finally:
        os.close(fd)
        LIBC.mq_unlink(name)


def test_what_was_typed() -> None:
    master, slave = os.openpty()
    try:
        os.write(master, b"half a li")
        killed(TERMINAL, str(master), master, slave)
        os.write(master, b"ne\n")
        assert os.read(slave, 100) == b"half a line\n"
    finally:
        os.close(master)
        os.close(slave)


def test_where_nothing_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And keys come one by one: that is asked, and nothing taken."""
    master, slave = os.openpty()
    try:
        tty.setraw(slave)
        settings = fcntl.ioctl(master, termios.TCGETS, bytes(terminals.SETTINGS))
        with monkeypatch.context() as patch:
            patch.setattr("metamori.runtime.memory.apart.done", lambda work: pytest.fail("it is taken"))
            assert terminals._typed(master, settings) == b""
        os.write(master, b"a key")
        assert (terminals._typed(master, settings), os.read(slave, 100)) == (b"a key", b"a key")
    finally:
        os.close(master)
        os.close(slave)
