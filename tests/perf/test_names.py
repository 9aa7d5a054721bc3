"""What names cost, in system calls: their number does not depend on how busy a machine is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab import Lab

COUNT = 200
NATIVE = 6                                 # create, close, rename, chmod, unlink, mkdir: a call each
# With what Metamori does for them, in the present folder, in one below it, and in one by its whole path. A path costs
# one call (where the process is, or whether its folder is still there), a relative one with a folder both.
MOST = {"here": 20, "in a folder": 26, "by the whole path": 20}


def calls(lab: Lab, program: Path, count: int, prefix: Path | str) -> tuple[int, str]:
    counts = lab.folder / "counts"
    done = lab.run(["strace", "-c", "-o", str(counts), str(program), str(count), str(prefix)])
    assert done.returncode == 0, done.stderr.decode()
    text = counts.read_text()
    return sum(int(line.split()[3]) for line in text.splitlines()
               if re.match(r" *\d+\.\d+ +\d", line) and not line.endswith(" total")), text


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed: nothing counts system calls")
@pytest.mark.parametrize("where", MOST)
def test_calls_for_names(lab: Lab, tmp_path: Path, where: str) -> None:
    program = tmp_path / "names"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", program, Path(__file__).with_name("names.c")], check=True)
    (lab.work / "d").mkdir()
    prefix = {"here": "", "in a folder": "d/", "by the whole path": f"{lab.work}/d/"}[where]
    few, _ = calls(lab, program, 2, prefix + "a")
    many, text = calls(lab, program, COUNT + 2, prefix + "b")
    made = (many - few) / COUNT
    assert made > NATIVE + 4, "the preload library was not there"
    assert made <= MOST[where] + 0.3, text
