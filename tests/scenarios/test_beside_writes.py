"""Writes beside calls that change what the engine decides by: position, size, flags, places in the buffer, the epoch.

As in test_losing_orders.py a thread is held in the window (tests/stops.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import zlib

import pytest
from conftest import Compile
from lab import Lab, Session
from stops import Stops
from test_losing_orders import ALL, begun, contents, named, number, restored, stops

from metamori._area import lib
from metamori.runtime.area import wal

__all__ = ["stops"]                        # a fixture
A_MOMENT = 0.3                             # the other one is done, or waits: nothing tells


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=named)
def test_checkpoint_while_a_splice_waits_for_its_pipe(lab: Lab, options: list[str]) -> None:
    """What comes by the pipe later is written over bytes that an index knows by then: once in place, unseen."""
    driver = lab.start(*options)
    driver.must(["thread 0", "fill f w,creat 200000 1"])
    fd, (out, into) = number(driver.ask("open f rw")), driver.ask("pipe").split()
    driver.ask(f"begin 0 splicein {fd} {out} 65536 0")
    time.sleep(A_MOMENT)
    before, index = contents(driver)["f"], number(driver.ask("checkpoint"))
    driver.must([f"write {into} 65536 5"])
    written = number(driver.ask("await 0"))
    assert written > 0
    assert contents(driver)["f"] != before
    assert driver.end() == 0
    assert restored(lab, index)["f"] == before


def logged(lab: Lab) -> set[int]:
    """Blocks that a power cut leaves of the last file which was synced."""
    blocks = set[int]()
    for each in wal.read(str(lab.store / "run")):
        if each.kind == lib.MM_AHEAD_SYNCED:
            blocks = set() if each.whole else blocks
            blocks |= {block + i for block, _, count in each.ranges for i in range(count)}
    return blocks


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=named)
@pytest.mark.parametrize("beside, left", [("pwrite {} 16384 0 7", {0, 1, 2, 3}), ("ftruncate {} 10000", {0, 1, 2})])
def test_fsync_beside_a_call_that_gives_blocks_new_places(
        lab: Lab, stops: Stops, options: list[str], beside: str, left: set[int]) -> None:
    """They were in no record: acknowledged, and after a power cut as at the checkpoint."""
    driver = begun(lab, *options)
    fd = number(driver.ask("open f rw"))
    driver.must(f"pwrite {fd} 4096 {block * 4096} 2" for block in (2, 0, 3, 1))
    stops.arm("ahead.buffered")
    driver.ask(f"begin 0 fsync {fd}")
    stops.wait("ahead.buffered")
    driver.must([beside.format(fd)])
    stops.go("ahead.buffered")
    assert driver.ask("await 0") == "0"
    assert logged(lab) == left
    assert driver.end() == 0


def test_position_moved_while_a_write_saves_what_it_writes_over(lab: Lab, stops: Stops) -> None:
    """Of a file that somebody has mapped. The bytes saved were others than those written over."""
    driver = begun(lab, threads=2)
    fd, mapped = number(driver.ask("open f rw")), number(driver.ask("open f r"))
    driver.must([f"pwrite {fd} 500000 1900000 4"])         # what is saved is saved with as much as a MiB around it
    index = number(driver.ask("checkpoint"))
    driver.must([f"map {mapped} 4096 r shared 0"])
    before = f"{zlib.crc32(lab.work.joinpath('f').read_bytes()):08x}"
    stops.arm("home.saved")
    driver.ask(f"begin 0 write {fd} 4096 3")
    stops.wait("home.saved")
    driver.ask(f"begin 1 lseek {fd} 2000000 set")
    time.sleep(A_MOMENT)
    stops.go("home.saved")
    assert [driver.ask(f"await {n}") for n in (0, 1)] == ["4096", "2000000"]
    assert driver.end() == 0
    assert restored(lab, index)["f"] == before


@pytest.mark.parametrize("options", ALL, ids=named)
def test_room_for_a_file_that_a_write_makes_longer(lab: Lab, stops: Stops, options: list[str]) -> None:
    """It was cut back to where the write ends."""
    driver = begun(lab, *options, threads=2)
    driver.must(["truncate f 6000", "checkpoint"])
    fd, other = (number(driver.ask("open f rw")) for _ in "12")
    stops.arm("data.grows")
    driver.ask(f"begin 0 pwrite {fd} 4096 4096 2")
    stops.wait("data.grows")
    driver.ask(f"begin 1 fallocate {other} 0 1048576")
    time.sleep(A_MOMENT)
    stops.go("data.grows")
    assert [driver.ask(f"await {n}") for n in (0, 1)] == ["4096", "0"]
    assert number(driver.ask(f"fsize {fd}")) == 1048576
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_room_for_a_file_that_one_who_was_killed_has_cut(lab: Lab, stops: Stops, options: list[str]) -> None:
    """What was redirected behind its end was there again."""
    driver = begun(lab, *options)
    driver.must(["twin 0"])
    fd, of_twin = number(driver.ask("open f rw")), number(driver.ask("in 0 open f rw"))
    driver.must([f"pwrite {fd} 8192 8192 2"])
    pid = number(driver.ask("in 0 pid"))
    stops.arm("data.cut")
    driver.ask(f"begin 0 in 0 ftruncate {of_twin} 100")
    stops.wait("data.cut")
    os.kill(pid, signal.SIGKILL)
    driver.ask("await 0")
    driver.must([f"fallocate {fd} 0 50000"])
    assert driver.ask(f"pread {fd} 8192 8192") == "8192 d8f49994"      # zeros
    driver.ask("endtwin 0")
    assert driver.end() == 0


def test_write_while_its_description_appends_no_more(lab: Lab, stops: Stops) -> None:
    """The kernel wrote at its position, over bytes that an index knows."""
    driver = begun(lab, threads=2)
    index, before = number(driver.ask("checkpoint")), contents(driver)
    fd = number(driver.ask("open f w,append"))
    stops.arm("flags.set")
    driver.ask(f"begin 0 setappend {fd} 0")
    stops.wait("flags.set")
    driver.ask(f"begin 1 write {fd} 4096 5")
    time.sleep(A_MOMENT)
    stops.go("flags.set")
    assert [driver.ask(f"await {n}") for n in (0, 1)] == ["0", "4096"]
    assert driver.end() == 0
    assert restored(lab, index) == before


def test_read_while_it_is_asked_how_far_the_file_may_reach(lab: Lab, stops: Stops) -> None:
    """That is asked by seeking, once with the program's own position."""
    driver = begun(lab, threads=2)
    fd, far = number(driver.ask("open f rw")), 1 << 41
    driver.must([f"ftruncate {fd} {far}"])
    before = driver.ask(f"pread {fd} 4096 0")
    stops.arm("size.probes")
    driver.ask(f"begin 0 pwrite {fd} 100 {far} 3")
    stops.wait("size.probes")
    assert driver.ask(f"on 1 read {fd} 4096") == before
    stops.go("size.probes")
    assert driver.ask("await 0") == "100"
    driver.must([f"ftruncate {fd} 196608"])
    assert driver.end() == 0


EMPTY_PIPE = """
import errno, os, threading, time
fd = os.open("g", os.O_RDWR | os.O_CREAT)
os.write(fd, b"g" * 10)
r, w = os.pipe()
looks = os.open(f"/proc/self/task/{threading.get_native_id()}/stat", os.O_RDONLY)
def write_once_it_waits():
    "Asked five times: it also sleeps for a moment until it has the interpreter."
    asleep = 0
    while asleep < 5:
        time.sleep(0.02)
        asleep = asleep + 1 if b") S " in os.pread(looks, 200, 0) else 0
    os.write(w, b"x" * 1000)
thread = threading.Thread(target=write_once_it_waits)
try:
    while True:
        os.dup(0)
except OSError:
    pass
try:
    os.splice(r, fd, 1000, flags=2)
except OSError as error:
    print(errno.errorcode[error.errno])
thread.start()
print(os.splice(r, fd, 1000))
thread.join()
"""


@pytest.mark.parametrize("limit", ["40:", "60:60"])
def test_splice_from_an_empty_pipe_takes_no_descriptor(lab: Lab, limit: str) -> None:
    """Of a program that has used up its own; at once, where it does not wait."""
    done = lab.run(["prlimit", f"--nofile={limit}", sys.executable, "-c", EMPTY_PIPE])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"EAGAIN\n1000\n", b"")


@pytest.mark.parametrize("options", [["--isolate"], ["--mode", "single"]], ids=named)
@pytest.mark.parametrize("call", ["fsize {}", "size g"])
def test_stat_while_a_file_is_written_back(lab: Lab, stops: Stops, options: list[str], call: str) -> None:
    """The kernel had said 0, and by then the size was the kernel's."""
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 100000 1"])
    fd = number(driver.ask("open g rw"))
    stops.arm("stat.asked")
    driver.ask(f"begin 0 {call.format(fd)}")
    stops.wait("stat.asked")
    driver.must([f"map {fd} 4096 rw shared 0"])
    stops.go("stat.asked")
    assert number(driver.ask("await 0")) == 100000
    assert driver.end() == 0


ASKS = """
import os
old, new = os.open("old", os.O_RDWR), os.open("new", os.O_RDWR | os.O_CREAT)
os.pwrite(new, b"n" * 10000, 0)
for call in (os.stat, os.lstat):
    print(call("./old").st_size, call("./new").st_size)
"""


@pytest.mark.parametrize("options", ALL, ids=named)
def test_a_stat_asks_the_kernel_once(lab: Lab, options: list[str]) -> None:
    """Of a file that nobody writes back meanwhile; isolated, it was twice where none was to be written back."""
    if not shutil.which("strace"):
        pytest.skip("strace shows the calls")
    (lab.work / "old").write_bytes(b"old " * 100)
    trace = ["strace", "-f", "-qq", "-o", str(lab.folder / "trace"), "-e", "trace=newfstatat,stat,lstat,statx"]
    done = lab.run([*trace, "/usr/bin/python3", "-c", ASKS], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"400 10000\n" * 2, b"")
    asked = (lab.folder / "trace").read_text()
    assert asked.count('"./old"') == asked.count('"./new"') == 2, asked


def test_a_limit_holds_while_another_write_has_it_lifted(lab: Lab, stops: Stops) -> None:
    """The kernel copied as much as was asked for."""
    for name in "fs":
        (lab.work / name).write_bytes(b"old!" * 50_000)
    command = [*lab.argv("run"), "--", "prlimit", "--fsize=150000:", str(lab.driver)]
    session = Session(command, lab.work, lab.env, lab.folder / "limited")
    lab.sessions.append(session)
    session.must(["thread 0"])
    fd, source, new = (number(session.ask(f"open {name}")) for name in ("f rw", "s r", "g rw,creat"))
    stops.arm("limits.lifted")
    session.ask(f"begin 0 pwrite {fd} 4096 0 3")
    stops.wait("limits.lifted")
    assert session.ask(f"copyrange {source} {new} 200000") == "150000"
    stops.go("limits.lifted")
    assert session.ask("await 0") == "4096"
    assert session.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_memory_of_a_call_while_its_file_is_cut(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """There was a signal where the kernel says EFAULT."""
    done = lab.run([compiled("cut_beside")], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0 0\n", b"")
