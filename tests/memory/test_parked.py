"""A process that stands still for its image: it opens nothing, and goes on by itself when nobody is left who asked."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from comeback import Memory
from lab import wait_until

from metamori._area import lib
from metamori.runtime.area.run_area import Area

pytestmark = pytest.mark.usefixtures("installed")
COUNTS = "import time\nwhile True:\n    print(end='.', flush=True)\n    time.sleep(0.005)\n"


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Memory]:
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", COUNTS], ends=False)
    run = case.start()
    wait_until(lambda: (tmp_path / "out").stat().st_size > 0, "it counts")
    yield case
    case.kill_with(run)
    run.wait()


def park(case: Memory) -> tuple[Area, int, int]:
    area = Area(str(case.store))
    slot, = area.processes()
    pid: int = area.process(slot).pid
    lib.mm_memory_ask(area.pointer, [slot], [pid], 1)
    assert lib.mm_memory_held(area.pointer, slot, 5000) == 0
    return area, slot, pid


def reads(pid: int) -> str:
    return next(line for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("syscr"))


def test_it_opens_nothing(counting: Memory) -> None:
    """Whoever looks at its descriptors takes them for the program's; a pause of many processes is long."""
    area, slot, pid = park(counting)
    before, count = reads(pid), (counting.folder / "out").stat().st_size
    time.sleep(0.9)
    assert reads(pid) == before
    assert (counting.folder / "out").stat().st_size == count
    lib.mm_memory_go(area.pointer, [slot], 1)
    wait_until(lambda: (counting.folder / "out").stat().st_size > count, "it goes on")
    area.close()


def test_whoever_asked_has_ended_and_is_not_waited_for(counting: Memory) -> None:
    asker = os.fork()
    if asker == 0:
        park(counting)
        os._exit(0)
    os.waitid(os.P_PID, asker, os.WEXITED | os.WNOWAIT)
    count = (counting.folder / "out").stat().st_size
    wait_until(lambda: (counting.folder / "out").stat().st_size > count, "it goes on")
    os.waitpid(asker, 0)


def test_one_that_joins_after_it_was_asked_is_not_taken_for_parked(counting: Memory) -> None:
    """A child that forks sets its state as it joins; the signal may come at any time."""
    area = Area(str(counting.store))
    slot, = area.processes()
    memory = lib.mm_memory_of(area.pointer, slot)
    os.kill(area.process(slot).pid, signal.SIGSTOP)
    lib.mm_memory_ask(area.pointer, [slot], [area.process(slot).pid], 1)
    memory.state = lib.MM_MEMORY_IDLE
    os.kill(area.process(slot).pid, signal.SIGCONT)
    assert lib.mm_memory_held(area.pointer, slot, 5000) == -errno.EINPROGRESS
    area.close()
    before = (counting.folder / "out").stat().st_size
    wait_until(lambda: (counting.folder / "out").stat().st_size > before, "it runs")
    assert counting.verb("checkpoint").returncode == 0
