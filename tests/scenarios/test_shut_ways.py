"""Folders on the way to what a program uses are shut to it, an ordinary user, and it goes on by what it has open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from lab import Lab, wait_until
from stops import Stops
from test_shut_files import AS_NOBODY, BEGIN, NOBODY, act, every_index, followed, lab

__all__ = ["lab"]                          # a fixture


@pytest.mark.parametrize("store", ["beside", "elsewhere"])
def test_whole_paths_are_shut_and_the_programs_are_not(lab: Lab, store: str) -> None:
    """It is in a folder already, or has it open, when one above it is shut: its calls were EACCES there."""
    first = """
os.makedirs("a/b")
for name in ("gone", "over", "moved", "linked", "written", "kept"):
    put("a/b/" + name, name * 900)
os.symlink("nowhere", "a/b/link"); os.setxattr("a/b/gone", "user.note", b"text")
"""
    step = """
folder = os.open("a/b", os.O_RDONLY); os.chdir("a/b"); os.chmod("..", 0)
put("new{0}", "new"); put("written", "more{0}", os.O_APPEND, 5000); os.mkdir("folder{0}")
open("there{0}", "w", opener=lambda name, flags: os.open(name, flags, dir_fd=folder)).close()
{1}
assert fails(os.stat, os.getcwd()) == "EACCES"
"""
    back = "os.chmod('..', 0o755); os.chdir('../..')"
    last = """
os.unlink("gone", dir_fd=folder); os.unlink("link"); os.rename("moved", "over"); os.link("linked", "another")
os.chmod("kept", 0o600); os.rename("folder1", "folder"); os.symlink("kept", "link")
"""
    with tempfile.TemporaryDirectory(prefix="shut-", dir="/dev/shm") as folder:
        os.chown(folder, NOBODY, NOBODY)
        if store == "elsewhere":
            lab.store = Path(folder) / "store"
        states = followed(lab, first, step.format(1, "") + back, step.format(2, last) + back, step.format(3, ""))
        every_index(lab, states)


def stops_of_nobody(lab: Lab, point: str) -> Stops:
    stops = Stops(lab.folder / "stops")
    stops.arm(point)
    lab.env |= stops.env
    for path in (stops.folder, stops.folder / point):
        os.chown(path, NOBODY, NOBODY)
    return stops


def test_what_is_opened_up_and_gets_another_mode_meanwhile(lab: Lab) -> None:
    """By somebody who is not in the run: he found it as it had been before."""
    act(lab, sys.executable, "-c", BEGIN + 'os.mkdir("shut"); put("shut/f", "text"); os.chmod("shut", 0)', native=True)
    stops = stops_of_nobody(lab, "mode.opened")
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + 'os.rename("shut", "other")']
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}) as run:
        stops.wait("mode.opened")
        assert (lab.work / "shut").stat().st_mode & 0o777 == 0o700
        (lab.work / "shut").chmod(0o711)
        stops.go("mode.opened")
    assert run.returncode == 0
    assert (lab.work / "other").stat().st_mode & 0o777 == 0o711


def test_who_reads_attributes_opens_up_as_others_do(lab: Lab) -> None:
    """Of two that add different bits, the first to end does not know his own, and the other one puts them back."""
    shut = 'os.mkdir("shut"); os.setxattr("shut", "user.note", b"text"); os.chmod("shut", 0)'
    act(lab, sys.executable, "-c", BEGIN + shut, native=True)
    stops = stops_of_nobody(lab, "mode.opened")
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", BEGIN + 'os.chmod("shut", 0o750)']
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}) as run:
        stops.wait("mode.opened")
        opened = (lab.work / "shut").stat().st_mode & 0o777
        stops.go("mode.opened")
    assert (run.returncode, opened, (lab.work / "shut").stat().st_mode & 0o777) == (0, 0o700, 0o750)


def test_a_way_and_a_folder_that_moves(lab: Lab) -> None:
    """Each added bits of its own, and the way ended first: its mode stayed another one."""
    prepare = 'os.makedirs("a/b"); put("a/b/x", "x" * 900)'
    act(lab, sys.executable, "-c", BEGIN + prepare, native=True)
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    os.chown(stops.folder, NOBODY, NOBODY)
    program = BEGIN + """
import threading, time
top = os.getcwd()
os.mkdir("c"); os.rmdir("c")
os.chdir("a/b"); os.chmod("..", 0)
def waits(name):
    while not os.path.exists(f"{top}/{name}"):
        time.sleep(0.01)
def first():
    put("x", "new")
    print("put", flush=True)
threads = [threading.Thread(target=first), threading.Thread(target=os.rename, args=(top + "/a", top + "/c"))]
waits("first"); threads[0].start()
waits("second"); threads[1].start()
[thread.join() for thread in threads]
"""
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}, stdout=subprocess.PIPE) as run:
        stops.arm("mode.opened")
        (lab.work / "first").touch()
        stops.wait("mode.opened")
        stops.arm("touch.appended")
        (lab.work / "second").touch()
        stops.wait("touch.appended")
        stops.go("mode.opened")
        assert run.stdout and run.stdout.readline() == b"put\n"      # the way is shut again
        stops.go("touch.appended")
    assert run.returncode == 0
    assert (lab.work / "c").stat().st_mode & 0o777 == 0


def test_a_watched_file_below_a_shut_folder(lab: Lab) -> None:
    """By its whole path, which was shut, it was not written back, and who watches it heard nothing."""
    act(lab, sys.executable, "-c", BEGIN + 'os.makedirs("a/b"); put("a/b/x", "x" * 9000)', native=True)
    program = BEGIN + """
import ctypes
libc = ctypes.CDLL(None)
os.chdir("a/b"); os.chmod("..", 0)
fd = os.open("x", os.O_RDWR)
os.pwrite(fd, b"new", 100)
watcher = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(watcher, b"x", 2) == 1
os.pwrite(fd, b"newer", 5000)
print(len(os.read(watcher, 1000)))
os.chmod("..", 0o755)
"""
    assert act(lab, *lab.argv("run"), "--", sys.executable, "-c", program) == "16\n"


def test_in_a_sticky_folder(lab: Lab) -> None:
    """Of somebody else's file there that the kernel keeps for him a link was made, which moved its ctime."""
    folder = lab.work / "sticky"
    folder.mkdir()
    (folder / "theirs").write_bytes(b"old " * 5000)
    (folder / "theirs").chmod(0o666)
    folder.chmod(0o1777)
    program = BEGIN + """
before = os.stat("sticky/theirs").st_ctime_ns
put("ours", "text")
print(fails(os.unlink, "sticky/theirs"), fails(os.rename, "ours", "sticky/theirs"),
      fails(os.rename, "sticky/theirs", "mine"))
print(os.stat("sticky/theirs").st_ctime_ns == before)
"""
    assert act(lab, sys.executable, "-c", program, native=True) == "EPERM EPERM EPERM\nTrue\n"
    assert act(lab, *lab.argv("run"), "--", sys.executable, "-c", program) == "EPERM EPERM EPERM\nTrue\n"


def test_what_cannot_be_opened_up_is_tried_once(lab: Lab) -> None:
    """Somebody else's file: it took some 400 system calls, under locks."""
    if not shutil.which("strace"):
        pytest.skip("no strace")
    lab.env.pop("METAMORI_TRACK", None)
    (lab.work / "theirs").write_text("text")
    (lab.work / "theirs").chmod(0o644)
    words = ["strace", "-f", "-o", lab.work / "calls", "-e", "trace=openat", sys.executable, "-c",
             BEGIN + 'os.rename("theirs", "../moved")']
    act(lab, *lab.argv("run"), "--", *words)
    assert 0 < (lab.work / "calls").read_text().count('theirs"') < 20


def test_two_threads_below_a_shut_folder(lab: Lab) -> None:
    """One found open what another had opened up for a moment: its call was EACCES, which natively it is not."""
    stops = Stops(lab.folder / "stops")
    lab.env |= stops.env
    os.chown(stops.folder, NOBODY, NOBODY)
    stops.arm("way.asked")
    program = BEGIN + """
import threading, time
top = os.getcwd()
os.makedirs("a/b"); put("a/b/x", "x"); put("a/b/y", "y")
os.chdir("a/b"); os.chmod("..", 0)
def take(name):
    put(f"{top}/said {name}", str(fails(os.unlink, name)))
threads = [threading.Thread(target=take, args=(name,)) for name in "xy"]
threads[0].start()
while not os.path.exists(top + "/second"):
    time.sleep(0.01)
threads[1].start()
[thread.join() for thread in threads]
os.chmod("..", 0o755)
"""
    words = [*AS_NOBODY, *lab.argv("run"), "--", sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=lab.work, env=lab.env | {"HOME": "/tmp"}) as run:
        stops.wait("way.asked")
        for point in ("mode.opened", "lock.waits"):
            stops.arm(point)
        opened, waits = (stops.folder / f"{point}.reached" for point in ("mode.opened", "lock.waits"))
        (lab.work / "second").touch()
        wait_until(lambda: opened.exists() or waits.exists(), "the second has opened it up, or waits")
        stops.go("way.asked")
        wait_until(lambda: waits.exists() or (lab.work / "said x").exists(), "the first has ended, or the second waits")
        for point in ("mode.opened", "lock.waits"):
            stops.go(point)
    assert run.returncode == 0
    assert {path.read_text() for path in lab.work.glob("said *")} == {"None"}
