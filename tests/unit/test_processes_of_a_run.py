"""Which processes of a run live, and what they have open, as the run area tells."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metamori._area import lib
from metamori.runtime.area.run_area import Area
from metamori.runtime.lifecycle import recover

EXITING = 4  # PF_EXITING in field 9 of /proc/PID/stat


@pytest.fixture
def area(tmp_path: Path) -> Iterator[Area]:
    area = Area(str(tmp_path), create=True)
    yield area
    area.close()


def both_say(area: Area) -> bool:
    """`metamori run` asks the file, the other verbs the mapped area."""
    said = recover._alive(area.path)
    assert bool(area.pids()) == said
    return said


def test_a_process_that_lives_and_one_that_does_not(area: Area) -> None:
    assert not both_say(area)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        assert lib.mm_process_join(area.pointer, other.pid, lib.mm_start_time(other.pid), 0)
        assert both_say(area)
        assert other.stdin
        other.stdin.close()
        other.wait()
    assert not both_say(area)


def test_one_that_could_not_read_its_start_time(area: Area) -> None:
    """It counted as alive for ever: 0 was what it had written, and 0 is what is read of a process that is no more."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        assert lib.mm_process_join(area.pointer, other.pid, 0, 0)
        assert both_say(area)
    assert not both_say(area)


def test_one_that_the_kernel_is_still_taking_down() -> None:
    """Killed with gigabytes of memory it is no zombie for minutes, and not one instruction of it will run."""
    pid = os.fork()
    if pid == 0:
        memory = mmap.mmap(-1, 1 << 29)
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(100_000):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        if fields[0] == "Z" or int(fields[6]) & EXITING:
            assert lib.mm_start_time(pid) == 0
            break
        time.sleep(0)
    os.waitpid(pid, 0)


def test_more_descriptors_than_there_are_in_most_processes(area: Area) -> None:
    """Those past 65,536 were left out of a checkpoint."""
    slot, many = lib.mm_process_join(area.pointer, os.getpid(), lib.mm_start_time(os.getpid()), 0), 70_000
    for fd in range(many):
        assert lib.mm_fd_set(area.pointer, slot, fd, 1 + fd % 7) == 0
    assert area.descriptors(slot) == {fd: 1 + fd % 7 for fd in range(many)}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_the_umask_is_asked_for_and_not_set(mask: int) -> None:
    """For an instant other threads of the program made files that nobody else could read."""
    code = ("import os, sys\n"
            "from metamori.store.io.os_io import umask\n"
            "os.umask(int(sys.argv[1]))\n"
            "os.umask = None\n"
            "print(umask())\n")
    done = subprocess.run([sys.executable, "-c", code, str(mask)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == mask
