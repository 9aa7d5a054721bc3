"""Which index a run stood on when the power went, and what the log says came after it. Pure reading of records."""

from __future__ import annotations

from metamori._area import lib
from metamori.runtime.area.wal import Identity, Record
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.tables.record import record

REASON = "power cut"


@record
class Base:
    """log: what was durable after the index, in order. at_home: files all of whose bytes were in place at it, though it
    has them in buffers. settled: files (dev, ino) that an isolated run settled at some time. everything: the files may
    lack bytes of any buffer, not only of this run's. moved: files that became copies of themselves. epoch:
    the last whose notes of names are in a checkpoint."""

    index: int
    run: int
    flags: int
    log: tuple[Record, ...] = ()
    at_home: frozenset[Identity] = frozenset()
    settled: frozenset[tuple[int, int]] = frozenset()
    everything: bool = False
    moved: tuple[Record, ...] = ()
    epoch: int = 0


def base_of(store: Store, records: list[Record], began: Record | None) -> Base:
    """The last mark in the log whose checkpoint exists. Of a run without a log: head, or the newest index that it took.

    A mark may be missing though its checkpoint is there: then nothing was acknowledged after it.
    """
    start = next((each for each in records if each.kind == lib.MM_AHEAD_START), began)
    run = start.run if start else restore.newest_run(store)
    flags = start.flags if start else lib.MM_POWER
    marks = [each for each in records if each.run == run and _stands(store, each)]
    taken = max((index for index in store.history.indexes if index and store.meta(index).run == run), default=0)
    moved = tuple(each for each in records if each.kind == lib.MM_AHEAD_MOVED and each.run == run)
    epoch = max((each.epoch for each in marks if each.kind == lib.MM_AHEAD_CUT), default=0)
    settled = _settled(records) if flags & lib.MM_ISOLATE else frozenset()
    if not marks or taken > max(each.index for each in marks):
        index = max(taken, store.head.index) if start is None or taken else start.index
        log = () if taken or start is None else _after(records, start)
        again = bool(index and store.meta(index).reason == REASON)
        return Base(index, run, flags, log, settled=settled, everything=again, moved=moved, epoch=epoch)
    mark = marks[-1]
    return Base(mark.index, run, flags, _after(records, mark), frozenset(mark.identities()), settled,
                mark.kind == lib.MM_AHEAD_BACK, moved, epoch)


def _settled(records: list[Record]) -> frozenset[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for each in records:
        if each.kind in (lib.MM_AHEAD_PREIMAGE, lib.MM_AHEAD_HOME):
            found.add((each.dev, each.ino))
        elif each.kind == lib.MM_AHEAD_MOVED and (each.dev, each.ino) in found:
            found.add(each.copy()[:2])
    return frozenset(found)


def _stands(store: Store, mark: Record) -> bool:
    if mark.kind == lib.MM_AHEAD_CUT:
        return mark.index in store.history and store.meta(mark.index).run == mark.run
    return mark.kind == lib.MM_AHEAD_BACK and mark.index in store.history


def _after(records: list[Record], mark: Record) -> tuple[Record, ...]:
    kinds = (lib.MM_AHEAD_PREIMAGE, lib.MM_AHEAD_SYNCED, lib.MM_AHEAD_HOME)
    return tuple(each for each in records if each.at > mark.at and each.kind in kinds and each.run == mark.run)
