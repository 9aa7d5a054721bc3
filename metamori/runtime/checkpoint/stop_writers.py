"""Programs without the library stand still while a checkpoint looks at their files (`metamori checkpoint --stop`).

What they write no call of ours shows, so the freeze does not hold it. Each thread of those that have a tracked file
open for writing, or mapped, is stopped by ptrace: nobody else sees that, and whoever stops them may be killed, for the
kernel then lets them go. They stop before the freeze, in which their calls on names would wait; whoever has opened such
a file between the two makes the checkpoint begin again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress

from metamori._area import lib
from metamori.runtime.area.run_area import Area, NotAtRest
from metamori.runtime.checkpoint.dirty_pages import holders
from metamori.runtime.checkpoint.shared_mappings import shown

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_EVENT_STOP = 128
_WALL = 0x40000000
_PATIENCE_S = 20.0


class MoreWriters(Exception):
    """Somebody else writes by now."""


class StoppedWriters:
    """Threads that stand still, by number, each with the signal that waits for it."""

    def __init__(self, area: Area) -> None:
        self._area = area
        self._stopped: dict[int, int] = {}

    def stop(self) -> None:
        """All that write now; unlocked, for a call that one of them waits for may need the session. NotAtRest."""
        deadline = time.monotonic() + _PATIENCE_S
        try:
            while new := [tid for pid in self._writers() for tid in _threads(pid) if tid not in self._stopped]:
                for tid in new:
                    self._stop(tid, deadline)
        except BaseException:
            self.go()
            raise

    def require_all(self) -> None:
        """In the freeze: nobody begins to write any more. MoreWriters."""
        assert self._area.is_frozen
        if any(tid not in self._stopped for pid in self._writers() for tid in _threads(pid)):
            raise MoreWriters

    def go(self) -> None:
        for tid, number in self._stopped.items():
            lib.mm_ptrace(_DETACH, tid, number)
        self._stopped.clear()

    def _writers(self) -> Iterator[int]:
        """Processes that are not tracked; of those without a slot only such as run behind a filter, as ours does."""
        slots = {self._area.process(slot).pid: self._area.process(slot).outside for slot in self._area.processes()}
        ours = {pid for pid, outside in slots.items() if outside in (0, lib.MM_OUTSIDE_PROXY)}
        for pid in holders(ours | {self._area.head.supervisor, os.getpid()}, shown(self._area), writing=True):
            if pid in slots or _is_filtered(pid):
                yield pid

    def _stop(self, tid: int, deadline: float) -> None:
        if why := -(lib.mm_ptrace(_SEIZE, tid, 0) or lib.mm_ptrace(_INTERRUPT, tid, 0)):
            if why == errno.ESRCH or _has_ended(tid):
                return
            raise NotAtRest(f"process {tid} cannot be stopped: {os.strerror(why)}")
        while True:
            with suppress(ChildProcessError):
                found, status = os.waitpid(tid, _WALL | os.WNOHANG)
                if found and not os.WIFSTOPPED(status):
                    return
                if found:
                    event, number = status >> 16, os.WSTOPSIG(status)
                    self._stopped[tid] = 0 if event == _EVENT_STOP else number
                    return
            if time.monotonic() > deadline:
                self._stopped[tid] = 0         # to be let go
                raise NotAtRest(f"process {tid} does not stop: it stays in a system call")
            time.sleep(0.0005)


def _threads(pid: int) -> list[int]:
    """Those that have not ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task") if not _has_ended(int(name))]
    except OSError:
        return []


def _has_ended(tid: int) -> bool:
    return lib.mm_proc_state(tid) in b"\0ZX"


def _is_filtered(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return b"\nSeccomp:\t2\n" in status.read()
    except OSError:
        return False
