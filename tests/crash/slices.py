"""Which of the many points at which something is killed, cut or made to fail are tried: SLICE=3/10 in the environment
means the third of ten slices, each spread evenly over all; without it, all of them.

The points of a test are in a fixed order, so that a slice is the same ones each time, and ten slices are the whole. A
point that fails is printed and does not end the others; pytest's last words say how many passed (conftest.py).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

Point = TypeVar("Point")
PARTS = 8                                  # tests that one whole is cut into: for several processors


def slice_wanted() -> tuple[int, int]:
    """(which, of how many), which from 1."""
    which, _, of = os.environ.get("SLICE", "1/1").partition("/")
    chosen = int(which), int(of)
    assert 1 <= chosen[0] <= chosen[1], f"SLICE={os.environ['SLICE']}: give it as 3/10"
    return chosen


def sliced(points: Sequence[Point], part: int) -> Sequence[Point]:
    which, of = slice_wanted()
    return points[part::PARTS][which - 1::of]


class Tried:
    """The fixture `tried`: does something at each point of this slice, and fails at the end if one failed."""

    def __init__(self, request: pytest.FixtureRequest, record: Callable[[str, object], None]) -> None:
        self._what, self._record = request.node.originalname, record

    def __call__(self, points: Sequence[Point], part: int, attempt: Callable[[Point], object]) -> None:
        mine, failed = sliced(points, part), []
        for point in mine:
            try:
                attempt(point)
            except Exception:
                traceback.print_exc(limit=-4)
                failed.append(point)
        self._record("points", (self._what, len(mine), len(failed), len(points[part::PARTS])))
        assert not failed, f"{len(failed)} of {len(mine)} points: {failed}"
