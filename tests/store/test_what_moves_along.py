"""What is nobody's in a folder that a restore moves goes along, also to a name that a run used: it is never lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab

LINES = ["mkdir x", "open x/a rw,creat", "checkpoint", "rename x y", "checkpoint", "open y/g rw,creat",
         "write 4 5000 1", "checkpoint", "unlink y/g", "checkpoint"]


@pytest.fixture
def along(lab: Lab) -> Path:
    """y/g at 2, where only 3 has a file of that name."""
    session = lab.start()
    session.must(LINES)
    assert session.end() == 0, session.stderr()
    lab.restore(1)
    (lab.work / "x" / "g").write_bytes(b"nobody's")
    lab.restore(2)
    return lab.work / "y" / "g"


def test_a_restore_leaves_it_there(lab: Lab, along: Path) -> None:
    for index in (4, 2):
        lab.restore(index)
        assert along.read_bytes() == b"nobody's", index
    lab.restore(1)
    assert (lab.work / "x" / "g").read_bytes() == b"nobody's" and not along.exists()


def test_it_is_in_the_way(lab: Lab, along: Path) -> None:
    assert f"{along} is in the way: it was made by somebody else" in lab.verb("restore", "3", code=14).stderr
    assert along.read_bytes() == b"nobody's"


def test_forced_it_is_recorded(lab: Lab, along: Path) -> None:
    lab.verb("restore", "--force", "3")
    [recorded] = [index for index, why in lab.messages().items() if why == "before restore"]
    assert len(along.read_bytes()) == 5000
    for index, there in (2, False), (recorded, True), (4, False):
        lab.restore(index)
        assert along.exists() == there and (not there or along.read_bytes() == b"nobody's"), index


def test_the_next_run_records_it(lab: Lab, along: Path) -> None:
    lab.run(["true"], cwd=lab.work)
    [recorded] = [index for index, why in lab.messages().items() if why == "start of run"]
    for index, there in (2, False), (recorded, True), (4, False):
        lab.restore(index)
        assert along.exists() == there and (not there or along.read_bytes() == b"nobody's"), index
