"""Two threads or processes make calls on the same names at the same moment: nothing is lost, and no call answers what
it could not answer natively. The program is tests/programs/pairs.c, the judge tests/pairs.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab
from pairs import MODES, elsewhere, play

SHORT = [("default", "processes", "here"), ("default", "threads", "elsewhere"), ("isolated", "threads", "here"),
         ("isolated", "processes", "elsewhere"), ("single", "processes", "here"), ("single", "threads", "elsewhere")]
LONG = [(mode, sides, place) for mode in MODES for sides in ("threads", "processes") for place in ("here", "elsewhere")]


@pytest.mark.parametrize("sides", ["threads", "processes"])
def test_natively_some_order_explains_every_pair(tmp_path: Path, compiled: Compile, sides: str) -> None:
    """The judge itself: it accuses nobody who is innocent."""
    program, numbers = compiled("pairs"), ["1", "60", "3"]
    done = subprocess.run([program, "run", "names", sides, *numbers], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "oracle").mkdir()
    judged = subprocess.run([program, "oracle", "names", *numbers], cwd=tmp_path / "oracle", input=done.stdout,
                            capture_output=True, check=False)  # fmt: skip
    assert judged.stdout == b"180 pairs, 0 wrong\n", judged


def played(lab: Lab, program: Path, mode: str, sides: str, place: str, seed: int, worlds: int, phases: int) -> int:
    with elsewhere() as folder:
        if place == "elsewhere":
            lab.store = Path(folder, "store")
        return play(lab, program, "names", mode, sides, seed, worlds, phases)


@pytest.mark.parametrize("mode, sides, place", SHORT)
def test_names_in_pairs(lab: Lab, compiled: Compile, mode: str, sides: str, place: str) -> None:
    """Every call on names beside every other, on the same names: each index comes back, each answer has an order."""
    played(lab, compiled("pairs"), mode, sides, place, 7, 120, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode, sides, place", LONG)
def test_names_in_many_pairs(tmp_path: Path, compiled: Compile, mode: str, sides: str, place: str) -> None:
    """25,000 pairs each: 100,000 in each mode."""
    count = 0
    for seed in range(100, 110):
        (tmp_path / f"{seed}").mkdir()
        count += played(Lab(tmp_path / f"{seed}", tmp_path), compiled("pairs"), mode, sides, place, seed, 500, 5)
    assert count == 25000
