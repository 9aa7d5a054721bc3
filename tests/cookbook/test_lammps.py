"""docs/how-to/lammps.md: natively resumed the files are wrong, under Metamori as uninterrupted."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "lammps"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("lmp") is None, reason="lmp is not installed: apt-get "
                                                   "install lammps"), pytest.mark.usefixtures("installed")]
METAMORI = [sys.executable, "-m", "metamori"]


def environment() -> dict[str, str]:
    text = (EXAMPLE / "one-process.env").read_text()
    found = {name: value for name, value in os.environ.items() if not name.startswith(("METAMORI", "OMPI"))}
    return found | dict(re.findall(r"(OMPI_\w+)=(\S+)", text)) | {"PYTHONPATH": str(ROOT)}


def frames(folder: Path) -> list[int]:
    """The steps in the trajectory, in their order."""
    text = (folder / "traj.lammpstrj").read_text() if (folder / "traj.lammpstrj").exists() else ""
    return [int(step) for step in re.findall(r"ITEM: TIMESTEP\n(\d+)\n", text)]


def whole(folder: Path, *command: str) -> None:
    with open(folder / "out.log", "ab") as out:
        subprocess.run(command, cwd=folder, env=environment(), stdout=out, check=True, timeout=900)


def killed(folder: Path, *command: str) -> None:
    """lmp is killed in the middle, by SIGKILL, somewhere past step 4000."""
    with open(folder / "out.log", "ab") as out:
        job = subprocess.Popen(command, cwd=folder, env=environment(), stdout=out)
        limit = time.monotonic() + 600
        while len(frames(folder)) < 42:
            assert job.poll() is None and time.monotonic() < limit
            time.sleep(0.02)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/cwd") == str(folder) and os.readlink(f"/proc/{pid}/exe").endswith("/lmp"):
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue
        assert job.wait(600) in (137, -9)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    whole(folder, "lmp", "-in", str(EXAMPLE / "melt.in"))
    assert frames(folder) == list(range(0, 8001, 100))
    return folder


def test_natively_the_files_are_wrong_and_nobody_says_so(reference: Path, tmp_path: Path) -> None:
    killed(tmp_path, "lmp", "-in", str(EXAMPLE / "melt.in"))
    newest = max(int(path.suffix[1:]) for path in tmp_path.glob("melt.restart.*"))
    whole(tmp_path, "lmp", "-in", str(EXAMPLE / "resume.in"), "-var", "from", str(newest))
    assert len(frames(tmp_path)) > 81 and len(set(frames(tmp_path))) == 81
    assert (tmp_path / "temp.dat").read_text().count("# Fix print") == 2


@pytest.mark.parametrize("times", [1, 2])
def test_with_metamori_they_are_those_of_an_uninterrupted_run(reference: Path, tmp_path: Path, times: int) -> None:
    lmp = ["lmp", "-in", str(EXAMPLE / "melt.in")]
    killed(tmp_path, *METAMORI, "run", "--memory", "--every", "500ms", "--", *lmp)
    if times == 2:                         # and once more, from the checkpoint before the newest
        log = subprocess.run([*METAMORI, "log", "--json"], cwd=tmp_path, env=environment(), capture_output=True,
                             text=True, check=True).stdout
        index = [int(each) for each in re.findall(r'"index": (\d+)[^}]*"memory": \d', log)][-2]
        whole(tmp_path, *METAMORI, "restart", "--stdio", str(index))
    whole(tmp_path, *METAMORI, "restart", "--stdio", *([str(index)] if times == 2 else []))
    for name in ("traj.lammpstrj", "temp.dat", "log.lammps", "out.log"):
        said, want = (tmp_path / name).read_text(), (reference / name).read_text()
        if name.endswith(".log") or name == "log.lammps":   # they hold how long it took
            said, want = ("\n".join(line for line in text.splitlines() if re.match(r" +\d+ +[\d.]+ ", line))
                          for text in (said, want))
            assert want.count("\n") == 16
        assert said == want, name
