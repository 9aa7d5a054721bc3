"""Signals while the threads of a process stop, or stand, for its image: those of the program come once, also back, and
the engine's own ends nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from comeback import METAMORI, TAKEN, Memory, built, comes_back, run_of
from lab import wait_until
from stops import Stops

pytestmark = pytest.mark.usefixtures("installed")
TGKILL = 234
WAITS = """
import ctypes, os, signal, struct, threading, time
which = [signal.SIGUSR1, signal.SIGRTMIN]
signal.pthread_sigmask(signal.SIG_BLOCK, which)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
libc, timer, second = ctypes.CDLL(None), ctypes.c_void_p(), struct.pack("=qqqq", 0, 0, 2, 0)
assert libc.timer_create(1, struct.pack("=qii48x", 7, signal.SIGRTMIN, 0), ctypes.byref(timer)) == 0
if TIMED:
    assert libc.timer_settime(timer, 0, second, None) == 0
with open("begins", "w") as file:
    file.write(str(os.getpid()))
os.rename("begins", "begun")
came = [signal.sigtimedwait(which, seconds) for seconds in (30, 0.5)]
os.write(1, b"%d times" % sum(each is not None for each in came))
os._exit(3)
"""


def waiting(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in status if line.startswith(("ShdPnd", "SigPnd")))


@pytest.mark.parametrize(("point", "number"), [("memory.parks", signal.SIGUSR1), ("memory.timers", signal.SIGRTMIN)])
def test_one_that_comes_at_the_last_moment(tmp_path: Path, point: str, number: int) -> None:
    """To a thread that stands, while another does not yet; by a timer that was looked at."""
    stops = Stops(tmp_path / "stops")
    script = WAITS.replace("TIMED", str(point == "memory.timers"))
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", script], ends=False)
    case.added = stops.env
    run = case.start()
    try:
        wait_until((case.work / "begun").exists, f"it waits: {case.errors()}")
        pid = int((case.work / "begun").read_text())
        stops.arm(point)
        asked = subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment())
        stops.wait(point)
        if number == signal.SIGUSR1:
            assert ctypes.CDLL(None).syscall(TGKILL, pid, pid, number) == 0
        wait_until(lambda: waiting(pid, number), "the signal waits")
        stops.go(point)
        assert (asked.wait(60), run.wait(60)) == (0, 3), case.errors()
    finally:
        case.kill_with(run)
        run.wait()
    assert (tmp_path / "out").read_bytes() == b"1 times"
    done = case.verb("restart", "1")
    assert (done.returncode, done.stdout) == (3, b"1 times"), done


def test_threads_that_tell_one_another(tmp_path: Path) -> None:
    """A signal that is lost stops the ring."""
    case = Memory(tmp_path, [built(tmp_path, "tells.c")])
    case.everywhere(case.run_and_kill("30ms", 6), most=5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may")
@pytest.mark.parametrize("what", ["groups", "capabilities", "filter", "network"])
def test_a_thread_with_rights_of_its_own(tmp_path: Path, what: str) -> None:
    """It would come back with those of the others."""
    case = Memory(tmp_path, [built(tmp_path, "apart.c"), what])
    run_of(case)
    assert "a thread has a user, groups" in case.errors() and case.images() == []


# each of these takes longer than it is from one checkpoint to the next
ENDLESS = """
short = 0
with open("/dev/urandom", "rb", buffering=0) as device:
    room = memoryview(bytearray(16 << 20))
    for _ in range(40):
        short += device.readinto(room) != len(room)
print(short)
"""


def test_long_reads_of_what_never_ends_are_whole(tmp_path: Path) -> None:
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", ENDLESS])
    assert case.native.output == b"0\n"
    comes_back(case, "60ms")


ALARM = """
import signal
signal.setitimer(signal.ITIMER_REAL, 5)
taken()
print(signal.getitimer(signal.ITIMER_REAL)[0] > 2.5)
"""


def test_an_alarm_comes_no_sooner_for_the_time_that_it_takes_to_come_back(tmp_path: Path) -> None:
    """Of a process that is there before others."""
    stops = Stops(tmp_path / "stops")
    (tmp_path / "script").write_text(TAKEN + ALARM)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"])
    case.added = stops.env
    run_of(case)
    stops.arm("restore.locks")
    back = subprocess.Popen([*METAMORI, "restart", "1"], cwd=case.work, env=case.environment(), stdout=subprocess.PIPE)
    stops.wait("restore.locks")
    time.sleep(4)
    stops.go("restore.locks")
    assert (back.communicate(timeout=60)[0], back.returncode) == (b"True\n", 0)
