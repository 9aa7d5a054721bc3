"""A file of older indexes has no tracked name left, and somebody writes to it by a name outside of the scope: what only
it held is lost, and nothing else is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lab import Lab

PROGRAM = """
import metamori, os
file = os.open("saved", os.O_WRONLY)
os.pwrite(file, b"n" * 9000, 0)
print(metamori.checkpoint())
os.unlink("held")
os.unlink("saved")
"""
ELSE = b"by somebody else"
BACK = "import metamori, os\nos.link('../out/held', 'back')\nprint(metamori.checkpoint())"


@pytest.fixture
def out(lab: Lab) -> Path:
    """Where two files of index 0 are that were removed after index 1, for which the second was overwritten."""
    del lab.env["METAMORI_TRACK"]
    out = lab.folder / "out"
    out.mkdir()
    for name in "held", "saved", "other":
        (lab.work / name).write_bytes(b"o" * 9000)
        os.link(lab.work / name, out / name)
    done = lab.run([sys.executable, "-c", PROGRAM])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
    return out


def write(file: Path, data: bytes) -> int:
    """Over the beginning; returns when it was last written to before."""
    before = file.stat().st_mtime_ns
    with open(file, "r+b") as opened:
        opened.write(data)
    return before


def assert_lost(lab: Lab, *indexes: str) -> None:
    said = lab.verb("verify", code=12).stderr.splitlines()
    assert [line.split()[2] for line in said] == [*indexes]
    assert all(line.endswith("held is lost") for line in said), said


def names(lab: Lab) -> list[str]:
    return sorted(each.name for each in lab.work.iterdir() if each.name != ".metamori")


def test_where_it_is_needed_the_rest_comes_back(lab: Lab, out: Path) -> None:
    write(out / "held", ELSE)
    write(out / "saved", ELSE)
    refused = lab.verb("restore", "1", code=12)
    assert "--force" in refused.stderr and names(lab) == ["other"]
    lab.verb("restore", "--force", "1", code=12)
    assert names(lab) == ["other", "saved"] and (lab.work / "saved").read_bytes() == b"n" * 9000
    lab.restore(2)
    assert names(lab) == ["other"]
    assert_lost(lab, "0", "1")


def test_runs_go_on(lab: Lab, out: Path) -> None:
    write(out / "held", ELSE)
    write(out / "saved", ELSE)
    assert lab.run(["/bin/true"]).returncode == 0
    lab.verb("restore", "1", code=12)
    assert_lost(lab, "0", "1")
    done = lab.run([sys.executable, "-c", BACK])
    assert done.returncode == 0, done.stderr
    index = int(done.stdout)
    lab.restore(2)
    assert names(lab) == ["other"]
    lab.restore(index)
    assert (lab.work / "back").read_bytes() == ELSE + b"o" * 8984
    assert os.path.samefile(lab.work / "back", out / "held")


def test_a_restore_that_does_not_need_it(lab: Lab, out: Path) -> None:
    """It gives nothing up: somebody may put the file right."""
    then = write(out / "held", ELSE)
    lab.restore(2)
    assert (out / "held").read_bytes().startswith(ELSE)
    write(out / "held", b"o" * len(ELSE))
    os.utime(out / "held", ns=(then, then))
    for index, saved in (1, b"n" * 9000), (0, b"o" * 9000):
        lab.restore(index)
        assert names(lab) == ["held", "other", "saved"] and (lab.work / "saved").read_bytes() == saved
        assert (lab.work / "held").read_bytes() == b"o" * 9000
    lab.verb("verify")
