"""Room on the disk for what a restore inside the program has to save and copy, before anything moves.

What others take of it meanwhile is missing all the same; then names may have moved (checkpoint/half_way.py).
"""

from __future__ import annotations

import errno
import os

from metamori._area import lib
from metamori.runtime.area.run_area import BLOCK
from metamori.runtime.checkpoint.session import Session
from metamori.store.io import commit
from metamori.store.io.os_io import REAL

_RECORDS_BYTES = 1 << 17


def require(session: Session, blocks: int) -> None:
    """OSError where the buffer cannot get so many more, or the records nothing."""
    if not blocks:
        return
    trial = os.fsencode(os.path.join(session.area.path, "trial"))
    try:
        _allocate(trial, 0, _RECORDS_BYTES)
        _allocate(os.fsencode(session.store.layout.buffer(session.area.head.run)),
                  session.area.head.next_block * BLOCK, blocks * BLOCK)
    finally:
        commit.remove_file(REAL, trial, durable=False)


def _allocate(path: bytes, start: int, length: int) -> None:
    fd = REAL.open(path, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    try:
        code = -lib.mm_allocate(fd, start, length)
        if code in (errno.ENOSPC, errno.EDQUOT):
            REAL.ftruncate(fd, REAL.fstat(fd).st_size)     # gives back what it got of it
            raise OSError(code, os.strerror(code), path)
    finally:
        REAL.close(fd)
