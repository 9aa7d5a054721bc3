"""Room on the disk for what a restore inside the program has to save and copy, and for the run's end, which writes back
what it redirects, before anything moves.

What others take of it meanwhile is missing all the same; then names may have moved (checkpoint/half_way.py).
"""

from __future__ import annotations

import os

from metamori._area import lib
from metamori.runtime.area.run_area import BLOCK
from metamori.runtime.checkpoint.session import Session
from metamori.store.io import commit
from metamori.store.io.os_io import NO_ROOM, REAL

_RECORDS_BYTES = 1 << 17


def require(session: Session, taken: list[tuple[int, list[tuple[int, int]]]], redirected: int) -> None:
    """OSError where the buffer cannot get what is taken, or the records nothing, or there is no room for the run's end
    with so many more redirected blocks. taken: in order, how many blocks, and which of them will not be holes."""
    buffer, area = os.fsencode(session.store.layout.buffer(session.area.head.run)), session.area
    blocks, first = list[tuple[int, int]](), area.head.next_block
    for count, filled in taken:
        blocks += [(first + low, first + high) for low, high in filled]
        first += count
    if blocks:
        trial = os.fsencode(os.path.join(area.path, "trial"))
        try:
            _allocate(trial, [(0, _RECORDS_BYTES)])
            _allocate(buffer, [(low * BLOCK, high * BLOCK) for low, high in blocks])
        finally:
            commit.remove_file(REAL, trial, durable=False)
    if redirected > 0 and (code := -lib.mm_room(area.pointer, redirected)):
        if blocks:
            _give_back(buffer)
        raise OSError(code, os.strerror(code), area.path)


def _allocate(path: bytes, ranges: list[tuple[int, int]]) -> None:
    fd = REAL.open(path, os.O_RDWR | os.O_CREAT, commit.PRIVATE_FILE)
    code = 0
    try:
        for start, end in ranges:
            code = code or -lib.mm_allocate(fd, start, end - start)
    finally:
        REAL.close(fd)
    if code in NO_ROOM:
        _give_back(path)
        raise OSError(code, os.strerror(code), path)


def _give_back(path: bytes) -> None:
    """What was allocated behind a file's end."""
    fd = REAL.open(path, os.O_RDWR)
    try:
        REAL.ftruncate(fd, REAL.fstat(fd).st_size)
    finally:
        REAL.close(fd)
