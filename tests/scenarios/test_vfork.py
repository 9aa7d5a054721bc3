"""A child of vfork and the parent that waits for it: beside a checkpoint, and when the child is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, wait_until
from stops import Stops

OLD = b"o" * 65536
BEFORE = OLD[:50] + b"before" + OLD[56:]


def begun(lab: Lab, compiled: Compile, env: dict[str, str]) -> subprocess.Popen[bytes]:
    (lab.work / "old").write_bytes(OLD)
    return subprocess.Popen([*lab.argv("run"), "--", compiled("vforked"), "waits"], env=lab.env | env, cwd=lab.work,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def ended(run: subprocess.Popen[bytes]) -> list[str]:
    said = run.communicate(timeout=60)[0].decode().splitlines()
    assert run.returncode == 0
    return [line.partition(" ")[2] for line in said]


def test_a_checkpoint_does_not_wait_for_the_child(lab: Lab, compiled: Compile) -> None:
    run = begun(lab, compiled, {})
    wait_until((lab.work / "stands").exists, "the child")
    then = lab.checkpoint()
    assert "status = 0" in ended(run)
    lab.restore(then)
    assert (lab.work / "old").read_bytes() == b"child" + BEFORE[5:]


@pytest.mark.parametrize("point", ["fork.child", "vfork.child"])
def test_the_child_is_killed_before_it_is_anybody(lab: Lab, compiled: Compile, point: str) -> None:
    """The parent goes on as it was, in checkpoints too."""
    stops = Stops(lab.folder / "stops")
    stops.arm(point)
    run = begun(lab, compiled, stops.env)
    stops.wait(point)
    os.kill(child_of(child_of(run.pid)), signal.SIGKILL)
    wait_until((lab.work / "stands").exists, "the parent")
    then = lab.checkpoint()
    assert {"status = 9", 'pwrite(fd, "parent", 6, 100) = 6'} <= set(ended(run))
    end = (lab.work / "old").read_bytes()
    assert end == BEFORE[:100] + b"parent" + BEFORE[106:]
    lab.restore(1)
    assert (lab.work / "old").read_bytes() == OLD
    lab.restore(then)
    assert (lab.work / "old").read_bytes() == end
