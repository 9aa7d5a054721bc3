"""Where the filesystem shares blocks nothing of a run's files is lost, however long they are (docs/adr/0030)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import Compile
from disks import MB, NoMount, free, mounted
from lab import Lab


def test_long_files_are_cloned(tmp_path: Path, compiled: Compile, installed: None) -> None:
    if not shutil.which("mkfs.xfs"):
        pytest.skip("mkfs.xfs is missing")
    try:
        with mounted(tmp_path, "xfs", 400) as disk:
            lab = Lab(disk, compiled("driver"))
            (lab.folder / "data").write_bytes(os.urandom(20 * MB + 7))
            assert lab.run(["sh", "-c", "cat ../data >one; cat ../data >two"]).returncode == 0
            before, room = lab.state(), free(disk)
            with (lab.work / "one").open("r+b") as file:
                file.write(b"somebody else")
            (lab.work / "two").unlink()
            assert abs(free(disk) - room) < MB, "the blocks are shared"
            lab.verb("verify")
            lab.restore(1, "--force")
            lab.assert_state(before, "index 1")
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


SNAPSHOT = """
import fcntl, os, struct, sys
def named(folder, name):
    return bytearray(struct.pack("q", folder) + name.ljust(4088, b"\\0"))
here = os.open(".", os.O_RDONLY)
open("volume/made", "w").write("made")
with open("volume/open", "r+b", 0) as file:
    file.write(b"new")
    with open("volume/shut", "r+b") as other:
        other.write(b"new")
    fcntl.ioctl(here, 0x50009401, named(os.open("volume", os.O_RDONLY), b"snapshot"))
    file.write(b"er")
for name in ("open", "shut", "made"):
    print(*(open(f"{folder}/{name}").read() for folder in ("volume", "snapshot")))
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_snapshot_of_btrfs(tmp_path: Path, compiled: Compile, installed: None, options: list[str]) -> None:
    """It had what was in place; in isolation nothing of the run's."""
    if not shutil.which("mkfs.btrfs") or not shutil.which("btrfs"):
        pytest.skip("mkfs.btrfs is missing")
    try:
        with mounted(tmp_path, "btrfs", 120) as disk:
            lab = Lab(disk, compiled("driver"))
            lab.run(["btrfs", "-q", "subvolume", "create", "volume"], native=True)
            for name in ("open", "shut"):
                (lab.work / "volume" / name).write_text("old old")
            done = lab.run([sys.executable, "-c", SNAPSHOT], *options)
            assert done.stdout == b"newerld new old\nnew old new old\nmade made\n"
            assert (done.returncode, done.stderr) == (0, b"")
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))
