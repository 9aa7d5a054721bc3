"""Page-aligned memory for reading and writing past the page cache, lent again and again.

What is given back keeps its pages (a first touch costs more than the copy into them). They are large pages where the
system has them: a copy and a direct write of 64 MiB then cost 4 ms of a processor, else 8 to 16.
A forked child finds its rooms empty: neither do the two share them, nor does a fork in another thread part us
from a page that a direct read is about to fill.
"""

from __future__ import annotations

import contextlib
import mmap

BYTES = 4 << 20                            # a multiple of every device's block
_KEPT = 4                                  # as many as one process ever needs at a time
_WIPE_ON_FORK = 18                         # linux/mman.h
_spare: list[memoryview] = []


def lend() -> memoryview:
    """BYTES of memory with anything in them."""
    try:
        return _spare.pop()
    except IndexError:
        made = mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for advice in (mmap.MADV_HUGEPAGE, _WIPE_ON_FORK):
            with contextlib.suppress(OSError):
                made.madvise(advice)
        return memoryview(made)


def give_back(room: memoryview) -> None:
    """Nobody looks at it any more."""
    if len(_spare) < _KEPT:
        _spare.append(room)
