"""The index that some paths of a live run go back to: recorded while the run is frozen, before anything is moved."""

from __future__ import annotations

import os

from metamori._area import lib
from metamori.runtime.area import launch_record, wal
from metamori.runtime.area.run_area import BLOCK
from metamori.runtime.checkpoint.session import Session
from metamori.store.format.records import Meta
from metamori.store.io.buffers import copy_beside
from metamori.store.io.os_io import REAL
from metamori.store.restore.chosen_paths import Chosen
from metamori.tables.record import replace


def record(session: Session, chosen: Chosen, message: str) -> int:
    """The new index. A kill from here on leaves an index more, and the files where they were."""
    area, store, head = session.area, session.store, session.area.head
    index = store.newest + 1
    head.newest = index                    # it is told of an index before the index is there
    wal.mark(area, lib.MM_AHEAD_BACK, index)
    if session.durable:
        wal.sync(area)
    session.will_write_records()

    def more(meta: Meta) -> Meta:
        first = not meta.parent or store.meta(meta.parent).run != head.run
        return replace(meta, isolate=bool(head.flags & lib.MM_ISOLATE),
                       launch=launch_record.of_run(area) if first else ())

    chosen.commit(message, lambda path, ranges: _save(session, path, ranges), index=index,
                  process=head.next_process, run=head.run, new_object=lambda: _next_object(session), more=more,
                  durable=session.durable)
    return index


def _next_object(session: Session) -> int:
    head = session.area.head
    number: int = head.next_object
    head.next_object += 1
    return number


def _save(session: Session, path: bytes, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Bytes of a file into blocks of the run's own."""
    area, store = session.area, session.store
    found, run = [], area.head.run
    source = REAL.open(path, os.O_RDONLY | os.O_NONBLOCK)
    target = store.buffers.writer(run)
    try:
        for start, end in ranges:
            blocks = -(-(end - start) // BLOCK)
            place = area.take_blocks(blocks) * BLOCK
            if store.buffers.size(run) < place + blocks * BLOCK:
                REAL.ftruncate(target, place + blocks * BLOCK)
            if copy_beside(REAL, source, target, (start, end - start, place)) < end:
                raise OSError(0, "became shorter", path)
            found.append((place, store.buffers.checksum(run, place, end - start)))
    finally:
        REAL.close(source)
        REAL.close(target)
    return found
