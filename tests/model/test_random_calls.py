"""Random file calls natively and under Metamori: the same lines, and every checkpoint's files come back.

`tests/model/surface.py SEED [LENGTH] [OPTION...]` makes a failing one small; then add the seed to KEPT.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Compile
from surface import attempt

MODES = [[], ["--isolate"], ["--mode=single"]]
KEPT: list[int] = [1, 2, 3, 4, 5, 17, 22, 24, 56, 1018, 1039]  # seeds that once found something

# a file size limit on O_DSYNC; the time of change omitted, or kept while bytes are written back
# a link of a nameless file, a copy beyond every limit; the ACL of a device
# a write that does not append, a failed one that dates its file; flags and a place beyond every file at once
FURTHER = [(57, 290), (13, 270), (30, 230), (74, 290), (104, 290), (285, 250),
           (279, 250), (266, 250), (1065, 250)]


def check(program: Path, seed: int, length: int, options: list[str]) -> None:
    wrong = attempt(program, seed, length, options)
    assert not wrong, f"seed {seed}, {length} lines, {' '.join(options) or 'default'}\n{wrong}"


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize("seed", KEPT)
def test_same_as_natively(compiled: Compile, installed: None, seed: int, options: list[str]) -> None:
    check(compiled("surface"), seed, 250, options)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize(("seed", "length"), FURTHER)
def test_same_as_natively_in_isolation(compiled: Compile, installed: None, seed: int, length: int) -> None:
    check(compiled("surface"), seed, length, ["--isolate"])


@pytest.mark.slow
@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize("seed", range(20000, 20060))
def test_many(compiled: Compile, installed: None, seed: int, options: list[str]) -> None:
    check(compiled("surface"), seed, 600, options)
