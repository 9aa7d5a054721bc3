"""Threads that have nothing to do with each other do not notice each other, nor the checkpoints of one of them."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab

SIZED = ["--isolate", "--cache-size"]
OPTIONS = [[], ["--isolate"], [*SIZED, "192K"], [*SIZED, "0"], ["--mode=single"]]
NAMES = ["default", "isolate", "small-cache", "no-cache", "single"]


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_own_files(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """Small cache: a thread makes room in it while another takes a checkpoint. Each used to wait for the other, for as
    long as a checkpoint is waited for."""
    done = lab.run([compiled("own_files"), 4, 2000, 10], *options, env={"METAMORI_DEBUG": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"10 checkpoints, 0 failed, 0 wrong\n", b"")
    lab.verb("verify")
