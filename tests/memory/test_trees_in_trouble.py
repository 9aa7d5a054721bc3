"""A tree of which one member cannot be saved, or cannot be had back: said whole, and nothing has changed."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from comeback import Memory
from lab import picture, wait_until

pytestmark = pytest.mark.usefixtures("installed")

# its parent works and writes; the child has something until it is told to let it go, then ends
MEMBER = """
import ctypes, hashlib, mmap, os, socket, time
child = os.fork()
if child == 0:
    %s
    print("has", flush=True)
    while not os.path.exists("free"):
        time.sleep(0.01)
    %s
    print("free", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(4)
state, n = bytes(1000), 0
while not os.path.exists("go"):
    state = hashlib.sha256(state).digest() * 40
    time.sleep(0.01)
print(len(state), os.wait()[1] >> 8)
"""
KEEPS = {
    "a socket": ("s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "s.close()",
                 "python3 (%d): descriptor %s is a socket of family 16, which cannot come back with the program"),
    # which its own leader finds, when the images of the others are on the way
    "a context of asynchronous I/O": (
        "io = ctypes.c_ulong(); l = ctypes.CDLL(None); assert l.syscall(206, 4, ctypes.byref(io)) == 0",
        "assert l.syscall(207, io) == 0", "python3 (%d): asynchronous I/O of the kernel is in use"),
}


@pytest.mark.parametrize("what", KEEPS)
def test_a_member_that_cannot_be_saved(tmp_path: Path, what: str) -> None:
    """None is: no file of any, and the next checkpoint, with all of them, comes back."""
    has, leaves, words = KEEPS[what]
    (tmp_path / "script").write_text(MEMBER % (has, leaves))
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup={"go": b"", "free": b""})
    for name in ("go", "free"):
        (case.work / name).unlink()
    run = case.start()
    try:
        wait_until(lambda: b"has" in (tmp_path / "out").read_bytes(), f"it has it: {case.errors()}")
        child = max(pid for pid in case.of_the_run() if pid != run.pid)
        held = sorted(path.name for path in (case.store / "checkpoints").glob("*"))
        for _ in range(2):
            done = case.verb("checkpoint")
            said = done.stderr.decode()
            assert done.returncode == 1, done
            for part in (words % (child, "\0") if "%s" in words else words % child).split("\0"):
                assert part in said, (said, child)
        assert sorted(path.name for path in (case.store / "checkpoints").glob("*")) == held
        (case.work / "free").touch()
        wait_until(lambda: b"free" in (tmp_path / "out").read_bytes(), f"it is free: {case.errors()}")
        taken = case.verb("checkpoint")
        assert taken.returncode == 0, taken
        case.kill_with(run)
        run.wait()
    finally:
        run.kill()
    back = case.restart_in_background(int(taken.stdout))
    try:
        wait_until(lambda: len(case.of_the_run()) >= 3 or back.poll() is not None, f"all are back: {case.errors()}")
        (case.work / "go").touch()
        assert back.wait(300) == 0, case.errors()
    finally:
        back.kill()


SERVER = """
import fcntl, hashlib, os, socket, time
server = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if child == 0:
    server.close()
    locked = open("locked", "r+b")
    fcntl.lockf(locked, fcntl.LOCK_EX)
    named = socket.socket(socket.AF_UNIX)
    named.bind("name")
    named.listen()
    os.rename("locked", "locked.too")
    open("ready", "w").write(str(server_port))
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(4)
while not os.path.exists("go"):
    time.sleep(0.01)
print(os.wait()[1] >> 8)
""".replace("server.close()", "server_port = server.getsockname()[1]; server.close()")


@contextmanager
def taken(case: Memory, what: str, port: int) -> Iterator[str]:
    """By somebody else, who has it now. What is said of it."""
    if what == "lock":
        with (case.work / "locked.too").open("r+b") as file:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            yield "another process has locked"
        return
    with closing(socket.socket(socket.AF_UNIX if what == "name" else socket.AF_INET)) as other:
        other.bind(str(case.work / "name") if what == "name" else ("127.0.0.1", port))
        other.listen()
        yield "name is in use" if what == "name" else f"127.0.0.1:{port} is in use"


@pytest.mark.parametrize("what", ["port", "name", "lock"])
def test_what_a_member_had_is_taken(tmp_path: Path, what: str) -> None:
    """Said before a file is touched; free again, all go on."""
    (tmp_path / "script").write_text(SERVER)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup={"locked": b"x"}, ends=False)
    run = case.start()
    try:
        wait_until((case.work / "ready").exists, f"it is ready: {case.errors()}")
        wait_until(lambda: (case.work / "ready").read_text() != "", "all is said")
        done = case.verb("checkpoint")
        assert done.returncode == 0, done
        case.kill_with(run)
        run.wait()
    finally:
        run.kill()
    (case.work / "name").unlink()
    assert case.verb("log").returncode == 0
    with taken(case, what, int((case.work / "ready").read_text())) as words:
        (case.work / "untouched").write_text("by nobody")
        before = picture(case.work)
        done = case.verb("restart", "--force", "1")
        assert done.returncode in (1, 125) and words in done.stderr.decode(), done
        assert picture(case.work) == before
    if what == "name":
        (case.work / "name").unlink()
    back = case.restart_in_background(1, "--force")
    try:
        wait_until(lambda: len(case.of_the_run()) >= 3 or back.poll() is not None, f"all are back: {case.errors()}")
        (case.work / "go").touch()
        assert back.wait(300) == 0, case.errors()
    finally:
        back.kill()


SHARES = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.ftruncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
memory[:4] = b"mine"
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print(memory[:4], os.stat(sys.argv[1]).st_ino == os.fstat(fd).st_ino)
os.unlink(sys.argv[1])
"""


def test_the_name_of_shared_memory_is_taken(tmp_path: Path) -> None:
    """Said before a file is touched; free again, the program goes on."""
    shared = Path(f"/dev/shm/metamori-{tmp_path.name}-{id(tmp_path)}")
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", SHARES, shared], ends=False)
    case.is_saved_and_killed()
    assert case.verb("log").returncode == 0
    shared.unlink(missing_ok=True)
    shared.write_bytes(b"somebody else's")
    try:
        (case.work / "go").touch()
        before = picture(case.work)
        done = case.verb("restart", "--force", "1")
        assert done.returncode == 1 and b"is there, where the program had shared memory" in done.stderr, done
        assert picture(case.work) == before and shared.read_bytes() == b"somebody else's"
    finally:
        shared.unlink()
    done = case.verb("restart", "--force", "1")
    assert (done.returncode, done.stdout) == (0, b"b'mine' True\n"), done
