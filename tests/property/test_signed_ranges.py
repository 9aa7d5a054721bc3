"""Which signed ranges are read for some bytes of a buffer (Checked), against all of them looked at one by one."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from metamori.store.read.checksums import Checked, Signed


class Counted:
    """A buffer whose checksums are right; which were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def checksums(self, run: int, ranges: list[tuple[int, int]]) -> list[int]:
        self.asked += [(run, *each) for each in ranges]
        return [1] * len(ranges)


def checked(ranges: list[Signed]) -> tuple[Checked, Counted]:
    buffers = Counted()
    return Checked(buffers, SimpleNamespace(buffer=lambda run: b"%d" % run), ranges), buffers  # type: ignore[arg-type]


places = st.builds(lambda start, length: (start, start + length), st.integers(0, 300), st.integers(1, 300))
signed = st.builds(lambda run, place, crc: (run, *place, crc), st.integers(0, 2), places, st.integers(0, 1))


@given(st.lists(signed, max_size=40), st.lists(st.tuples(st.integers(1, 2), places), max_size=10), st.booleans())
def test_each_range_that_meets_the_bytes_is_read_once(ranges: list[Signed],
                                                      wanted: list[tuple[int, tuple[int, int]]], at_once: bool) -> None:
    these, buffers = checked(ranges)
    for run, (start, end) in () if at_once else wanted:
        these.require(run, start, end)
    for run in (1, 2) if at_once else ():
        these.require_all(run, [place for which, place in wanted if which == run])
    naive = {(run, low, high) for run, low, high, crc in ranges if crc
             for which, (start, end) in wanted if run == which and low < end and high > start}
    assert sorted(buffers.asked) == sorted(naive)
