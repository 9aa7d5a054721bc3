"""A PIF's blocks folded into AMLs, against a list of bytes; and the rule that a chain of records is folded by."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.runtime.area import run_area
from metamori.tables import pif
from metamori.tables.aml import AML, AddressMap
from metamori.tables.pif import Pif, folded

BLOCK = 4
RUN = 7
BLOCKS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 3)), max_size=6)
AMLS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 12), st.integers(100, 200)), max_size=4)
Place = tuple[int, int]


def in_file_order(steps: list[tuple[int, int, int]]) -> list[pif.Blocks]:
    """As a block table gives them: none meets another. Of each step: how far on it begins."""
    found, at = [], 0
    for gap, buffer, count in steps:
        found.append((at + gap, buffer, count))
        at += gap + count
    return found


def of_file(size: int, ranges: list[pif.Blocks], captured: list[AML] | None = None) -> Pif:
    return Pif(slot=1, object=2, dev=3, ino=4, btime_ns=0, flags=0, created=False, preexisting=True, refs=1, path=b"/f",
               home=b"/f", size=size, home_limit=pif.NO_LIMIT, cut=size, mtime_ns=0, st=None, old=(0, 0, 0, 0, 0),
               ranges=ranges, captured=captured)


def places(amls: AddressMap) -> dict[int, Place]:
    return {at: (run, offset + at - start) for start, end, run, offset in amls for at in range(start, end)}


@settings(max_examples=200, deadline=None)
@given(BLOCKS, st.integers(0, 60), AMLS)
def test_what_is_recorded_of_an_interval(steps: list[tuple[int, int, int]], size: int,
                                         others: list[tuple[int, int, int]]) -> None:
    ranges = in_file_order(steps)
    captured = AddressMap(AML(start, start + length, RUN, offset) for start, length, offset in others)
    file = of_file(size, ranges, list(captured))
    redirected = {at: (RUN, buffer * BLOCK + at - block * BLOCK) for block, buffer, count in ranges
                  for at in range(block * BLOCK, min((block + count) * BLOCK, size))}
    found = file.redirected(RUN, BLOCK)
    assert places(found) == redirected and found.nbytes == len(redirected)
    found.check()
    both = file.with_captured(found)
    both.check()
    assert places(both) == places(captured) | redirected
    assert file.with_captured(file.redirected(RUN, BLOCK)) == both, "the fold changes nothing that it reads"


@given(BLOCKS)
def test_a_whole_table(steps: list[tuple[int, int, int]]) -> None:
    ranges = in_file_order(steps)
    assert folded(ranges, RUN, BLOCK).nbytes == BLOCK * sum(count for _, _, count in ranges)


def test_no_limit_is_the_run_areas() -> None:
    assert pif.NO_LIMIT == run_area.NO_LIMIT
