"""Threads that end, are late or are asked twice while a process stops for its image; threads' numbers in hand."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from comeback import METAMORI, Memory, built
from lab import wait_until
from stops import Stops

from metamori._area import lib
from metamori.config import Config
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle import child_loop, start_run
from metamori.runtime.memory import tree
from metamori.runtime.memory.proc_inspect import NotBegun
from metamori.store.read.store import Store

TWO_THREADS = """
import os, threading, time
def count(letter):
    while True:
        os.write(1, letter)
        time.sleep(0.005)
threading.Thread(target=count, args=(b"a",)).start()
count(b"b")
"""

# beside the main thread there is one that is told of its timer, which never runs out
TIMED = """
import ctypes, os, resource, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
used = next(int(line.split()[1].split("/")[0]) for line in open("/proc/self/status") if line.startswith("SigQ"))
most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
resource.setrlimit(resource.RLIMIT_SIGPENDING, (used + 400, most))     # a thread that is late is asked again
starts = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda value: None)
how = (ctypes.c_uint64 * 8)(0, 2 << 32, ctypes.cast(starts, ctypes.c_void_p).value)
assert ctypes.CDLL(None).timer_create(1, how, ctypes.byref(ctypes.c_void_p())) == 0
with open("begins", "w") as file:
    file.write(str(os.getpid()))
os.rename("begins", "begun")
time.sleep(600)
"""

LARGE = """
import mmap, os, time
open("begun", "w")
while not os.path.exists("grow"):
    time.sleep(0.01)
memory = mmap.mmap(-1, 256 << 20)
memory[::4096] = b"x" * (256 << 8)
open("grown", "w")
time.sleep(600)
"""


def pending(pid: int) -> bool:
    """Whether the engine's signal waits for a thread of the process."""
    return any(int(line.split()[1], 16) >> 31 & 1 for line in Path(f"/proc/{pid}/status").read_text().splitlines()
               if line.startswith(("ShdPnd", "SigPnd")))


def in_background(case: Memory) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment(), stdout=subprocess.DEVNULL)


pytestmark = pytest.mark.usefixtures("installed")


def test_threads_that_end_instead_of_stopping(tmp_path: Path) -> None:
    """They are in no image, nor is one that stood in their place the time before."""
    case = Memory(tmp_path, [built(tmp_path, "leaves.c")])
    assert case.native.output == b"taken 0\ntaken 1\nend 2\n"
    assert case.start().wait(300) == 3, case.errors()
    assert (tmp_path / "out").read_bytes() == case.native.output, case.errors()
    for index in (2, 1, 2):
        case.goes_on(index)


def test_a_thread_that_parks_when_its_stop_was_given_up(tmp_path: Path) -> None:
    """It goes on by itself, and no other stop begins before."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", TWO_THREADS], ends=False)
    case.added = stops.env
    run = case.start()
    wait_until(lambda: (tmp_path / "out").stat().st_size > 4, "both threads count")
    stops.arm("memory.parks")
    refused = case.verb("checkpoint")
    assert b"does not stop" in refused.stderr, refused
    later = in_background(case)
    stops.go("memory.parks")
    assert later.wait(60) == 0
    before = (tmp_path / "out").stat().st_size
    wait_until(lambda: set((tmp_path / "out").read_bytes()[before:]) == set(b"ab"), "both threads go on")
    case.kill_with(run)
    run.wait()


def test_a_thread_that_is_held_where_it_parks(tmp_path: Path) -> None:
    """By a debugger, say: no checkpoint is taken, and the other thread goes on."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", TWO_THREADS], ends=False)
    case.added = stops.env
    out = tmp_path / "out"
    run = case.start()
    wait_until(lambda: out.stat().st_size > 4, "both threads count")
    stops.arm("memory.parks")
    for _ in range(2):
        refused = case.verb("checkpoint")
        assert b"does not stop" in refused.stderr, refused
        before = out.stat().st_size
        wait_until(lambda: out.stat().st_size > before + 4, "the other one counts")    # noqa: B023
    stops.go("memory.parks")
    assert case.verb("checkpoint").returncode == 0
    case.kill_with(run)
    run.wait()


def test_asked_again_before_the_leader_is_none_any_more(tmp_path: Path) -> None:
    """Another thread gets the signal, and is not the leader: the one that is looks again."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", TWO_THREADS], ends=False)
    case.added = stops.env
    run = case.start()
    wait_until(lambda: (tmp_path / "out").stat().st_size > 4, "both threads count")
    stops.arm("memory.led")
    assert case.verb("checkpoint").returncode == 0
    stops.wait("memory.led")
    again = in_background(case)
    area = Area(str(case.store))
    slot, = area.processes()
    memory = lib.mm_memory_of(area.pointer, slot)
    pid = area.process(slot).pid
    wait_until(lambda: memory.state == lib.MM_MEMORY_ASKED and not pending(pid), "a thread has taken the signal")
    area.close()
    stops.go("memory.led")
    assert again.wait(60) == 0
    case.kill_with(run)
    run.wait()


def test_one_that_ends_while_it_is_looked_at(tmp_path: Path) -> None:
    """Its memory is gone before its files are closed: both are its end."""
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", LARGE], ends=False)
    run = case.start()
    wait_until(lambda: (case.work / "begun").exists(), "it runs")
    assert case.verb("checkpoint").returncode == 0
    (case.work / "grow").touch()
    wait_until(lambda: (case.work / "grown").exists(), "it has much memory")
    area = Area(str(case.store))
    slot, = area.processes()
    images = tree.Images.__new__(tree.Images)
    images.area, images.all = area, [SimpleNamespace(slot=slot, pid=area.process(slot).pid)]
    looks = tree._unless_one_ends(lambda images: os.readlink(f"/proc/{images.all[0].pid}/exe"))
    looks(images)
    os.kill(images.all[0].pid, signal.SIGKILL)
    with pytest.raises(NotBegun):
        while True:
            looks(images)
    area.close()
    run.wait()


def test_signals_to_threads_come(tmp_path: Path) -> None:
    """The kernel's number of a thread is in hand for a few instructions: no image is made there."""
    case = Memory(tmp_path, [built(tmp_path, "kills.c")])
    assert case.start().wait(300) == 3, case.errors()
    indexes = case.images()
    assert len(indexes) == 12, case.errors()
    for index in indexes:
        case.goes_on(index)


def asks_with_the_lock(case: Memory, stops: Stops, back: subprocess.Popen[bytes]) -> None:
    """By a number that one of its threads has; then it ends as it does natively."""
    stops.wait("request.held")
    area = Area(str(case.store))
    slot, = area.processes()
    assert str(area.head.request.lock & 0x3FFFFFFF) in os.listdir(f"/proc/{area.process(slot).pid}/task")
    area.close()
    stops.go("request.held")
    assert back.wait(60) == 3, case.errors()


@pytest.mark.parametrize("has_its_number", [0, 1])
def test_one_that_waits_to_ask_comes_back(tmp_path: Path, has_its_number: int) -> None:
    """It has the lock by the number that it has now: by its old one, nobody's, another would take it as well."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, [built(tmp_path, "asks.c")], ends=False)
    case.added = stops.env
    run = case.start("--every", "50ms")
    wait_until(case.images, "an image")
    area = Area(str(case.store))
    area.head.request.lock = os.getpid()
    (case.work / "ask").touch()
    wait_until(lambda: area.head.request.lock != os.getpid(), "it waits for the lock")
    before = case.images()[-1]
    wait_until(lambda: case.images()[-1] > before + 1, "an image of that")
    case.kill(run)
    run.wait()
    area.close()
    stops.arm("request.held")
    back = case.restart_in_background(max(each for each in case.images() if each % 2 == has_its_number))
    asks_with_the_lock(case, stops, back)


def test_one_that_just_has_the_lock_to_ask_comes_back(tmp_path: Path) -> None:
    """That was another run's, also where the process has the number that it had (odd indexes: comeback.py)."""
    stops = Stops(tmp_path / "stops")
    stops.arm("request.locked")
    case = Memory(tmp_path, [built(tmp_path, "asks.c")], ends=False)
    case.added = stops.env
    run = case.start("--every", "50ms")
    (case.work / "ask").touch()
    stops.wait("request.locked")
    before = case.log()["checkpoints"][-1]["index"]
    wait_until(lambda: case.images()[-1:] > [before + 2], "two images of that")
    case.kill(run)
    run.wait()
    stops.arm("request.held")
    back = case.restart_in_background(max(each for each in case.images() if each % 2))
    stops.go("request.locked")
    asks_with_the_lock(case, stops, back)


def test_asked_while_it_begins(tmp_path: Path) -> None:
    """Who asks for a checkpoint of a run that is there, but whose program is not, ends nobody."""
    child = os.fork()
    if child == 0:
        store = Store.create_or_open(str(tmp_path / "store"))
        store.lock()
        start_run.begin_area(store, Config(), os.getpid())
        os.kill(os.getpid(), child_loop.REQUEST)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_thread_of_timers_takes_the_signal_while_it_parks(tmp_path: Path) -> None:
    """And there is no room to send it again: whoever asked is answered all the same."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", TIMED], ends=False)
    case.added = stops.env
    run = case.start()
    try:
        wait_until(lambda: (case.work / "begun").exists(), f"it runs: {case.errors()}")
        stops.arm("memory.parks"), stops.arm("memory.looked")
        refused = case.verb("checkpoint")
        assert b"does not stop" in refused.stderr, refused
        stops.wait("memory.looked")        # the main thread leads no more, and blocks every signal
        again = subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment(),
                                 stderr=subprocess.PIPE)
        pid = int((case.work / "begun").read_text())
        wait_until(lambda: pending(pid), "it is asked again")
        stops.arm("timers.took")
        stops.go("memory.parks")
        stops.wait("timers.took")
        while ctypes.CDLL(None).sigqueue(pid, signal.SIGRTMIN, None) == 0:
            pass
        stops.go("timers.took"), stops.go("memory.looked")
        time.sleep(0.2)                    # whoever sends it again did so in vain; then the others are told
        most = resource.prlimit(pid, resource.RLIMIT_SIGPENDING)[1]
        resource.prlimit(pid, resource.RLIMIT_SIGPENDING, (most, most))
        said = again.communicate(timeout=60)[1]
        assert again.returncode == 0 or b"more queued signals wait" in said, said
    finally:
        case.kill_with(run)
        run.wait()
