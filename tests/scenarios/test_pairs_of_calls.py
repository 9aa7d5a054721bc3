"""Two threads or processes make calls on the same names, or the same bytes, at the same moment: nothing is lost, and no
call answers what it could not answer natively. The program is tests/programs/pairs.c, the judge tests/pairs.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab
from pairs import SETS, elsewhere, play

SHORT = [("default", "processes", "here"), ("default", "threads", "elsewhere"), ("isolated", "threads", "here"),
         ("isolated", "processes", "elsewhere"), ("single", "processes", "here"), ("single", "threads", "elsewhere")]


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("sides", ["threads", "processes", "turns"])
def test_natively_some_order_explains_every_pair(tmp_path: Path, compiled: Compile, which: str, sides: str) -> None:
    """The judge itself: it accuses nobody who is innocent.  In turns, world 115 of data is left with a position
    that no state shows before a later phase."""
    program, numbers = compiled("pairs"), ["3", "120", "3"]
    done = subprocess.run([program, "run", which, sides, *numbers], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "oracle").mkdir()
    judged = subprocess.run([program, "oracle", which, sides, *numbers], cwd=tmp_path / "oracle", input=done.stdout,
                            capture_output=True, check=False)  # fmt: skip
    assert judged.stdout == b"360 pairs, 0 wrong\n", judged


@pytest.mark.in_turn("mode")
@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("mode, sides, place", SHORT)
def test_in_pairs(lab: Lab, compiled: Compile, which: str, mode: str, sides: str, place: str) -> None:
    """Every call of a set beside every other, on the same files: each index comes back, each answer has an order.

    `make pairs` plays 100,000 in each mode."""
    with elsewhere() as folder:
        if place == "elsewhere":
            lab.store = Path(folder, "store")
        play(lab, compiled("pairs"), which, mode, sides, 7, 80, 2)


def test_fork_beside_a_descriptor_of_the_library(lab: Lab, compiled: Compile) -> None:
    """The child has each of the library's own descriptors that it knows: 1 in 10 of its writes said EBADF."""
    (lab.work / "d").mkdir()
    for i in range(150):
        (lab.work / "d" / f"{i}").write_bytes(bytes(10_000))
    assert lab.run([compiled("forks_beside"), "150"]).stdout == b"0\n"
