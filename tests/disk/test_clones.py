"""Where the filesystem shares blocks nothing of a run's files is lost, however long they are (docs/adr/0030)."""

from __future__ import annotations

import os
import shutil
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
