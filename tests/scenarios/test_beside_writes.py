"""Writes beside calls that change what the engine decides by: position, size, flags, places in the buffer, the epoch.

As in test_losing_orders.py a thread is held in the window (tests/stops.py).
"""

from __future__ import annotations

import os
import signal
import time
import zlib

import pytest
from lab import Lab
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
