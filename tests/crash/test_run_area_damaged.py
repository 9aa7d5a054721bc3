"""What a killed run left in its area is damaged: a verb completes the run or says why not, and never dies of it.

Damaged are bytes in use, at random; a file of the area is cut, or missing. What leads outside of the area is found
before anything is trusted (shim_c/src/area/area_check.c); then the run is completed from what is durable alone.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from conftest import Compile
from honest import assert_honest
from tracing import Call
from trial import Expected, Trial

FILES = ("header", "processes", "fits", "pifs", "pages", "journal", "strings", "chunks", "frames", "cache")
HEAD = 1400                                # bytes of the header before its tables
IN_USE = 4096                              # of the others: where the few files and names of this run are


@pytest.fixture
def killed_at(tmp_path: Path, compiled: Compile, installed: None):  # type: ignore[no-untyped-def]
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"))
    total = len(trial.run().calls)

    def stop(part: float) -> tuple[Trial, Expected]:
        def decide(call: Call) -> str:
            return "k" if call.number >= max(1, int(total * part)) else "g"

        return trial, trial.expected(trial.run(decide).stdout)

    return stop


def completed(trial: Trial, expected: Expected, code: int | None = None) -> str:
    """The next verb ends by itself, and so does every one after it; what was reported is there."""
    done = trial.lab.verb("log", "--json", code=None)
    said = f"{done.returncode}: {done.stderr}"
    assert done.returncode in ((0, 12) if code is None else (code,)), said
    assert "Traceback" not in done.stderr, said
    if done.returncode == 0:
        indexes = {each["index"] for each in json.loads(done.stdout)["checkpoints"]}
        assert expected.indexes.keys() - {0} <= indexes, (expected.indexes.keys(), indexes)
    return done.stderr


def flip_some(run: Path, rng: random.Random) -> str:
    said = []
    for _ in range(rng.randrange(1, 21)):
        path = run / rng.choice(FILES)
        at = rng.randrange(HEAD if path.name == "header" else min(IN_USE, path.stat().st_size))
        value = rng.randrange(1, 256)
        with open(path, "r+b") as file:
            file.seek(at)
            old = file.read(1)
            file.seek(at)
            file.write(bytes([old[0] ^ value]))
        said.append(f"{path.name}:{at}^{value:02x}")
    return " ".join(said)


def flipped(killed_at, seed: int) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(seed)
    trial, expected = killed_at(rng.uniform(.3, .95))
    what = flip_some(trial.store / "run", rng)
    try:
        completed(trial, expected)
    except BaseException:
        print(f"seed {seed}: {what}")
        raise


@pytest.mark.parametrize("seed", range(6))
def test_changed_bytes_end_no_verb(killed_at, seed: int) -> None:  # type: ignore[no-untyped-def]
    flipped(killed_at, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_changed_bytes_end_no_verb(killed_at, seed: int) -> None:  # type: ignore[no-untyped-def]
    flipped(killed_at, seed)


@pytest.mark.in_turn("name")
@pytest.mark.parametrize("name", ["header", "pages", "strings"])
@pytest.mark.parametrize("how", ["cut", "removed"])
def test_a_file_that_is_cut_or_gone(killed_at, name: str, how: str) -> None:  # type: ignore[no-untyped-def]
    """Every reported checkpoint restores all the same: what a checkpoint needs is not in the area."""
    trial, expected = killed_at(.8)
    path = trial.store / "run" / name
    if how == "cut":
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size // 2)
    else:
        path.unlink()
    said = completed(trial, expected, 0)
    assert "is damaged" in said and "what was durable of it is checkpoint " in said, said
    assert_honest(trial.store, trial.work, expected.indexes, untracked=expected.indexes[0])
