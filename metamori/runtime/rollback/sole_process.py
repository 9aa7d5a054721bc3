"""Whether a process has its run for itself: only then are its descriptors all that a restore has to put back."""

from __future__ import annotations

import errno
import os

from metamori._area import lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area


class OthersAlive(MetamoriError):
    """Other processes of the run would have to be rolled back too."""

    errno = errno.EBUSY


def require_alone(area: Area, pid: int) -> None:
    """OthersAlive unless the process is the only one: of the run, and no child is about to join it, of anybody's."""
    if area.has_unborn() or area.pids(but=pid) or any(lib.mm_start_time(child) for child in _children(pid)):
        raise OthersAlive("other processes of the run are alive")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:                    # the thread has ended, or this kernel does not tell
            continue
    return found
