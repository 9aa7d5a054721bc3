"""A rollback by the program itself while somebody else has what it had: it is told so, and goes on."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from comeback import Memory, running
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")
LIBC = ctypes.CDLL(None, use_errno=True)
WHATS = ("port", "name", "abstract", "flock", "record", "key", "queue", "memory")

PROGRAM = """
import ctypes, errno, fcntl, mmap, os, socket, sys
what, who, name, key = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
here = ctypes.CDLL(None, use_errno=True)

def port():
    global place
    this = socket.socket()
    this.bind(("127.0.0.1", place))
    this.listen()
    place = this.getsockname()[1]
    return this.close

def abstract():
    this = socket.socket(socket.AF_UNIX)
    this.bind(b"\\0" + name.encode())
    this.listen()
    return this.close

def named():
    this = socket.socket(socket.AF_UNIX)
    this.bind("socket")
    this.listen()
    return lambda: (this.close(), os.unlink("socket"))

def locked(how):
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600)
    how(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lambda: os.close(fd)

def semaphores():
    got = here.semget(key, 1 + len(made), 0o1600)
    assert got >= 0
    return lambda: here.semctl(got, 0, 0, 0)

def queue():
    fd = here.mq_open(b"/" + name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    assert fd >= 0
    return lambda: (os.close(fd), here.mq_unlink(b"/" + name.encode()))

def memory():
    fd = os.open("/dev/shm/" + name, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(fd, 4096 << len(made))
    place = mmap.mmap(fd, 4096)
    os.close(fd)
    return lambda: (place.close(), os.unlink("/dev/shm/" + name))

place, made = 0, []
make = {"port": port, "name": named, "abstract": abstract, "flock": lambda: locked(fcntl.flock),
        "record": lambda: locked(fcntl.lockf), "key": semaphores, "queue": queue, "memory": memory}[what]
drop = make()
good = here.metamori_checkpoint()
if good > 0:
    made.append(1)
    drop()
    if who == "own":
        drop = make()
    with open("ready.new", "w") as file:
        file.write(str(place))
    os.rename("ready.new", "ready")
    while not os.path.exists("go"):
        os.sched_yield()
    failed = here.metamori_restore(good)
    print(failed, errno.errorcode[ctypes.get_errno()])
else:
    print("came back", good)
    drop()
"""


def taken(what: str, case: Memory, name: str, key: int, held: ExitStack) -> None:
    if what in ("port", "name", "abstract"):
        at = {"port": ("127.0.0.1", int((case.work / "ready").read_text())), "name": str(case.work / "socket"),
              "abstract": b"\0" + name.encode()}[what]
        this = held.enter_context(closing(socket.socket(socket.AF_INET if what == "port" else socket.AF_UNIX)))
        this.bind(at)
        this.listen()
    elif what in ("flock", "record"):
        file = held.enter_context((case.work / "file").open("r+"))
        (fcntl.flock if what == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif what == "key":
        got = LIBC.semget(key, 1, 0o1600)
        assert got >= 0
        held.callback(LIBC.semctl, got, 0, 0, 0)
        assert LIBC.semctl(got, 0, 16, 1) == 0         # SETVAL: who is alive has used it
    elif what == "queue":
        fd = LIBC.mq_open(b"/" + name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
        assert fd >= 0
        held.callback(LIBC.mq_unlink, b"/" + name.encode())
        held.callback(os.close, fd)
    else:
        held.callback(os.unlink, f"/dev/shm/{name}")
        held.callback(os.close, os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_RDWR, 0o600))


@pytest.mark.in_turn("what")
@pytest.mark.parametrize("who", ["own", "another"])
@pytest.mark.parametrize("what", WHATS)
def test_what_it_had_is_taken(tmp_path: Path, what: str, who: str) -> None:
    """By somebody else, it goes on and is told; what it has itself since is no obstacle."""
    name, key = f"metamori-test-{os.getpid()}-{what}", 0x4d000000 + os.getpid() * 16 + WHATS.index(what)
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", PROGRAM, what, who, name, str(key)], ends=False)
    with running(case.start()) as run, ExitStack() as held:
        wait_until(lambda: (case.work / "ready").exists() or run.poll() is not None, f"it is ready: {case.errors()}")
        if who == "another":
            taken(what, case, name, key, held)
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        out = (tmp_path / "out").read_bytes()
        assert out == (b"came back 0\n" if who == "own" else b"-1 EBUSY\n"), case.errors()
