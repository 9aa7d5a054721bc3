"""What holds a file without having it open: O_PATH, watches, handles. They go on with the same file when that is
emptied, as they do natively, and a file that is watched for what is written is written in place for good."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from lab import PATIENCE, Lab

BEGIN = """
import ctypes, os, select, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)

def emptied(path):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"new")
    os.close(fd)

def watches(events):
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watcher, b"held", events) == 1
    return watcher

def told(watcher):
    if not select.select([watcher], [], [], 0)[0]:
        return []
    data, at, masks = os.read(watcher, 65536), 0, []
    while at < len(data):
        _, mask, _, length = struct.unpack_from("iIII", data, at)
        masks.append(mask)
        at += 16 + length
    return masks
"""
WAYS = {
    "a path": """
path = os.open("held", os.O_PATH)
emptied(f"/proc/self/fd/{path}")
print(open(f"/proc/self/fd/{path}").read(), os.fstat(path).st_nlink)
""",
    "a path inherited": """
path = int(sys.argv[1])
emptied("held")
print(open(f"/proc/self/fd/{path}").read(), os.fstat(path).st_nlink)
""",
    "a path received": """
import socket
path = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1, 1)[1][0]
emptied("held")
print(open(f"/proc/self/fd/{path}").read(), os.fstat(path).st_nlink)
""",
    "a watch": """
watcher = watches(8)
subprocess.run(["sh", "-c", "echo new > held"], check=True)
print(told(watcher), open("held").read())
subprocess.run(["sh", "-c", "echo newer > held"], check=True)
print(told(watcher), open("held").read())
""",
    "its folder watched": """
watcher = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(watcher, b".", 0x3c6) == 1      # what is written, made, moved and removed
emptied("held")
print(told(watcher))
""",
    "its folder told of by signals": """
import fcntl, signal
seen = []
signal.signal(signal.SIGIO, lambda *_: seen.append(1))
folder = os.open(".", os.O_RDONLY)
fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT)
emptied("held")
print(seen)
""",
    "a handle": """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
mount = ctypes.c_int()
assert libc.name_to_handle_at(-100, b"held", handle, ctypes.byref(mount), 0) == 0
emptied("held")
folder = os.open(".", os.O_RDONLY)
fd = libc.open_by_handle_at(folder, handle, os.O_RDONLY)
print(os.read(fd, 100) if fd >= 0 else ctypes.get_errno())
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_is_emptied_is_the_same(lab: Lab, native_lab: Lab, way: str) -> None:
    said = []
    for each in (native_lab, lab):
        (each.work / "held").write_bytes(b"old " * (1 << 19))
        fd = os.open(each.work / "held", os.O_PATH)    # not one that the run has opened
        one, other = socket.socketpair()
        socket.send_fds(one, [b"x"], [fd])
        passed = {"a path inherited": [fd], "a path received": [other.fileno()]}.get(way, [])
        command = [*([] if each is native_lab else [*lab.argv("run"), "--"]), sys.executable, "-c", BEGIN + WAYS[way]]
        try:
            done = subprocess.run([*command, *map(str, passed)], cwd=each.work, env=each.env, pass_fds=passed,
                                  capture_output=True, check=False, timeout=PATIENCE)
        finally:
            os.close(fd), one.close(), other.close()
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout)
    assert said[1] == said[0]
    assert (lab.work / "held").read_bytes() == (native_lab.work / "held").read_bytes()
    lab.restore(0)
    assert (lab.work / "held").read_bytes() == b"old " * (1 << 19)
    lab.verb("verify")


WATCHED = """
watcher = watches(2)
for at in (0, 5000):
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    fd = os.open("held", os.O_RDWR)
    os.pwrite(fd, b"watched", at)
    print(told(watcher))
    os.close(fd)
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_watched_file_that_nobody_has_open_at_a_checkpoint(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """The checkpoint took it for one that nobody needs in place."""
    said = []
    for each, words in ((native_lab, ["true"]), (lab, lab.argv("checkpoint"))):
        (each.work / "held").write_bytes(b"old " * 5000)
        done = each.run([sys.executable, "-c", BEGIN + WATCHED, *words], *options, native=each is native_lab)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout)
    assert said[1] == said[0] == b"[2]\n[2]\n"
    for index, at in ((1, 0), (2, 7)):
        lab.restore(index)
        assert (lab.work / "held").read_bytes() == b"watched"[:at] + (b"old " * 5000)[at:]


GONE = """
handles = {}
for name in (b"held", b"open", b"replaced"):
    handles[name] = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    assert libc.name_to_handle_at(-100, name, handles[name], ctypes.byref(ctypes.c_int()), 0) == 0
folder, reader = os.open(".", os.O_RDONLY), os.open("open", os.O_RDONLY)

def tried(name, flags):
    fd = libc.open_by_handle_at(folder, handles[name], flags)
    print(name, ctypes.get_errno() if fd < 0 else (os.fstat(fd).st_nlink, os.close(fd)))

open("new", "w").close()
os.rename("new", "replaced")
for name in ("held", "open"):
    os.unlink(name)
for closed in (False, True):
    for name in handles:
        tried(name, os.O_RDONLY)
        tried(name, os.O_PATH)
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    if not closed:
        os.close(reader)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="handles are root's")
def test_a_handle_of_what_is_gone(lab: Lab, native_lab: Lab) -> None:
    """What the store keeps of it was found."""
    said = []
    for each, words in ((native_lab, ["true"]), (lab, lab.argv("checkpoint"))):
        for name in ("held", "open", "replaced"):
            (each.work / name).write_bytes(b"old " * 50000)
        done = each.run([sys.executable, "-c", BEGIN + GONE, *words], native=each is native_lab)
        assert (done.returncode, done.stderr) == (0, b"")
        said.append(done.stdout)
    assert said[1] == said[0]
    assert said[0].count(b" 116") == 10
    lab.restore(0)
    assert (lab.work / "held").read_bytes() == b"old " * 50000
    lab.verb("verify")
