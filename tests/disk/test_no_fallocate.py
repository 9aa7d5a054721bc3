"""Where a filesystem gives no room ahead, the C library writes to each block."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Compile
from disks import NoMount, mounted
from lab import Lab


def test_a_thread_cancelled_while_blocks_are_written(tmp_path: Path, compiled: Compile, installed: None) -> None:
    """Its call counted for ever: no checkpoint came any more."""
    try:
        with mounted(tmp_path, "ext4", 40, make=["-O", "^extent,^64bit"]) as disk:
            lab = Lab(disk, compiled("driver"))
            (lab.work / "file").write_bytes(b"before")
            done = lab.run([compiled("cancelled"), "fills", "100"])
            assert done.stdout == b"100 cancelled, written 7, SIGINT 0, 0 checkpoints failed\n", done.stderr.decode()
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))
