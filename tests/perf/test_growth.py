"""What grows with the number of ranges grows in proportion: operations are counted, not seconds."""

from __future__ import annotations

import sys

import pytest
from lab import Lab

from metamori.store.read import state as states
from metamori.store.read.checksums import Checked
from metamori.store.read.compare import compare
from metamori.store.read.store import Store

WRITES = """
import os
from metamori import checkpoint
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(800 * 4096), 0)
checkpoint()
for at in range(0, 800 * 4096, 2 * 4096):
    os.pwrite(fd, b"a" * 100, at + 50)
checkpoint()
"""


def test_diff_of_many_ranges_resolves_a_file_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.run([sys.executable, "-c", WRITES]).check_returncode()
    times, resolve = [], states.resolve
    monkeypatch.setattr(states, "resolve", lambda *words: times.append(1) or resolve(*words))
    with Store.open(str(lab.store)) as store:
        (change,) = compare(store, 1, 2)
    assert len(change.ranges) == 400
    assert len(times) <= 4


def test_short_ranges_beside_a_long_one_are_found_by_themselves() -> None:
    """A range of the buffer that another record knows as part of a long one."""
    short = [(1, at, at + 100, 1) for at in range(0, 400_000, 200)]

    class Buffers:
        def checksum(self, *_: int) -> int:
            return 1

    def lines(ranges: list[tuple[int, int, int, int]]) -> int:
        checked, count = Checked(Buffers(), None, ranges), 0  # type: ignore[arg-type]

        def counts(*_: object) -> object:
            nonlocal count
            count += 1
            return counts

        sys.settrace(counts)  # type: ignore[arg-type]
        try:
            for _, start, end, _ in short:
                checked.require(1, start, end)
        finally:
            sys.settrace(None)
        return count

    assert lines([*short, (1, 0, 400_000, 1)]) < 3 * lines(short)
