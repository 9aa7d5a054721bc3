"""When FTI_Snapshot takes a checkpoint: intervals in minutes, decided alike by all processes.

Clocks differ between processes, so the time is agreed on in some calls only: at the predicted next minute, and at
least every max_sync_intv calls. What happens in a call follows from what was agreed, so no process is ever alone in
its opinion. At a minute that several intervals divide, the highest level wins. Source: FTI manual, ckpt_L1..L4.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from metamori.levels.setup.settings import Settings

L4_DCP = 8


class Schedule:
    """`agree` makes one number of everybody's (their largest)."""

    def __init__(self, settings: Settings, agree: Callable[[float], float],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.intervals = [(settings.ckpt_l1, 1), (settings.ckpt_l2, 2), (settings.ckpt_l3, 3),
                          (settings.dcp_l4 if settings.enable_dcp else 0, L4_DCP), (settings.ckpt_l4, 4)]
        self.minute = 60.0 / settings.fast_forward
        most = settings.max_sync_intv or 512
        self.most = 1 << (most.bit_length() - 1)
        self.agree, self.clock, self.began = agree, clock, clock()
        self.calls, self.next_look, self.minutes = 0, 1, 0

    def due(self) -> int:
        """The level that this call has to take, 0 for none. One call per iteration of the program."""
        self.calls += 1
        if self.calls < self.next_look:
            return 0
        elapsed = self.agree(self.clock() - self.began)
        mean = max(elapsed / self.calls, 1e-9)
        passed = int(elapsed / self.minute)
        level = self._level(self.minutes, passed)
        self.minutes = max(self.minutes, passed)
        left = ((passed + 1) * self.minute - elapsed) / mean
        self.next_look = self.calls + max(1, min(int(left), self.most, self.calls))
        return level

    def _level(self, before: int, now: int) -> int:
        """The highest level of which an interval ended after minute `before`, up to minute `now`."""
        found = 0
        for interval, level in self.intervals:
            if interval and now // interval > before // interval:
                found = level
        return found
