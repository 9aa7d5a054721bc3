"""What somebody has put in a folder that a restore moves would come to where a name is to be: found out beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import Lab

PLACES = {"file": ["open m/k rw,creat"], "fifo": ["mkfifo m/k"], "folder": ["mkdir m/k"], "moved": ["rename x m/k"]}
COMES = {"fifo": os.mkfifo, "file": Path.touch, "folder": Path.mkdir}


def look(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_ino) for path in folder.rglob("*")
            if ".metamori" not in path.parts}


@pytest.mark.parametrize("comes", COMES)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_begun(lab: Lab, place: str, comes: str) -> None:
    """At 1 there is n, at 2 it is m, and m/k is there at 3: n/k is nobody's."""
    session = lab.start()
    session.must(["mkdir n", "mkdir x", "checkpoint", "rename n m", "checkpoint", *PLACES[place], "checkpoint"])
    assert session.end() == 0, session.stderr()
    lab.restore(1)
    COMES[comes](lab.work / "n" / "k")
    before = look(lab.work)
    if (place, comes) == ("folder", "folder"):
        lab.restore(3)
        assert (lab.work / "m" / "k").is_dir()
        return
    for forced in [], ["--force"]:
        told = lab.restore(3, *forced, code=14).stderr
        assert f"{lab.work}/n/k is in the way: it was made by somebody else" in told, told
        assert look(lab.work) == before
    (lab.work / "n" / "k").rename(lab.work / "aside")
    lab.restore(3)
    assert (lab.work / "m" / "k").exists()


def test_nothing_is_said_to_be_restored(lab: Lab) -> None:
    """Of an index that has lost something, either."""
    session = lab.start()
    session.must(["mkdir n", "checkpoint", "rename n m", "open m/k rw,creat", "open l rw,creat", "write 4 100000 1",
                  "checkpoint"])
    assert session.end() == 0, session.stderr()
    lab.restore(1)
    (lab.work / "n" / "k").touch()
    [kept] = [path for path in (lab.store / "kept").iterdir() if path.stat().st_size == 100000]
    kept.write_bytes(b"")
    told = lab.restore(2, "--force", code=14).stderr
    assert "is in the way" in told and "restored" not in told, told
