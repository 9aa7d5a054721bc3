"""Calls of a process with one thread are counted without a locked instruction (mm_enter_alone in area/area.h)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import Compile
from lab import PATIENCE, Lab, Session, wait_until
from stops import Stops

from metamori.runtime.area.run_area import Area

FUTEX = "202"


@pytest.fixture
def stops(lab: Lab) -> Stops:
    stops = Stops(lab.folder / "stops")
    lab.env.update(stops.env)
    return stops


def begun(lab: Lab, threads: int) -> Session:
    """The driver with `f` open, whose first bytes are redirected and lie in memory."""
    (lab.work / "f").write_bytes(b"old" * 10_000)
    driver = lab.start()
    driver.program()
    driver.must(["open f rw", "checkpoint", "pwrite 3 100 0 1", *(f"thread {n}" for n in range(threads))])
    return driver


def begins(driver: Session, line: str) -> None:
    """Whose answer is read later."""
    assert driver.process.stdin
    driver.process.stdin.write(line.encode() + b"\n")
    driver.process.stdin.flush()


def answered(driver: Session) -> bool:
    return bool(select.select([driver.process.stdout], [], [], 0)[0])


def waits(driver: Session) -> bool:
    return (Path("/proc") / str(driver.pid) / "syscall").read_text().split()[0] == FUTEX


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("call", ["pwrite 3 100 0 2", "pread 3 100 0"])
def test_a_call_that_finds_the_run_frozen_waits(lab: Lab, stops: Stops, call: str, threads: int) -> None:
    """It had seen a file with redirected blocks before; nothing is written or read before the thaw."""
    driver = begun(lab, threads)
    area = Area(str(lab.store))
    process = area.process(next(area.processes()))
    stops.arm("data.looked")
    begins(driver, call)
    stops.wait("data.looked")
    with area.session_lock(PATIENCE), area.frozen():
        stops.go("data.looked")
        wait_until(lambda: answered(driver) or waits(driver), "the call waits, or is done")
        assert not answered(driver)
        wait_until(lambda: process.calls == 0, "it is not under way")
        assert area.head.lock == 0
    assert driver._line().startswith("100")
    driver.must(["checkpoint"])
    assert process.calls == 0
    assert driver.end() == 0


@pytest.mark.parametrize("threads", [0, 1])
def test_a_call_that_is_counted_is_waited_for(lab: Lab, stops: Stops, threads: int) -> None:
    driver = begun(lab, threads)
    area = Area(str(lab.store))
    process = area.process(next(area.processes()))
    stops.arm("data.counted")
    begins(driver, "pwrite 3 100 0 2")
    stops.wait("data.counted")
    assert process.calls == 1
    frozen, over = threading.Event(), threading.Event()

    def freeze() -> None:
        with area.session_lock(PATIENCE), area.frozen():
            frozen.set()
            over.wait(PATIENCE)

    other = threading.Thread(target=freeze)
    other.start()
    wait_until(lambda: area.head.freeze != 0, "somebody freezes the run")
    assert not frozen.is_set()
    stops.go("data.counted")
    assert frozen.wait(PATIENCE)
    assert process.calls == 0
    over.set()
    other.join()
    assert driver._line().startswith("100")
    assert driver.end() == 0


def test_a_handler_begins_a_thread_before_the_call_is_counted(lab: Lab, stops: Stops, compiled: Compile) -> None:
    """It waits for the call: of two counts, one with no locked instruction, one would be lost."""
    (lab.work / "f").write_bytes(b"old" * 10_000)
    words = [*lab.argv("run"), "--", str(compiled("begun_amid"))]
    with subprocess.Popen(words, cwd=lab.work, env=lab.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin and program.stdout
        pid = int(program.stdout.readline())
        stops.arm("data.alone")
        program.stdin.write(b"\n")
        program.stdin.flush()
        stops.wait("data.alone")
        os.kill(pid, signal.SIGUSR1)
        stops.go("data.alone")
        assert program.wait(PATIENCE) == 0


@pytest.mark.parametrize("killed", [False, True])
def test_a_call_has_the_lock_while_the_run_is_frozen(lab: Lab, stops: Stops, killed: bool) -> None:
    """Between lock and look it has changed nothing; who freezes waits for the lock, or takes it over."""
    driver = begun(lab, 0)
    area = Area(str(lab.store))
    process = area.process(next(area.processes()))
    stops.arm("data.looked")
    begins(driver, "pwrite 3 100 0 2")
    stops.wait("data.looked")
    with area.session_lock(PATIENCE), area.frozen():
        stops.arm("data.locked")
        stops.go("data.looked")
        stops.wait("data.locked")
        assert process.calls == 1
        if killed:
            os.kill(driver.pid, signal.SIGKILL)
        else:
            stops.go("data.locked")
            wait_until(lambda: process.calls == 0, "it is not under way")
    if killed:
        assert driver.end() != 0
        lab.restore(1)
        assert (lab.work / "f").read_bytes() == b"old" * 10_000
    else:
        assert driver._line().startswith("100")
        driver.must(["checkpoint"])
        assert driver.end() == 0


def test_killed_in_a_synced_write(lab: Lab, stops: Stops) -> None:
    """The room that it had set aside is held for nobody: once it was to the end of the run."""
    driver = begun(lab, 1)
    driver.must(["twin 0"])
    of_twin, pid = (int(driver.ask(f"in 0 {line}")) for line in ("open f rw,sync", "pid"))
    head = Area(str(lab.store)).head
    before = head.owed
    stops.arm("data.copied_up")
    driver.ask(f"begin 0 in 0 pwrite {of_twin} 100 8192 2")
    stops.wait("data.copied_up")
    assert head.owed > before
    os.kill(pid, signal.SIGKILL)
    driver.ask("await 0")
    driver.must(["checkpoint"])
    assert head.owed == before
    driver.ask("endtwin 0")
    assert driver.end() == 0
