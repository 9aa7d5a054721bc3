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
