"""Physical File: the file itself and where its bytes live (thesis 4.2, fig. 4.3; on disk fig. 4.8).

While a run lives its PIFs are in the run area (`struct mm_pif`), each with a block table, where C keeps them. A
checkpoint takes those that changed out of it (`Pif`), folds their blocks into AMLs, and records them (`PifEntry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metamori.tables.aml import AML, AddressMap
from metamori.tables.record import mutable, record

TYPE_CHECKING = False
if TYPE_CHECKING:                          # what a stat said is a value too
    from os import stat_result

NO_LIMIT = 2**63 - 1
_TIMES = -(2**63), 2**63 - 1
Blocks = tuple[int, int, int]     # first block in the file, first in the run's buffer, how many


@record
class PifEntry:
    """A file's state as a checkpoint records it (fig. 4.8). Sizes are bytes, times ns since 1970."""

    inode: int        # object number: given out by the store, never reused
    dev: int          # identity of the real file: device, inode, birth time (0: not known)
    ino: int
    btime_ns: int
    count: int        # FITs that refer to it
    filename: bytes   # a path that it has, or had last
    was_created: int  # interval in which it was created, 0: it was there before
    was_deleted: int  # interval in which it lost its last name, 0: it has one
    size: int
    home_limit: int   # from here on nothing of this file is in place (zeros, where not buffered)
    cut: int          # smallest size during the interval that the checkpoint closed
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    kept: bytes       # its name in the store's kept folder, b"": it has none


@mutable
class Pif:
    """A touched file at the instant of a checkpoint, out of the run area. `home`: where its bytes are in place, b""
    when no name leads there."""

    slot: int
    object: int
    dev: int
    ino: int
    btime_ns: int
    flags: int
    created: bool                    # by the run, since the last checkpoint
    preexisting: bool                # it was there before the run
    refs: int
    path: bytes
    home: bytes
    size: int
    home_limit: int
    cut: int
    mtime_ns: int
    st: stat_result | None
    old: tuple[int, int, int, int, int]   # size, mtime_ns, mode, uid, gid before the run touched it
    ranges: Sequence[Blocks]
    captured: Sequence[AML] | None = None   # its bytes changed unseen: what differs in place from the parent
    held: stat_result | None = None    # the file itself, of which `home` is a copy: by a descriptor
    tail: int = NO_LIMIT               # from here to the end of its block what the buffer has is not the file's

    def redirected(self, run: int, block_bytes: int) -> AddressMap:
        """What went to the buffer since the last checkpoint, cut off at the file's end."""
        return folded(self.ranges, run, block_bytes, self.size, self.tail)

    def with_captured(self, redirected: AddressMap) -> AddressMap:
        """All AMLs of the interval: where nothing was redirected, what changed unseen and was stored."""
        if not self.captured:
            return redirected
        amls = AddressMap(self.captured)
        amls.overlay(redirected)
        return amls


def later(written_ns: int, in_place_ns: int) -> int:
    """A file's time of change. written_ns: when a byte of it was last redirected, 0: none was; the other, in place, may
    lie before 1970."""
    return max(written_ns, in_place_ns) if written_ns else in_place_ns


def nearest_ns(time_ns: int) -> int:
    """A file's time as records have it: one before 1677 or after 2262 as the nearest that 64 bits reach."""
    return min(max(time_ns, _TIMES[0]), _TIMES[1])


def folded(ranges: Iterable[Blocks], run: int, block_bytes: int, size: int = NO_LIMIT,
           tail: int = NO_LIMIT) -> AddressMap:
    """Runs of a block table as AMLs below `size`, neighbours merged (thesis writeBinTreeToFile), but for what is behind
    `tail` in its block."""
    amls = AddressMap(AML(block * block_bytes, min((block + count) * block_bytes, size), run, buffer * block_bytes)
                      for block, buffer, count in ranges if block * block_bytes < size)
    if tail < size:
        amls.remove(tail, -(-tail // block_bytes) * block_bytes)
    return amls
