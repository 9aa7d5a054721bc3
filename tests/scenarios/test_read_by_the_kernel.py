"""What the kernel reads of a file by itself, in its own time: what is written meanwhile comes with it, as natively."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab, Session

MODES = [[], ["--isolate"]]
MB = 1 << 20

WAITS = """
import os, threading, time
def asleep():
    "In a call of its own, and for longer than a moment."
    for _ in range(5):
        time.sleep(0.05)
        while b") S " not in open(f"/proc/self/task/{thread.native_id}/stat", "rb").read():
            time.sleep(0.01)
"""

TO_SOCKET = WAITS + """
import socket
fd, (a, b), sent = os.open("old", os.O_RDWR), socket.socketpair(), []
thread = threading.Thread(target=lambda: sent.append(os.sendfile(a.fileno(), fd, 0, 4 << 20)) or a.close())
thread.start()
asleep()
os.pwrite(fd, b"new" * 5000, 3 << 20)
came = bytearray()
while piece := b.recv(1 << 20):
    came += piece
thread.join()
print(sent, len(came), came[3 << 20:][:15000] == b"new" * 5000, bytes(came).count(b"new"))
"""

TO_PIPE = WAITS + """
fd, (r, w), moved = os.open("old", os.O_RDWR), os.pipe(), []
def move(done):
    moved.append(CALL)
os.pwrite(fd, b"first", FIRST)
os.write(w, b"before" * 10000 + b"." * 5536)
thread = threading.Thread(target=move, args=(0,))
thread.start()
asleep()
os.pwrite(fd, b"new" * 5000, PLACE)
os.read(r, 65536)
thread.join()
while sum(moved) < 60000:
    move(sum(moved))
came = os.read(r, 65536)
while len(came) < 60000:
    came += os.read(r, 65536)
print(sum(moved), came[PLACE - 100:][:15000] == b"new" * 5000, came.count(b"new"))
"""
CALLS = {"splice": "os.splice(fd, w, 60000 - done, offset_src=100 + done)",
         "sendfile to a pipe": "os.sendfile(w, fd, 100 + done, 60000 - done)"}
PROGRAMS = {"sendfile": TO_SOCKET} | {
    f"{name}, {where}{redirected}": TO_PIPE.replace("CALL", call).replace("PLACE", place).replace("FIRST", first)
    for name, call in CALLS.items() for where, place in (("first", "100"), ("later", "20000"))
    for redirected, first in (("", "(8 << 20)"), (", redirected", "50000"))}


@pytest.mark.in_turn("program")
@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_overwritten_while_it_waits(lab: Lab, native_lab: Lab, options: list[str], program: str) -> None:
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"old\n" * MB)
    native = native_lab.run([sys.executable, "-c", program], native=True)
    done = lab.run([sys.executable, "-c", program], *options)
    assert b"True 5000" in native.stdout, native
    assert (done.returncode, done.stdout, done.stderr) == (0, native.stdout, b"")


RING = """
import ctypes, metamori, os, subprocess, sys
def ring():
    assert ctypes.CDLL(None).syscall(425, 4, (ctypes.c_uint * 30)()) >= 0
def opened():
    os.open("old", os.O_RDONLY)
first, then = (ring, opened) if sys.argv[1] == "ring" else (opened, ring)
first(), then()
for byte in b"1", b"2":
    writes = "import os, sys; os.pwrite(os.open('old', os.O_RDWR), sys.argv[1].encode() * 4096, 0)"
    subprocess.run([sys.executable, "-c", writes, byte.decode()], check=True)
    metamori.checkpoint()
    print("written", flush=True)
    input()
"""


@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
@pytest.mark.parametrize("first", ["ring", "opened"])
def test_a_ring_may_read_what_another_process_writes(lab: Lab, tmp_path: Path, first: str, options: list[str]) -> None:
    """It reads what is in place, of a file that its own process only has open for reading."""
    if ctypes.CDLL(None).syscall(425, 4, (ctypes.c_uint * 30)()) < 0:
        pytest.skip("this kernel or container forbids io_uring")
    old = b"old\n" * 5000
    (lab.work / "old").write_bytes(old)
    command = [*lab.argv("run", *options), "--", sys.executable, "-c", RING, first]
    session = Session(command, lab.work, lab.env, tmp_path / "stderr")
    lab.sessions.append(session)
    for byte in b"1", b"2":
        assert session._line() == "written"
        assert (lab.work / "old").read_bytes() == byte * 4096 + old[4096:]
        assert session.process.stdin
        os.write(session.process.stdin.fileno(), b"\n")
    assert session.end() == 0, session.stderr()
    for index, byte in (1, b"1"), (2, b"2"):
        lab.restore(index)
        assert (lab.work / "old").read_bytes() == byte * 4096 + old[4096:]
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == old


LIKE_LIBURING = """
int io_uring_queue_init_params(unsigned entries, void *ring, void *more) { return ring && more ? (int)entries : -1; }
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    return io_uring_queue_init_params(entries, ring, &flags);
}
"""
USES_IT = """
int io_uring_queue_init(unsigned, void *, unsigned);
int used(void) { return io_uring_queue_init(7, &used, 0); }
"""


def test_a_ring_of_a_library_that_one_other_loaded(lab: Lab, tmp_path: Path) -> None:
    """Its functions are seen from there and from itself, not from the whole program."""
    for name, text, more in ("liblike.so", LIKE_LIBURING, []), ("libuser.so", USES_IT, ["liblike.so"]):
        (tmp_path / "source.c").write_text(text)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", name, "source.c", *more, "-Wl,-rpath,$ORIGIN"], cwd=tmp_path,
                       check=True)
    script = f"import ctypes; print(ctypes.CDLL('{tmp_path}/libuser.so').used())"
    for native in True, False:
        assert lab.run([sys.executable, "-c", script], native=native).stdout == b"7\n"


LOADED = """
import ctypes
with open("library.so", "r+b") as file:
    file.write(open("new.so", "rb").read())
print(ctypes.CDLL("./library.so").answer())
"""


@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
def test_a_library_over_a_short_file(lab: Lab, options: list[str]) -> None:
    """What the loader looks at first was where the run had put it, but for what comes behind the file's old end."""
    made = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", lab.work / "new.so"]
    subprocess.run(made, input=b"int answer(void) { return 42; }", check=True)
    (lab.work / "library.so").write_bytes(b"none yet")
    done = lab.run([sys.executable, "-c", LOADED], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"42\n", b"")
