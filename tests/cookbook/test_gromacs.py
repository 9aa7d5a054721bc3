"""The page docs/how-to/gromacs.md, typed as it stands; natively GROMACS refuses what the page goes on to do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import typed

EXAMPLES = typed.ROOT / "examples"
MDRUN = ["gmx", "-quiet", "mdrun", "-nt", "1", "-reprod", "-deffnm", "r"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed"), pytest.mark.skipif(
    shutil.which("gmx") is None, reason="gmx is not installed: apt-get install gromacs")]


def mdrun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MDRUN, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2000, 4000 and 5000 steps, one after the other, natively; the checkpoint of each is kept beside."""
    folder = tmp_path_factory.mktemp("straight")
    subprocess.run(["sh", EXAMPLES / "gromacs" / "prepare.sh"], cwd=folder, check=True, capture_output=True)
    for number, name in enumerate(("half", "whole", "longer")):
        done = mdrun(folder, "-s", f"{name}.tpr", *(["-cpi", "r.cpt", "-append"] if number else []))
        assert done.returncode == 0, done.stderr
        shutil.copy(folder / "r.cpt", folder / f"{name}.cpt")
    return folder


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / f"r.{name}").read_bytes() for name in ("xtc", "edr", "gro")}


def test_the_page(straight: Path, tmp_path: Path) -> None:
    text = (typed.ROOT / "docs" / "how-to" / "gromacs.md").read_text()
    typed.compare(typed.typed(typed.steps(text), tmp_path, 900, EXAMPLES=str(EXAMPLES)))
    assert results(tmp_path) == results(straight)
    assert next((tmp_path / "hot").rglob("r.xtc")).read_bytes() != results(straight)["xtc"]


def test_natively_there_is_no_way_forward(straight: Path, tmp_path: Path) -> None:
    for path in straight.iterdir():
        shutil.copy(path, tmp_path)
    back = mdrun(tmp_path, "-s", "hot.tpr", "-cpi", "half.cpt", "-append")
    assert back.returncode == 0, back.stderr
    forward = mdrun(tmp_path, "-s", "longer.tpr", "-cpi", "whole.cpt", "-append")
    assert forward.returncode != 0 and "Checksum wrong" in forward.stderr


def test_with_its_memory(straight: Path, tmp_path: Path) -> None:
    """Back in the middle, twice: each time the end is that of an uninterrupted run."""
    shutil.copy(straight / "longer.tpr", tmp_path)
    wanted = tmp_path / "native"
    wanted.mkdir()
    assert mdrun(wanted, "-s", str(straight / "longer.tpr")).returncode == 0

    def metamori(*words: str) -> str:
        done = subprocess.run(["metamori", *words], cwd=tmp_path, env=typed.environment(), capture_output=True,
                              text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    metamori("run", "--memory", "--every", "200ms", "--", *MDRUN, "-s", "longer.tpr")
    indexes = [each["index"] for each in json.loads(metamori("log", "--json"))["checkpoints"] if each["memory"]]
    assert len(indexes) > 2
    for index in (indexes[0], indexes[-1], indexes[len(indexes) // 2]):
        metamori("restart", str(index))
        assert results(tmp_path) == results(wanted), index
