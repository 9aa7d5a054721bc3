"""What each process of a tree adds to a checkpoint, in numbers that do not depend on how busy a machine is."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from comeback import Memory, state_of
from hang import descendants
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")
FEW, MANY = 4, 24
MOST_OF_ONE = 81                           # calls of an idle process; 138 when it was asked what it knew, now 78, or 80
MOST_WALKS = 10                            # over its pages; 12 when what each stop writes was protected again
MOST = 12.5                                # files, nearly all in /proc; 22 before it asked what it knew, now 11.8
MOST_OF_A_FORK = 11.5                      # what it has mapped is read of one of them: else 12


def programs(processes: int) -> list[str]:
    script = f"i=0; while [ $i -lt {processes} ]; do (echo >> ready; exec sleep 1000) & i=$((i+1)); done; wait"
    return ["/bin/sh", "-c", script]


def forks(processes: int) -> list[str]:
    script = (f"import os, signal\nfor i in range({processes}):\n    if os.fork() == 0:\n"
              "        with open('ready', 'a') as file:\n            file.write('x')\n        break\nsignal.pause()")
    return ["/usr/bin/python3", "-c", script]


def sleeps(pid: int) -> bool:
    """And is no writer, which ends."""
    return state_of(pid)[:1] == ["S"] and Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


def counted(folder: Path, command: list[str], processes: int, of_one: bool = False) -> dict[str, int]:
    """Calls of `metamori run`, or of one process of the tree, for a checkpoint that is not the first."""
    folder.mkdir()
    case = Memory(folder, command, ends=False)
    run = case.start()
    ready, counts = case.work / "ready", folder / "counts"
    wait_until(lambda: ready.exists() and ready.stat().st_size == processes, "all processes")
    for _ in range(2):
        assert case.verb("checkpoint").returncode == 0
    whose = ["-p", str(max(filter(sleeps, descendants(run.pid))))] if of_one else ["-f", "-p", str(run.pid)]
    with subprocess.Popen(["strace", "-c", "-o", counts, *whose], stderr=subprocess.PIPE) as strace:
        assert strace.stderr and b"attached" in strace.stderr.readline()
        assert case.verb("checkpoint").returncode == 0
        strace.send_signal(signal.SIGINT)
        strace.stderr.read()
    case.kill_with(run)
    run.wait()
    return {line.split()[-1]: int(line.split()[3]) for line in counts.read_text().splitlines()
            if line.split()[3:] and line.split()[3].isdecimal()}


@pytest.mark.parametrize("kind, most", [(programs, MOST), (forks, MOST_OF_A_FORK)])
def test_what_a_process_adds(tmp_path: Path, kind: Callable[[int], list[str]], most: int) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace")
    many, few = (counted(tmp_path / str(n), kind(n), n)["openat"] for n in (MANY, FEW))
    assert 5 < (many - few) / (MANY - FEW) <= most


def test_what_an_idle_process_does(tmp_path: Path) -> None:
    """Nothing was written since the last time but what each stop writes: nothing is protected again."""
    if not shutil.which("strace"):
        pytest.skip("no strace")
    calls = counted(tmp_path / "one", programs(1), 1, of_one=True)
    assert 20 < calls["total"] <= MOST_OF_ONE
    assert 0 < calls["ioctl"] <= MOST_WALKS
