"""L2: every file also lies with the next node of the group's ring."""

from __future__ import annotations

from typing import Any

from metamori.levels.sink import Sink
from metamori.levels.source import FileSource, Source


def copy_around(comm: Any, source: Source, path: str, block: int) -> None:
    """Send this member's file to the right, and keep the left one's at `path`. Everybody of the group calls it."""
    n, rank = comm.size, comm.rank
    sizes = comm.allgather(source.size)
    left, right = (rank - 1) % n, (rank + 1) % n
    sink = Sink(path)
    for at in range(0, max(source.size, sizes[left]), block):
        out = source.chunk(at, max(0, min(block, source.size - at)))
        part = sink.room(max(0, min(block, sizes[left] - at)))
        comm.exchange(out, right, part, left)
        sink.filled(part)
    sink.finish()


def bring_back(comm: Any, own: str, copy: str, own_well: list[bool], copy_well: list[bool], block: int) -> bool:
    """Rebuild what is missing in a group: own files from the right's copy, then copies from the left's own file.

    Whether every member has both again; nothing is done when two neighbours are lost.
    """
    n = comm.size
    if any(not own_well[i] and not copy_well[(i + 1) % n] for i in range(n)):
        return False
    for i in range(n):
        if not own_well[i]:
            _send(comm, copy, (i + 1) % n, own, i, block)
    for i in range(n):
        if not copy_well[i]:
            _send(comm, own, (i - 1) % n, copy, i, block)
    return True


def _send(comm: Any, path: str, source: int, target: str, to: int, block: int) -> None:
    """One member's file to another member."""
    if comm.rank not in (source, to) or source == to:
        return
    empty = memoryview(bytearray())
    if comm.rank == source:
        file = FileSource(path)
        comm.send(file.size, to, 712)
        for at in range(0, file.size, block):
            comm.exchange(file.chunk(at, min(block, file.size - at)), to, empty, to)
        file.close()
        return
    size = comm.receive(source, 712)
    sink = Sink(target)
    for at in range(0, size, block):
        part = sink.room(min(block, size - at))
        comm.exchange(empty, source, part, source)
        sink.filled(part)
    sink.finish()
