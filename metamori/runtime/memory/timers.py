"""Timers with a descriptor, as /proc says them. Of one that waits for a time of the wall clock, which goes on while the
program does not run, that time is noted, too."""

from __future__ import annotations

import os
import time

from metamori._area import lib
from metamori.runtime.memory import proc_inspect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.memory.watches import Open

_WALL_CLOCKS = (0, 8)                      # CLOCK_REALTIME, CLOCK_REALTIME_ALARM
_ABSOLUTE = 1                              # TFD_TIMER_ABSTIME; with it: TFD_TIMER_CANCEL_ON_SET
_SECOND = 10**9


def look(this: Open) -> bytes:
    """What an entry says."""
    if any(pair(this.info, "it_interval")) and not any(pair(this.info, "it_value")):
        own = proc_inspect.descriptor(this.pid, this.fd)
        lib.mm_timerfd_count(own)
        os.close(own)
        with open(f"/proc/{this.pid}/fdinfo/{this.fd}", "rb") as file:
            this.info = file.read()
    if int(proc_inspect.numbers(this.info, "clockid")[0]) not in _WALL_CLOCKS or not how(this.info) & _ABSOLUTE:
        return this.info
    with open(f"/proc/{this.pid}/fdinfo/{this.fd}", "rb") as file:
        now, info = time.clock_gettime_ns(time.CLOCK_REALTIME), file.read()
    seconds, nanoseconds = pair(info, "it_value")
    if not seconds | nanoseconds:          # it is not set, or has gone off
        return info
    return info + b"until: (%d, %d)\n" % divmod(now + seconds * _SECOND + nanoseconds, _SECOND)


def how(info: bytes) -> int:
    """It was set."""
    return int(proc_inspect.numbers(info, "settime flags")[0], 8)


def pair(info: bytes, name: str) -> tuple[int, int]:
    """Seconds and nanoseconds."""
    seconds, nanoseconds = proc_inspect.numbers(info, name)[0].strip("()").split(",")
    return int(seconds), int(nanoseconds)
