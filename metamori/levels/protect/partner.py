"""L2: every file also lies with the next node of the group's ring."""

from __future__ import annotations

from typing import Any

from metamori.levels.formats.checksummed_file import Broken
from metamori.levels.formats.sink import Sink
from metamori.levels.formats.source import FileSource, Steady


def copy_around(comm: Any, source: Steady, path: str, block: int) -> None:
    """Send this member's file to the right, and keep the left one's at `path`. Everybody of the group calls it. Broken
    when either failed, and then all messages were sent all the same."""
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
    source.finish()


def bring_back(comm: Any, own: str, copy: str, own_well: list[bool], copy_well: list[bool], block: int) -> bool:
    """Rebuild what is missing in a group: own files from the right's copy, then copies from the left's own file.

    Whether every member has both again; nothing is done when two neighbours are lost. Broken when this member failed to
    send or to keep a file, once all others have been sent.
    """
    n = comm.size
    if any(not own_well[i] and not copy_well[(i + 1) % n] for i in range(n)):
        return False
    steps = [(copy, (i + 1) % n, own, i) for i in range(n) if not own_well[i]]
    steps += [(own, (i - 1) % n, copy, i) for i in range(n) if not copy_well[i]]
    failed: Broken | None = None
    for path, source, target, to in steps:
        try:
            _send(comm, path, source, target, to, block)
        except Broken as error:            # others wait for what comes after it
            failed = failed or error
    if failed:
        raise failed
    return True


def _send(comm: Any, path: str, source: int, target: str, to: int, block: int) -> None:
    """One member's file to another member."""
    if comm.rank not in (source, to) or source == to:
        return
    empty = memoryview(bytearray())
    if comm.rank == source:
        file = Steady(lambda: FileSource(path))
        comm.send(file.size, to, 712)
        for at in range(0, file.size, block):
            comm.exchange(file.chunk(at, min(block, file.size - at)), to, empty, to)
        file.close()
        file.finish()
        return
    size = comm.receive(source, 712)
    sink = Sink(target)
    for at in range(0, size, block):
        part = sink.room(min(block, size - at))
        comm.exchange(empty, source, part, source)
        sink.filled(part)
    sink.finish()
