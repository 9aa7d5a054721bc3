"""Kills at each call of a static program: of the process that makes the calls, of the program, of all."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from lab import Lab, Tree, gone, wait_until
from stops import Stops
from test_static_paths import built
from test_static_programs import BUSYBOX, is_static, keeps_listeners, killed_proxies, prepare, proxies, states_natively

from metamori.runtime.area.run_area import Area

CALLS = [
    "echo new > new", "mv new newer", "mkdir -p a", "ln newer hard", "rm newer", "chmod 600 log", "mv hard a/hard",
    "echo more >> log", "sed -i s/o/u/ old", "ln -s log soft", "cp log copy", "truncate -s 9000 log", "rm -r a",
    "touch -d @1000000000 log", "chown $(id -u) log", "mkfifo pipe", "umask 077; echo > own",
    "cat log; ls /proc/self/fd | wc -l"]
SCRIPT = "; ".join(CALLS)
READY = "echo ready; read x"
POINTS = ["proxy.got", "proxy.opened", "proxy.given", "proxy.made"]

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


def started(lab: Lab, script: str, stops: Stops) -> subprocess.Popen[bytes]:
    """It says that it is there, and goes on after a line."""
    prepare(lab)
    run = subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", script], cwd=lab.work, env=lab.env | stops.env,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout and run.stdout.readline() == b"ready\n"
    wait_until(lambda: len(proxies(lab)) == 2 and keeps_listeners(run.pid), "all three holders")
    return run


def goes_on(run: subprocess.Popen[bytes]) -> None:
    assert run.stdin
    run.stdin.write(b"\n")
    run.stdin.flush()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def program_of(run: subprocess.Popen[bytes]) -> int:
    return child_of(run.pid)


def held(run: subprocess.Popen[bytes], stops: Stops, point: str) -> bool:
    """A call stands at the point; or the program has ended."""
    wait_until(lambda: run.poll() is not None or (stops.folder / f"{point}.reached").exists(), f"a call at {point}")
    return (stops.folder / f"{point}.reached").exists()


def ends_as_natively(lab: Lab, native_lab: Lab, run: subprocess.Popen[bytes]) -> None:
    (before, after), printed = states_natively(native_lab, [BUSYBOX, "sh"], [SCRIPT])
    assert run.wait(60) == 0, run.stderr
    assert run.stdout and run.stdout.read() == printed
    assert run.stderr and run.stderr.read() == b""
    lab.assert_state(after, "the end")
    for index, state in ((0, before), (1, after), (0, before)):
        lab.restore(index)
        lab.assert_state(state, f"checkpoint {index}")
    lab.verb("verify")


@pytest.mark.in_turn("point")
@pytest.mark.parametrize("both", [False, True], ids=["proxy", "and-standby"])
@pytest.mark.parametrize("point", POINTS)
def test_proxies_killed_at_every_call(lab: Lab, native_lab: Lab, point: str, both: bool) -> None:
    """Each call is made once, and the program does not notice."""
    stops, kills = Stops(lab.folder / "stops"), 0
    with started(lab, f"{READY}; {SCRIPT}", stops) as run:
        stops.arm(point)
        goes_on(run)
        while held(run, stops, point):
            wait_until(lambda: len(proxies(lab)) == 2, "a proxy and its standby")
            proxy, standby = proxies(lab)
            stops.arm(point)           # for the call after this one: what was begun by another does not stop
            if both:
                os.kill(standby, signal.SIGKILL)
            os.kill(proxy, signal.SIGKILL)
            kills += 1
        assert kills >= (5 if point in ("proxy.opened", "proxy.given") else 10)
        ends_as_natively(lab, native_lab, run)


def is_complete(lab: Lab, crashed: Tree) -> None:
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}
    assert (lab.work / "old").read_bytes() == b"o" * 6000
    assert (lab.work / "log").read_text() == "first\n"
    lab.restore(max(index for index in lab.messages()))   # a child of the killed shell may have gone on
    lab.assert_state(crashed, "the killed state")
    lab.verb("verify")


def kill_at(lab: Lab, number: int, point: str, everything: bool) -> None:
    """At that call, or the first after it that comes to the point."""
    stops = Stops(lab.folder / "stops")
    with started(lab, "; ".join([*CALLS[:number], READY, *CALLS[number:]]), stops) as run:
        stops.arm(point)
        goes_on(run)
        if not held(run, stops, point):
            return
        program = program_of(run)
        children = Path(f"/proc/{program}/task/{program}/children").read_text().split()
        os.kill(program, signal.SIGKILL)
        if everything:
            for pid in (*map(int, children), run.pid):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not killed_proxies(lab), "no proxy")    # a standby had maybe become one, with another
        else:
            stops.go(point)
        run.wait(60)
        wait_until(lambda: not proxies(lab) and gone(program), "what was killed to be gone")
        wait_until(lambda: lab.verb("log", code=None).returncode == 0, "the store")
        is_complete(lab, lab.state())


@pytest.mark.parametrize("everything", [False, True], ids=["program", "all"])
@pytest.mark.parametrize(("number", "point"), [(0, "proxy.opened"), (6, "proxy.got"), (1, "proxy.made")])
def test_killed_at_a_call(lab: Lab, number: int, point: str, everything: bool) -> None:
    kill_at(lab, number, point, everything)


FUTEX = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]


def waits_in_proxy(lab: Lab) -> int:
    """Calls, for a checkpoint."""
    threads = Path(f"/proc/{proxies(lab)[0]}/task").glob("*/syscall")
    return sum(each.read_text().split()[0] == FUTEX for each in threads)


# busybox opens what it truncates
TRUNCATES = """
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    puts("ready"), fflush(stdout), getchar();
    return truncate("log", 0);
}
"""


@pytest.mark.parametrize("call", [f"exec {BUSYBOX} rm log", f"exec {BUSYBOX} mv old log", ": > log",
                                  f"exec {BUSYBOX} mkdir -p made", "truncate"])
def test_killed_while_its_call_waits(lab: Lab, call: str) -> None:
    """For a checkpoint. Whoever waits for its end may put something else there before that has passed."""
    prepare(lab)
    begins = built(lab.folder, TRUNCATES) if call == "truncate" else f"{BUSYBOX} sh -c '{READY}; {call}'"
    script = f"{begins}; echo ended; read x"
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", script], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        area = Area(str(lab.store))
        with area.session_lock(), area.frozen():
            goes_on(run)
            wait_until(lambda: waits_in_proxy(lab), "a call that waits")
            os.kill(child_of(program_of(run)), signal.SIGKILL)
            assert run.stdout.readline() == b"ended\n"
            (lab.work / "log").write_text("new\n")
        goes_on(run)
        assert run.wait(60) == 0
        wait_until(lambda: not proxies(lab), "no proxy")
    assert set(lab.state()) == {"old", "log"} and (lab.work / "log").read_text() == "new\n"


COMES = f"{BUSYBOX} sleep 600 & {READY}; {BUSYBOX} touch made; {BUSYBOX} mv made moved; echo $?; kill $!"


@pytest.mark.parametrize("both", [False, True], ids=["proxy", "and-standby"])
@pytest.mark.parametrize("point", ["proxy.reads", "proxy.told", "filter.dialled"])
def test_proxies_killed_while_a_program_comes(lab: Lab, point: str, both: bool) -> None:
    """Its listener is in the letter box, taken and not yet out of it, or not yet in it: who is next has it, once."""
    stops = Stops(lab.folder / "stops")
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", COMES], cwd=lab.work, env=lab.env | stops.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stderr and run.stdout.readline() == b"ready\n"
        wait_until(lambda: len(proxies(lab)) == 2 and keeps_listeners(run.pid), "all three holders")
        stops.arm(point)
        goes_on(run)
        stops.wait(point)
        for pid in proxies(lab)[::-1] if both else proxies(lab)[:1]:
            os.kill(pid, signal.SIGKILL)
        stops.go(point)
        assert run.stdout.read() == b"0\n"
        assert run.wait(60) == 0 and run.stderr.read() == b""
    assert set(lab.state()) == {"moved"}
    lab.restore(0)
    assert not lab.state()
    lab.restore(1)
    assert set(lab.state()) == {"moved"}
    lab.verb("verify")


@pytest.mark.slow
def test_killed_while_a_program_starts(lab: Lab) -> None:
    """It has a filter, and nobody whom its listener could be sent to: it ends with a message."""
    stops = Stops(lab.folder / "stops")
    stops.arm("filter.dialled")
    command = [*lab.argv("run"), "--", "sh", "-c", f"{BUSYBOX} touch a; echo $?"]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env | stops.env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as run:
        stops.wait("filter.dialled")
        os.kill(run.pid, signal.SIGKILL)       # or it would have the box, and start another proxy
        wait_until(lambda: not killed_proxies(lab), "no proxy")
        stops.go("filter.dialled")
        assert run.stdout and run.stderr
        assert run.stdout.read() == b"127\n"
        assert b"the process that tracks static programs was killed: sh cannot go on" in run.stderr.read()


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True], ids=["program", "all"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_killed_at_every_call(lab: Lab, number: int, point: str, everything: bool) -> None:
    kill_at(lab, number, point, everything)
