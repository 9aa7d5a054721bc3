"""Calls beside calls, in the order that once lost bytes: a thread is held in the window while another goes first.

The points are in the checked build only (tests/stops.py); each test here failed before the window was closed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lab import Lab, Session
from stops import Stops

ISOLATED = [["--isolate", "--cache-size", "0"], ["--mode", "single"]]
ALL = [[], *ISOLATED]


def named(words: list[str]) -> str:
    return " ".join(words) or "default"


@pytest.fixture
def stops(lab: Lab, tmp_path: Path) -> Stops:
    """Stop points of every program that the laboratory starts from here on."""
    stops = Stops(tmp_path / "stops")
    lab.env |= stops.env
    return stops


def number(answer: str) -> int:
    return int(answer.split()[0])


def begun(lab: Lab, *options: str, threads: int = 1) -> Session:
    """The driver with threads, and `f` redirected: written, checkpointed, written over."""
    driver = lab.start(*options)
    driver.must([f"thread {n}" for n in range(threads)])
    driver.must(["fill f w,creat 196608 1", "checkpoint"])
    return driver


@pytest.mark.parametrize("options", ISOLATED, ids=named)
@pytest.mark.parametrize("point", ["home.copied", "home.shown", "home.cleared"])
def test_read_while_the_file_is_settled(lab: Lab, stops: Stops, options: list[str], point: str) -> None:
    """Who reads without the lock finds every byte, wherever it is just then."""
    driver = begun(lab, *options)
    fd = number(driver.ask("open f rw"))
    driver.must([f"pwrite {fd} 49152 94208 2", f"pwrite {fd} 8192 196608 3"])
    before = driver.ask(f"pread {fd} 65536 65536")
    stops.arm(point)
    driver.ask(f"begin 0 map {fd} 204800 rw shared 0")
    stops.wait(point)
    meanwhile = driver.ask(f"pread {fd} 65536 65536")   # whole blocks that lie in no frame: without the lock
    stops.go(point)
    assert number(driver.ask("await 0")) == 0
    assert meanwhile == before == driver.ask(f"pread {fd} 65536 65536")
    assert driver.end() == 0


@pytest.mark.parametrize("options", ALL, ids=named)
def test_pages_of_a_table_under_a_reader(lab: Lab, stops: Stops, options: list[str]) -> None:
    """A reader that is in the table while its file is settled never walks on in another file's."""
    driver = begun(lab, *options)
    driver.must(["fill g w,creat 200000 7", "checkpoint"])
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    driver.must([f"pwrite {f} 98304 0 2"])
    before = driver.ask(f"pread {f} 8192 8192")
    h = number(driver.ask("open h rw,creat"))
    stops.arm("table.walk")
    driver.ask(f"begin 0 pread {f} 8192 8192")
    stops.wait("table.walk")
    driver.must([f"map {f} 196608 rw shared 0", f"pwrite {g} 98304 0 5", f"pwrite {h} 98304 0 6"])
    stops.go("table.walk")
    assert driver.ask("await 0") == before
    assert driver.end() == 0


@pytest.mark.parametrize("options", ISOLATED, ids=named)
def test_read_while_the_file_is_cut(lab: Lab, stops: Stops, options: list[str]) -> None:
    """What stood at home long before never shows again: a reader finds what was there, zeros or the end."""
    lab.work.joinpath("f").write_bytes(b"old" * 40_000)
    driver = lab.start(*options)
    driver.must(["thread 0", "thread 1"])
    fd = number(driver.ask("open f rw"))
    driver.must(["checkpoint", f"pwrite {fd} 120000 0 2"])
    before, zeros = driver.ask(f"pread {fd} 8192 8192"), "8192 d8f49994"
    stops.arm("data.sized")
    driver.ask(f"begin 0 pread {fd} 8192 8192")
    stops.wait("data.sized")
    stops.arm("data.forgotten")
    driver.ask(f"begin 1 ftruncate {fd} 0")
    stops.wait("data.forgotten")
    stops.go("data.sized")
    meanwhile = driver.ask("await 0")
    stops.go("data.forgotten")
    assert driver.ask("await 1") == "0"
    assert meanwhile in (before, zeros, "0 00000000")
    assert driver.end() == 0


def test_killed_between_two_stores_of_a_reservation(lab: Lab, stops: Stops) -> None:
    """Files whose buffer blocks were handed out around a kill have blocks of their own."""
    driver = begun(lab)
    driver.must(["fill f w 2000000 1", "fill g w,creat 2000000 7", "checkpoint", "twin 0"])
    f, g = (number(driver.ask(f"open {name} rw")) for name in "fg")
    driver.ask(f"pwrite {g} 4096 0 3")
    of_twin = number(driver.ask("in 0 open f rw"))
    pid = number(driver.ask("in 0 pid"))
    stops.arm("data.reserving")
    driver.ask(f"begin 0 in 0 pwrite {of_twin} 4096 0 2")
    stops.wait("data.reserving")
    os.kill(pid, signal.SIGKILL)
    driver.ask("await 0")
    driver.must([f"pwrite {f} 4096 4096 3", f"pwrite {g} 400000 0 4"])
    before = driver.ask(f"pread {g} 2000000 0")
    driver.must([f"pwrite {f} 1000000 8192 5"])
    assert driver.ask(f"pread {g} 2000000 0") == before
    driver.ask("endtwin 0")
    assert driver.end() == 0
