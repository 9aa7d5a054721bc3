"""Of the indexes that a job's programs have taken with their memory (metamori/levels): which have it.

The files come first. A kill before the memory of all ranks is protected and recorded leaves an index of files alone; it
is none to continue from, for the program goes back to memory that is there, and needs the files of that instant.

<store>/levels has a line for the newest index of before all these, then one for each whose memory was recorded; empty
ones between.
"""

from __future__ import annotations

import os
import zlib

from metamori.store.format.layout import Layout
from metamori.store.io import commit
from metamori.store.io.os_io import REAL
from metamori.store.read.store import Store

_MESSAGES = ("level 1", "level 2", "level 3", "level 4")


def begin(store: Store) -> None:
    """Before such an index is taken."""
    if not commit.exists(store.door, store.layout.levels):
        commit.write_file(store.door, store.layout.levels, _line(store.newest))


def note(path: str, index: int) -> None:
    """Its memory was recorded. path: of a store, which may be no job's."""
    try:
        fd = REAL.open(Layout(path).levels, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        REAL.pwrite(fd, b"\n" + _line(index), REAL.fstat(fd).st_size)     # the last one may be torn
        REAL.fsync(fd)
    finally:
        REAL.close(fd)


def is_missing(store: Store, index: int, message: str) -> bool:
    if message not in _MESSAGES:
        return False
    try:
        lines = commit.read_file(store.door, store.layout.levels).splitlines(True)
    except FileNotFoundError:
        return False
    noted = [int(number) for line in lines if (number := line.split(b" ")[0]).isdigit() and line == _line(int(number))]
    return bool(noted) and index > noted[0] and index not in noted


def _line(index: int) -> bytes:
    return b"%d %08x\n" % (index, zlib.crc32(b"%d" % index))
