"""How far a verb is, for whoever waits at a terminal longer than a second: a door that counts what goes through it.

A verb says what it is about to do (`Door.expect`); then the line has how much of how much that is, and the time left.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from metamori.cli import output
from metamori.config import size_text
from metamori.store.io.os_io import PIECE_BYTES, REAL, Door

PATIENCE_S = 1.0
_EVERY_S = 0.2


def door() -> Door:
    """The plain one unless standard error is a terminal."""
    return Counting() if sys.stderr.isatty() else REAL


class Counting(Door):
    """The same calls; now and then a line that the next one, or the verb's answer, replaces."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.read_bytes = self.written_bytes = self.calls = 0
        self._clock = clock
        self._next = clock() + PATIENCE_S
        self._expected: _Expected | None = None

    def expect(self, what: str, nbytes: int, written: bool = True) -> None:
        done = self.written_bytes if written else self.read_bytes
        self._expected = _Expected(what, nbytes, written, done, self._clock())

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        self.read_bytes += len(data)
        self._tick()
        return data

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)
        self.written_bytes += len(data)
        self._tick()

    def checksum(self, fd: int, length: int, offset: int, crc: int = 0) -> tuple[int, int]:
        crc, done = super().checksum(fd, length, offset, crc)
        self.read_bytes += done
        self._tick()
        return crc, done

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        done = 0
        while done < length:
            step = super().copy_range(source, source_at + done, target, target_at + done,
                                      min(length - done, 64 * PIECE_BYTES))
            done += step
            self.written_bytes += step
            self._tick()
            if not step:
                break
        return done

    def lstat(self, path: bytes) -> os.stat_result:
        self._tick()
        return super().lstat(path)

    def rename(self, source: bytes, target: bytes) -> None:
        super().rename(source, target)
        self._tick()

    def unlink(self, path: bytes) -> None:
        super().unlink(path)
        self._tick()

    def _tick(self) -> None:
        self.calls += 1
        now = self._clock()
        if now >= self._next:
            self._next = now + _EVERY_S
            output.progress(self._text(now))

    def _text(self, now: float) -> str:
        if self._expected is None or not self._expected.nbytes:
            return f"{size_text(self.read_bytes)} read, {size_text(self.written_bytes)} written, {self.calls} steps …"
        each = self._expected
        done = min(each.nbytes, (self.written_bytes if each.written else self.read_bytes) - each.before)
        text = f"{each.what}: {size_text(done)} of {size_text(each.nbytes)}"
        if done < 1 or now <= each.since:
            return f"{text} …"
        return f"{text}, {_duration((now - each.since) * (each.nbytes - done) / done)} left …"


@dataclass
class _Expected:
    """before: bytes when it began, since then."""

    what: str
    nbytes: int
    written: bool
    before: int
    since: float


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
