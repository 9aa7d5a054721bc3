"""How far a verb, or the end of a run, is, for whoever waits at a terminal longer than a second: a door that counts
what goes through it.

Whoever begins something long says how much it is (`Door.expect`); then the line has how much of how much that is, and
the time left.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from metamori import printed
from metamori._area import lib
from metamori.config import duration_text, size_text
from metamori.store.io.os_io import PIECE_BYTES, REAL, Door
from metamori.tables.record import record

PATIENCE_S = 1.0
_EVERY_S = 0.2
_SYNCED_AT_ONCE = 64 * PIECE_BYTES         # of a longer file one sees how far it is


def door(shown: bool = True) -> Door:
    """The plain one unless standard error is a terminal that can take back a line."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return REAL
    return Counting(shown=shown)


class Counting(Door):
    """The same calls; now and then a line that the next one, or the verb's answer, replaces."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, shown: bool = True) -> None:
        self.done = {"read": 0, "written": 0, "freed": 0, "synced": 0}
        self.calls = 0
        self._clock = clock
        self.show(shown)

    def show(self, shown: bool) -> None:
        if not shown:
            printed.clear_progress()
        self._next = self._clock() + PATIENCE_S if shown else float("inf")
        self._expected: _Expected | None = None

    def expect(self, what: str, nbytes: int | Callable[[], int], how: str = "written") -> None:
        if self._next < float("inf"):
            self._expected = _Expected(what, nbytes if isinstance(nbytes, int) else nbytes(), how,
                                       self.done[how], self._clock())

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        self._count("read", len(data))
        return data

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)
        self._count("written", len(data))

    def checksum(self, fd: int, length: int, offset: int, crc: int = 0) -> tuple[int, int]:
        crc, done = super().checksum(fd, length, offset, crc)
        self._count("read", done)
        return crc, done

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        done = 0
        while done < length:
            step = super().copy_range(source, source_at + done, target, target_at + done,
                                      min(length - done, 64 * PIECE_BYTES))
            done += step
            self._count("written", step)
            if not step:
                break
        return done

    def punch_hole(self, fd: int, start: int, end: int) -> bool:
        done = super().punch_hole(fd, start, end)
        self._count("freed", end - start)
        return done

    def fsync(self, fd: int) -> None:
        self._sync_in_pieces(fd)
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._sync_in_pieces(fd)
        super().fdatasync(fd)

    def lstat(self, path: bytes) -> os.stat_result:
        self._tick()
        return super().lstat(path)

    def rename(self, source: bytes, target: bytes) -> None:
        super().rename(source, target)
        self._tick()

    def unlink(self, path: bytes) -> None:
        super().unlink(path)
        self._tick()

    def _sync_in_pieces(self, fd: int) -> None:
        """Nothing is durable by this; but the call that makes it so has little left to wait for."""
        size = os.fstat(fd).st_size
        if size <= _SYNCED_AT_ONCE or self._next == float("inf"):
            return
        before = self._expected
        self.expect(f"{before.what}, to the disk" if before else "to the disk", size, "synced")
        for at in range(0, size, _SYNCED_AT_ONCE):
            lib.mm_write_out(fd, at, _SYNCED_AT_ONCE, 1)
            self._count("synced", min(size - at, _SYNCED_AT_ONCE))
        self._expected = before

    def _count(self, how: str, nbytes: int) -> None:
        self.done[how] += nbytes
        self._tick()

    def _tick(self) -> None:
        self.calls += 1
        now = self._clock()
        if now >= self._next:
            self._next = now + _EVERY_S
            printed.progress(self._text(now))

    def _text(self, now: float) -> str:
        if self._expected is None or not self._expected.nbytes:
            return (f"{size_text(self.done['read'])} read, {size_text(self.done['written'])} written, "
                    f"{self.calls} steps …")
        each = self._expected
        done = min(each.nbytes, self.done[each.how] - each.before)
        text = f"{each.what}: {size_text(done)} of {size_text(each.nbytes)}"
        if done < 1 or now <= each.since:
            return f"{text} …"
        return f"{text}, {duration_text((now - each.since) * (each.nbytes - done) / done)} left …"


@record
class _Expected:
    """before: bytes when it began, since then."""

    what: str
    nbytes: int
    how: str
    before: int
    since: float
