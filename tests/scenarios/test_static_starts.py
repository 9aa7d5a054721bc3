"""Static programs come while nobody reads the letter box of the process that makes their calls, or while it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab, wait_until
from stops import Stops
from test_static_kills import READY, goes_on, program_of
from test_static_programs import BUSYBOX, is_static, prepare, proxies

from metamori._area import lib
from metamori.runtime.area.run_area import Area

PROGRAMS = 40
ROOM = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX) or ROOM > PROGRAMS // 2, reason="no busybox, or a wide box")


@contextmanager
def idle(lab: Lab, script: str, stops: Stops) -> Iterator[subprocess.Popen[bytes]]:
    """The proxy is there, and no program: it is no process of the run."""
    prepare(lab)
    command = [*lab.argv("run"), "--", "sh", "-c", f"{BUSYBOX} true; {READY}; {script}"]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env | stops.env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        area = Area(str(lab.store))
        wait_until(lambda: all(area.process(slot).outside != lib.MM_OUTSIDE_PROXY for slot in area.processes()),
                   "a proxy without programs")
        try:
            yield run
        except BaseException:
            run.kill()                     # it may wait for a program that stands at a stop point
            raise


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ends_well(run: subprocess.Popen[bytes], printed: bytes) -> None:
    assert run.stdout and run.stderr
    assert run.stdout.read() == printed
    assert (run.wait(60), run.stderr.read()) == (0, b"")


def test_a_run_is_not_over_before_its_letter_is_read(lab: Lab) -> None:
    """Who started it has ended, and its child has no slot."""
    os.mkfifo(lab.folder / "gate")
    daemon = f"{BUSYBOX} sh -c '(read x < {lab.folder}/gate; rm old; echo late > late) &' > /dev/null 2>&1"
    with idle(lab, daemon, Stops(lab.folder / "stops")) as run:
        proxy = proxies(lab)[0]
        os.kill(proxy, signal.SIGSTOP)
        try:
            goes_on(run)
            ends_well(run, b"")
            assert (lab.store / "run").exists()
        finally:
            os.kill(proxy, signal.SIGCONT)
    (lab.folder / "gate").write_text("x\n")
    wait_until(lambda: not (lab.store / "run").exists(), "the end of the run")
    assert set(lab.state()) == {"late", "log"}
    last = lab.log()["checkpoints"][-1]["index"]       # `metamori run` has made one before
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}
    lab.restore(last)
    assert set(lab.state()) == {"late", "log"}


def is_shown(pid: int) -> bool:
    return "\nSeccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text()


def test_more_programs_than_letters_that_the_box_holds(lab: Lab) -> None:
    """One has its filter when there is no room any more, is stopped and continued, and waits; others have none yet."""
    stops = Stops(lab.folder / "stops")
    some = f"i=1; while [ $i -lt {PROGRAMS} ]; do {BUSYBOX} touch f$i & i=$((i+1)); done"
    with idle(lab, f"{BUSYBOX} touch f0 & echo one; read x; {some}; wait; echo done", stops) as run:
        program, proxy = program_of(run), proxies(lab)[0]
        stops.arm("filter.dialled")
        goes_on(run)
        assert run.stdout and run.stdout.readline() == b"one\n"
        stops.wait("filter.dialled")
        first = children(program)[0]
        os.kill(proxy, signal.SIGSTOP)
        try:
            goes_on(run)
            wait_until(lambda: len(children(program)) == PROGRAMS, "all programs")
            wait_until(lambda: sum(map(is_shown, children(program))) > ROOM, "no room")
            assert not is_shown(first)
            stops.go("filter.dialled")
            wait_until(lambda: is_shown(first), "its filter")
            sendmsg = {"x86_64": "46", "aarch64": "211"}[os.uname().machine]
            calls = Path(f"/proc/{first}/syscall")
            wait_until(lambda: calls.read_text().split()[0] == sendmsg, "a wait for room")
            os.kill(first, signal.SIGSTOP)
            wait_until(lambda: "\nState:\tT" in Path(f"/proc/{first}/status").read_text(), "a stop")
            os.kill(first, signal.SIGCONT)
            wait_until(lambda: calls.read_text().split()[0] == sendmsg, "a wait for room again")
        finally:
            os.kill(proxy, signal.SIGCONT)
        ends_well(run, b"done\n")
    everything = {f"f{i}" for i in range(PROGRAMS)} | {"old", "log"}
    assert set(lab.state()) == everything
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}


def test_a_proxy_does_not_end_while_a_program_comes(lab: Lab) -> None:
    stops = Stops(lab.folder / "stops")
    with idle(lab, f"{BUSYBOX} touch made; echo $?", stops) as run:
        stops.arm("filter.dialled")
        goes_on(run)
        stops.wait("filter.dialled")
        stops.arm("proxy.closes")
        stops.wait("proxy.closes")
        (stops.folder / "proxy.closes.reached").unlink()
        (stops.folder / "proxy.closes").touch()
        (stops.folder / "proxy.closes.go").touch()
        stops.wait("proxy.closes")         # it comes by again
        stops.go("filter.dialled")
        ends_well(run, b"0\n")
    assert set(lab.state()) == {"old", "log", "made"}
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}


@pytest.mark.parametrize("point", ["proxy.reads", "filter.dialled"])
def test_the_first_program_of_a_standby(lab: Lab, point: str) -> None:
    """The proxy that was killed had none, and the standby did not know of this one."""
    stops = Stops(lab.folder / "stops")
    with idle(lab, f"{BUSYBOX} touch made; {BUSYBOX} mv made moved; echo $?", stops) as run:
        wait_until(lambda: len(proxies(lab)) == 2, "a proxy and its standby")
        stops.arm(point)
        goes_on(run)
        stops.wait(point)
        os.kill(proxies(lab)[0], signal.SIGKILL)
        stops.go(point)
        ends_well(run, b"0\n")
    assert set(lab.state()) == {"old", "log", "moved"}
    for index, names in ((0, {"old", "log"}), (1, {"old", "log", "moved"})):
        lab.restore(index)
        assert set(lab.state()) == names, index
    lab.verb("verify")


def test_a_proxy_does_not_stay_for_who_was_killed(lab: Lab) -> None:
    """Killed when it has a place, and no filter yet."""
    stops = Stops(lab.folder / "stops")
    with idle(lab, f"{BUSYBOX} touch made; {READY}; {BUSYBOX} touch made; echo $?", stops) as run:
        stops.arm("filter.dialled")
        goes_on(run)
        stops.wait("filter.dialled")
        os.kill(children(program_of(run))[0], signal.SIGKILL)
        assert run.stdout and run.stdout.readline() == b"ready\n"
        wait_until(lambda: not proxies(lab), "no proxy")
        goes_on(run)
        assert run.stderr
        assert run.stdout.read() == b"0\n"
        assert run.wait(60) == 0
    assert set(lab.state()) == {"old", "log", "made"}


def test_who_was_killed_while_it_came_takes_no_place(lab: Lab) -> None:
    """There are places for so many programs at once."""
    stops = Stops(lab.folder / "stops")
    with idle(lab, f"{BUSYBOX} sleep 600 & {READY}; {BUSYBOX} touch made; {READY}; kill $!", stops) as run:
        goes_on(run)
        assert run.stdout and run.stdout.readline() == b"ready\n"
        area = Area(str(lab.store))
        wait_until(lambda: area.head.proxy_places == lib.MM_PROXY_OPEN | 1, "one program")
        stops.arm("filter.dialled")
        goes_on(run)
        stops.wait("filter.dialled")
        shell = program_of(run)
        os.kill(next(each for each in children(shell) if not is_shown(each)), signal.SIGKILL)
        assert run.stdout.readline() == b"ready\n"
        assert area.head.proxy_places == lib.MM_PROXY_OPEN | 1
        goes_on(run)
        assert run.wait(60) == 0
    assert set(lab.state()) == {"old", "log"}


REAPS = """
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
subprocess.run([sys.argv[1], "touch", "made"], check=True)
subprocess.run(["sh", "-c", f"{sys.argv[1]} rm log"], check=True)
try:
    print(os.wait())
except ChildProcessError:
    print("none")
"""


def test_below_who_reaps_orphans(lab: Lab) -> None:
    """PR_SET_CHILD_SUBREAPER: what tracks static programs is no child of it."""
    prepare(lab)
    done = lab.run([sys.executable, "-c", REAPS, BUSYBOX])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"none\n", b"")
    assert set(lab.state()) == {"old", "made"}
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root goes back")
def test_the_first_program_runs_in_the_background(lab: Lab) -> None:
    """By its own wish, and not that of the others, which wait for what the proxy does."""
    prepare(lab)
    first = f"chrt -i 0 ionice -c 3 nice -n 19 {BUSYBOX} sh -c '{READY}'"
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", f"{first}; :"], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        proxy = proxies(lab)[0]
        told = subprocess.run(["ionice", "-p", str(proxy)], capture_output=True, check=True).stdout
        assert os.sched_getscheduler(proxy) == os.sched_getscheduler(run.pid) != os.SCHED_IDLE
        assert os.getpriority(os.PRIO_PROCESS, proxy) == os.getpriority(os.PRIO_PROCESS, run.pid)
        assert b"idle" not in told
        goes_on(run)
        assert run.wait(60) == 0


def test_two_programs_are_the_first(lab: Lab) -> None:
    """One starts the proxy; the other waits until that is ready too, and is tracked."""
    stops = Stops(lab.folder / "stops")
    prepare(lab)
    script = f"{READY}; {BUSYBOX} touch a & {BUSYBOX} touch b & wait"
    command = [*lab.argv("run"), "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env | stops.env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        program = program_of(run)
        stops.arm("init.joins")            # of the proxy: no other process joins from here on
        goes_on(run)
        stops.wait("init.joins")
        pauses = {"x86_64": "230", "aarch64": "115"}[os.uname().machine]
        try:
            wait_until(lambda: [True for pid in children(program)
                                if Path(f"/proc/{pid}/syscall").read_text().split()[0] == pauses], "one that waits")
            assert len(children(program)) == 2
        finally:
            stops.go("init.joins")
        ends_well(run, b"")
    assert set(lab.state()) == {"old", "log", "a", "b"}
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}
