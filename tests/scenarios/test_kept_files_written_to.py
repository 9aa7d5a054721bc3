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


MOVED_IN = """
import metamori, os
os.rename("../out/held", "back")
metamori.checkpoint()
os.truncate("back", 5000)
metamori.checkpoint()
os.unlink("back")
"""


def test_by_a_run_that_moves_it_in_and_removes_it(lab: Lab, out: Path) -> None:
    """That is the run's own doing: it was taken for somebody else's, and its bytes for lost."""
    assert lab.run([sys.executable, "-c", MOVED_IN]).returncode == 0
    lab.verb("verify")
    kept = [each.stat().st_ino for each in (lab.store / "kept").iterdir()]
    assert len(kept) == len(set(kept))     # else its other name would count as somebody's
    wants: dict[int, dict[str, int]] = {
        0: {"held": 9000}, 3: {"back": 9000}, 4: {"back": 5000}, 5: {}, 1: {"held": 9000}}
    for index, want in wants.items():
        lab.restore(index)
        have = {each.name: each.read_bytes() for each in lab.work.iterdir() if each.name in ("held", "back")}
        assert have == {name: b"o" * size for name, size in want.items()}, index
    lab.verb("verify")


SWEPT = """
import os, subprocess
os.link("../out/saved", "back")
subprocess.run(["env", "-u", "LD_PRELOAD", "METAMORI_DISABLE=1", "sh", "-c",
                "printf somebody | dd of=../out/held conv=notrunc"])
"""


def test_beside_a_run_that_gives_back_a_name(lab: Lab, out: Path) -> None:
    """What the store had besides of a file that has a name goes, and what it noted of the others counts on."""
    assert lab.run([sys.executable, "-c", SWEPT]).returncode == 0
    assert b"somebody" in (out / "held").read_bytes()
    said = lab.verb("verify", code=12).stderr
    assert "checkpoint 0 cannot be restored exactly" in said and "checkpoint 1 cannot be restored exactly" in said
    lab.restore(1, code=12)
