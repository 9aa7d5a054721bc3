"""The adaptive example: rolled back by itself, it ends well and leaves only good steps behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comeback import Memory

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("installed")
def test_the_solver_goes_back_until_it_converges(tmp_path: Path) -> None:
    solver = tmp_path / "solver"
    source = ROOT / "examples" / "adaptive" / "solver.c"
    include = f"-I{ROOT / 'shim_c' / 'include'}"
    subprocess.run(["gcc", "-O1", "-Wall", include, str(source), "-lm", "-o", str(solver)], check=True)
    case = Memory(tmp_path, [solver])
    assert case.native.status == 1, "without Metamori it diverges"
    done = case.verb("run", "--memory", "--", str(solver))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(b"diverged") == 3, done.stderr
    rows = [line.split() for line in (case.work / "history").read_text().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1)), "steps follow each other"
    assert all(float(row[2]) <= 1.1 for row in rows), "no failed step is left"
    words = [entry["message"] for entry in case.log()["checkpoints"]]
    assert sum(word.startswith("rolled back to") for word in words) == 3
    assert case.verb("verify").returncode == 0
