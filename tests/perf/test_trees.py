"""What each process of a tree adds to a checkpoint, in numbers that do not depend on how busy a machine is."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from comeback import Memory
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")
FEW, MANY = 4, 24
MOST = 16                                  # files, nearly all in /proc; 22 before it asked what it knew already, now 15
MOST_OF_A_FORK = 14.5                      # what it has mapped is read of one of them: else 15.2


def programs(processes: int) -> list[str]:
    script = f"i=0; while [ $i -lt {processes} ]; do (echo >> ready; exec sleep 1000) & i=$((i+1)); done; wait"
    return ["/bin/sh", "-c", script]


def forks(processes: int) -> list[str]:
    script = (f"import os, signal\nfor i in range({processes}):\n    if os.fork() == 0:\n"
              "        with open('ready', 'a') as file:\n            file.write('x')\n        break\nsignal.pause()")
    return ["/usr/bin/python3", "-c", script]


def opened(folder: Path, command: list[str], processes: int) -> int:
    """By `metamori run` for a checkpoint that is not the first."""
    folder.mkdir()
    case = Memory(folder, command, ends=False)
    run = case.start()
    ready, counts = case.work / "ready", folder / "counts"
    wait_until(lambda: ready.exists() and ready.stat().st_size == processes, "all processes")
    assert case.verb("checkpoint").returncode == 0
    with subprocess.Popen(["strace", "-f", "-c", "-o", counts, "-p", str(run.pid)], stderr=subprocess.PIPE) as strace:
        assert strace.stderr and b"attached" in strace.stderr.readline()
        assert case.verb("checkpoint").returncode == 0
        strace.send_signal(signal.SIGINT)
        strace.stderr.read()
    case.kill_with(run)
    run.wait()
    return next(int(line.split()[3]) for line in counts.read_text().splitlines() if line.endswith(" openat"))


@pytest.mark.parametrize("kind, most", [(programs, MOST), (forks, MOST_OF_A_FORK)])
def test_what_a_process_adds(tmp_path: Path, kind: Callable[[int], list[str]], most: int) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace")
    many, few = opened(tmp_path / "many", kind(MANY), MANY), opened(tmp_path / "few", kind(FEW), FEW)
    assert 5 < (many - few) / (MANY - FEW) <= most
