"""FTI programs whose ranks are the runs of one job: one index of the job's store for all files, with their memory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import launch
import pytest
from test_resume import STEPS, built, content, reference

__all__ = ["built", "reference"]

pytest.importorskip("zmq")


def words(program: Path, steps: int, level: int, *options: str) -> list[str]:
    return ["mpirun.openmpi", "-n", "4", *launch.METAMORI, "run", "--job", *options, "--", str(program), str(steps),
            str(level)]


def stood_still(folder: Path, program: Path, level: int) -> None:
    """Killed some steps after its third checkpoint, where it waits."""
    def waits() -> bool:
        return launch.taken(folder) >= 3 and all(
            (folder / f"restart.{rank}").stat().st_size for rank in range(4))
    launch.killed(folder, words(program, STEPS * 10_000, level), program.name, waits, stops=3)


def log(folder: Path) -> list[dict]:
    done = subprocess.run([*launch.METAMORI, "log", "--json"], cwd=folder, env=launch.ENVIRONMENT, capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)["checkpoints"]


@pytest.mark.in_turn("level", 2)
@pytest.mark.parametrize("level, lost", [
    (1, []), (3, [1, 2]), pytest.param(2, [0, 2], marks=pytest.mark.slow),
    pytest.param(4, [0, 1, 2, 3], marks=pytest.mark.slow)])
def test_killed_and_resumed_as_a_job(level, lost, built, reference, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    stood_still(tmp_path, program, level)
    found = log(tmp_path)
    assert [entry["message"] for entry in found if entry["message"].startswith("level")] == [f"level {level}"] * 3
    for node in lost:
        shutil.rmtree(tmp_path / "Local" / f"node{node}")
    done = launch.run(tmp_path, *words(program, STEPS, level, "--resume", "--resume-at", "level *"))
    assert "resumed at step 9" in done.stderr
    assert {"out": done.stdout.encode(), **content(tmp_path)} == reference


def test_without_the_files_of_that_instant_it_does_not_go_on(built, reference, tmp_path):
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    stood_still(tmp_path, program, 2)
    done = launch.run(tmp_path, *words(program, STEPS, 2), well=False)
    assert done.returncode and "they go back before the programs start" in done.stderr, done.stderr
    index = re.search(r"restore --store \S+ (\d+)", done.stderr)
    assert index
    launch.run(tmp_path, *launch.METAMORI, "restore", index.group(1))
    done = launch.run(tmp_path, *words(program, STEPS, 2))
    assert "resumed at step 9" in done.stderr
    assert {"out": done.stdout.encode(), **content(tmp_path)} == reference


def test_killed_before_the_memory_is_recorded(built, reference, tmp_path):
    """The files' index is there by then. It was the one to continue from, at each start anew, and no memory fits it."""
    launch.need("openmpi")
    program = launch.compiled("stencil", "openmpi", built)
    launch.configure(tmp_path)
    stood_still(tmp_path, program, 3)
    max((tmp_path / "Meta").rglob("ckpt*.json"), key=lambda path: int(path.stem[4:])).unlink()
    noted = tmp_path / ".metamori" / "levels"
    lines = [line for line in noted.read_text().splitlines(True) if line != "\n"]
    assert [int(line.split()[0]) for line in lines] == [0, *(
        entry["index"] for entry in log(tmp_path) if entry["message"] == "level 3")]
    noted.write_text("".join(lines[:-1]))
    done = launch.run(tmp_path, *words(program, STEPS, 3, "--resume", "--resume-at", "level *"))
    assert "resumed at step 6" in done.stderr
    assert {"out": done.stdout.encode(), **content(tmp_path)} == reference
