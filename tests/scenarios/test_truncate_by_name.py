"""truncate(2): by a name, so that the kernel looks at less, and waits for more, than where a descriptor is cut."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import ROOT, Lab

sys.path.append(str(ROOT / "tests" / "disk"))     # not first: its conftest is another
from disks import NoMount, mounted

BEGIN = """
import ctypes, fcntl, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def times(name):
    found = os.stat(name)
    return found.st_mtime_ns, found.st_ctime_ns
"""
TIMES = """
fd = os.open("redirected", os.O_RDWR)
os.pwrite(fd, b"new", 100)
os.close(fd)
for name in ("empty", "plain", "redirected"):
    for more in (0, 1, 0, -1, 0):
        before, size = times(name), os.stat(name).st_size
        time.sleep(0.02)
        os.truncate(name, size + more)
        print(name, size + more, times(name) == before)
before, fd = times("empty"), os.open("empty", os.O_RDWR)
time.sleep(0.02)
os.ftruncate(fd, 0)
print(times("empty") == before)
os.chmod("plain", 0o4755)
os.truncate("plain", os.stat("plain").st_size)
print(oct(os.stat("plain").st_mode))
"""


@contextmanager
def folder_of(kind: str, tmp_path: Path) -> Iterator[Path]:
    if kind != "tmpfs":
        with mounted(tmp_path, kind, 300 if kind == "xfs" else 128) as disk:
            yield disk
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.in_turn("kind")
@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
@pytest.mark.parametrize("kind", ["tmpfs", "xfs", "btrfs", "ext4"])
def test_times_stay_where_the_kernel_leaves_them(
    lab: Lab, native_lab: Lab, tmp_path: Path, kind: str, options: list[str]
) -> None:
    """XFS and btrfs do where the size stays, tmpfs of an empty file: it got another time, and make compiled anew."""
    said = []
    try:
        with folder_of(kind, tmp_path) as folder:
            for each in (native_lab, lab):
                for name, size in (("empty", 0), ("plain", 20000), ("redirected", 20000)):
                    (folder / name).write_bytes(b"o" * size)
                done = each.run([sys.executable, "-c", BEGIN + TIMES], *options, native=each is native_lab, cwd=folder)
                assert (done.returncode, done.stderr) == (0, b"")
                said.append(done.stdout.decode().splitlines())
    except NoMount as why:
        pytest.skip(str(why))
    assert said[1] == said[0]
    assert (f"redirected 20000 {kind in ('xfs', 'btrfs')}" in said[0]) and said[0][-2] == "False"


LEASED = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
ready, says = os.pipe()
if os.fork() == 0:
    fd = os.open("leased", os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    os.write(says, b"x")
    signal.sigwait([signal.SIGIO])
    time.sleep(0.1)
    print("asked", os.fstat(fd).st_size, flush=True)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os._exit(0)
os.read(ready, 1)
os.truncate("leased", 5)
print(os.stat("leased").st_size, os.wait()[1])
os.mkfifo("fifo")
for name in ("fifo", "."):
    print(libc.truncate(name.encode(), 5), ctypes.get_errno())
"""


def test_who_has_a_lease_is_waited_for(lab: Lab, native_lab: Lab) -> None:
    """It was EAGAIN."""
    said = []
    for each in (native_lab, lab):
        (each.work / "leased").write_bytes(b"old " * 5000)
        done = each.run([sys.executable, "-c", BEGIN + LEASED], native=each is native_lab)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout)
    assert said[1] == said[0] and said[0].startswith(b"asked 20000\n5 0\n")
    lab.restore(0)
    assert (lab.work / "leased").read_bytes() == b"old " * 5000


WATCHES = """
import struct
watcher = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(watcher, os.fsencode(os.path.dirname(sys.argv[1])), 0xfff)
os.truncate(sys.argv[1], 3)
data, at = os.read(watcher, 65536), 0
while at < len(data):
    _, mask, _, length = struct.unpack_from("iIII", data, at)
    print(hex(mask))
    at += 16 + length
"""


def test_a_file_out_of_the_scope_is_not_opened(lab: Lab, native_lab: Lab) -> None:
    """Who watched its folder was told of an open and a close."""
    said = []
    for each in (native_lab, lab):
        each.env.pop("METAMORI_TRACK", None)
        with tempfile.TemporaryDirectory(dir=each.folder) as outside:
            with open(os.path.join(outside, "file"), "wb") as file:
                file.write(b"outside")
            done = each.run([sys.executable, "-c", BEGIN + WATCHES, file.name], native=each is native_lab)
        assert done.returncode == 0
        assert (b"outside of the scope, and not tracked: 1 file" in done.stderr) == (each is lab)
        said.append(done.stdout)
    assert said[1] == said[0] == b"0x2\n"


def test_isolated_a_file_in_place_keeps_its_times(lab: Lab) -> None:
    """Where the size stayed it was cut in place."""
    (lab.work / "file").write_bytes(b"o" * 20000)
    session, before = lab.start("--isolate"), os.stat(lab.work / "file")
    session.must(["open file rw", "truncate file 20000", "pwrite 3 5 100 1", "truncate file 20000"])
    now = os.stat(lab.work / "file")
    assert (now.st_mtime_ns, now.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert session.end() == 0, session.stderr()
