"""The run area of a run that was killed, changed at random in its used parts: words and an exit code, whatever it says.
It has no checksums, so what makes sense is trusted (test_run_area_damaged.py: what becomes of the checkpoints)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from lab import PATIENCE, Lab

LINES = ["open f0 rw,creat", "write 3 60000 1", "checkpoint", "pwrite 3 9000 20000 2", "open f1 rw,creat",
         "write 4 500 3", "rename f1 f2", "checkpoint", "pwrite 3 100 0 4", "unlink f2"]


@pytest.fixture
def killed(lab: Lab) -> Lab:
    session = lab.start()
    session.must(LINES)
    session.kill_all()
    subprocess.run(["cp", "-a", lab.store, lab.folder / "whole"], check=True)
    return lab


def used(lab: Lab) -> list[tuple[Path, int]]:
    """Bytes of the area that are not zero."""
    files = sorted(path for path in (lab.store / "run").iterdir() if path.is_file() and path.name != "room")
    return [(path, at) for path in files for at, byte in enumerate(path.read_bytes()[:1 << 20]) if byte]


def again(lab: Lab) -> None:
    """As the kill left it; the file by which a store knows its place stays."""
    for path in lab.store.iterdir():
        if path.name not in ("format", "lock"):
            subprocess.run(["rm", "-rf", path], check=True)
    for path in (lab.folder / "whole").iterdir():
        if path.name not in ("format", "lock"):
            subprocess.run(["cp", "-a", path, lab.store], check=True)


def words_of(lab: Lab, verb: str, what: object) -> str:
    """A verb's answer: never a signal, a traceback or a hang."""
    done = subprocess.run(lab.argv(verb), cwd=lab.folder, env=lab.env, capture_output=True, text=True,
                          errors="replace", timeout=PATIENCE)
    assert done.returncode in (0, 1, 12), (verb, what, done)
    assert "Traceback" not in done.stderr, (verb, what, done)
    return done.stderr


def harm(lab: Lab, rng: random.Random, places: list[tuple[Path, int]]) -> list[tuple[str, int]]:
    done = []
    for path, at in rng.sample(places, rng.choice((1, 3, 20))):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(rng.choice((b"\xff", b"\x7f", rng.randbytes(1), rng.randbytes(4))))
        done.append((path.name, at))
    return done


@pytest.mark.parametrize("rounds", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_completing_from_a_damaged_area(killed: Lab, rounds: int) -> None:
    rng, places = random.Random(21), used(killed)
    assert len(places) > 500
    said = []
    for _ in range(rounds):
        harmed = harm(killed, rng, places)
        said.append(words_of(killed, "log", harmed))
        again(killed)
    assert all(said) and any("its state is checkpoint" in each for each in said)
    print(f"{rounds} damaged areas, {sum('damaged' in each for each in said)} of them found to be")
