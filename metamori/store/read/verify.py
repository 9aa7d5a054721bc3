"""Checks every byte of the store against its checksum, and that every index has all of its data.

Records decode and carry the right checksums; every checkpoint's parent is there; buffers have every range
that a record refers to, with the checksum that the record gives; kept files are there and long enough. Unfinished work
(an intent, a run area) is no damage. Neither is an external modification, unless data of an index was in that file
only: then the index is named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from metamori.errors import Damaged
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.read import image, invalidated, scope
from metamori.store.read.apart import objects_between
from metamori.store.read.head import require_kept
from metamori.store.read.holders import Holders, Losses, sentence
from metamori.store.read.store import Store
from metamori.tables.view import HOME

_TRIES = 20                                # while others restore


@dataclass(slots=True)
class Report:
    """What was found. `problems` and `notes` are sentences; the numbers are of what was checked."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checkpoints: int = 0
    ranges: int = 0
    buffer_bytes: int = 0
    images: int = 0
    lost: dict[int, list[bytes]] = field(default_factory=dict)     # by index, the paths that cannot be brought back
    whole: bool = True                     # bytes are read, not only records
    counts: Collection[int] | None = None

    def add(self, other: Report, whose: str) -> None:
        """Of a store below this one; what its indexes have lost is said by its problems."""
        self.problems += [whose + each for each in other.problems]
        self.notes += [whose + each for each in other.notes]
        self.checkpoints, self.ranges = self.checkpoints + other.checkpoints, self.ranges + other.ranges
        self.buffer_bytes += other.buffer_bytes


def verify(store: Store, whole: bool = True, counts: Collection[int] | None = None) -> Report:
    """Look at everything. Only reads; a damaged part does not keep the others from being checked. Not `whole`: at all
    records, and that there are as many bytes as they say. counts: indexes of which nothing may be lost, else all; none
    where the files are on another machine.

    StoreBusy when something seems to be wrong and somebody prunes meanwhile.
    """
    report = Report(notes=store.unfinished(), whole=whole, counts=counts)
    if whole:
        store.door.expect("verifying", _nbytes(store), how="read")
    for part in (_scope, _lost, _indexes, _undos, _head, *((_losses,) if whole and counts != frozenset() else ())):
        try:
            report.problems += part(store, report)
        except Damaged as error:
            report.problems.append(str(error))
    if report.problems and store.was_disturbed():
        raise store.being_pruned()
    report.problems = list(dict.fromkeys(report.problems))
    return report


def _nbytes(store: Store) -> int:
    """Of the buffers and of images of memory, about: what records refer to more than once is read once."""
    folders = (store.layout.buffers, store.layout.checkpoints)
    found = [lstat_or_none(store.door, os.path.join(folder, name))
             for folder in folders for name in store.door.listdir(folder)]
    return sum(st.st_blocks * 512 for st in found if st is not None)


def _scope(store: Store, _: Report) -> Iterator[str]:
    scope.read(store.door, store.layout)   # Damaged says it all
    yield from ()


def _lost(store: Store, report: Report) -> Iterator[str]:
    if store.indexes:
        invalidated.require_none(store, store.indexes[0])
    yield from ()


def _indexes(store: Store, report: Report) -> Iterator[str]:
    indexes = store.history.indexes
    for index, why in sorted(store.damaged.items()):
        yield f"checkpoint {index}: {why}"
    for index in indexes[1:]:
        report.checkpoints += 1
        yield from _checkpoint(store, index, report)
    store.check_numbers()


def _undos(store: Store, report: Report) -> Iterator[str]:
    for undo in store.undos:
        saved = [(e.run, e.buffer_start, e.end - e.start, e.crc) for e in undo.entries if e.run]
        yield from _ranges(store, f"saved bytes {undo.after_index}.undo.{undo.seq}", saved, report)
    yield from store.undo_log.damaged.values()


def _head(store: Store, report: Report) -> Iterator[str]:
    head = store.head
    yield from store.missing()
    if head.index not in store.history:
        yield f"{os.fsdecode(store.layout.head)} is at checkpoint {head.index}, which is not there"
    elif not report.problems and not report.notes:
        yield from _homes(store, report)


def _losses(store: Store, report: Report) -> Iterator[str]:
    """What nothing holds any more: recorded as lost, or in files of the user's that are not as they were noted."""
    if store.head.index not in store.history:
        return
    for _ in range(_TRIES):
        before, (problems, lost, notes) = (store.head, store.unfinished()), _looked_for(store, report)
        if not (lost or notes):
            break
        store.refresh()
        if (store.head, store.unfinished()) == before:     # else somebody has moved the files to another index
            break
    report.notes += notes
    report.lost |= lost
    yield from problems


def _looked_for(store: Store, report: Report) -> tuple[list[str], dict[int, list[bytes]], list[str]]:
    """Problems, what is lost by index, and notes, as things are."""
    holders, problems, found, notes = None, list[str](), dict[int, list[bytes]](), list[str]()
    if not store.unfinished():             # what a run has left to be completed is not as noted, with reason
        holders = Holders(store)
        notes = [f"{os.fsdecode(path)} was modified outside Metamori" for path in holders.changed]
    losses = Losses(store, holders)
    for index in filter(store.is_restorable, store.indexes):
        if report.counts is not None and index not in report.counts:
            continue
        try:
            lost = losses.at(index)
        except Damaged as error:
            problems.append(str(error))
            continue
        if lost:
            found[index] = lost
            problems.append(sentence(index, lost))
    return problems, found, notes


def _checkpoint(store: Store, index: int, report: Report) -> Iterator[str]:
    try:
        meta, offsets = store.meta(index), store.offsets(index)
    except Damaged as error:
        yield str(error)
        return
    if len(offsets.entries) != meta.offset_entries and not commit.exists(store.door, store.layout.prune):
        yield f"checkpoint {index} has {len(offsets.entries)} redirected ranges, not {meta.offset_entries}"
    redirected = [(e.run or offsets.run, e.buffer_start, e.end - e.start, e.crc) for e in offsets.entries]
    yield from _ranges(store, f"checkpoint {index}", redirected, report)
    for entry in meta.memory:
        report.images += 1
        path = store.layout.memory(index, entry.process)
        problem = image.check(store.door, path, entry) if report.whole else \
            "" if commit.exists(store.door, path) else f"{os.fsdecode(path)} is missing"
        if problem:
            yield f"checkpoint {index}: {problem}"
        below = store.meta(entry.base).memory if entry.base and entry.base in store.indexes else ()
        if entry.base and all(each.pid != entry.pid for each in below):
            yield f"checkpoint {index}: the image that its memory is based on, {entry.base}, is missing"


def _ranges(
    store: Store, what: str, ranges: Iterable[tuple[int, int, int, int]], report: Report
) -> Iterator[str]:
    """(run, start, length, crc) of buffer ranges; crc 0 was not recorded, so only the length is checked."""
    for run, group in groupby(sorted(ranges, key=itemgetter(0)), itemgetter(0)):
        size, stretches = store.buffers.size(run), None
        for _, start, length, crc in group:
            report.ranges += 1
            report.buffer_bytes += length
            if start + length > size:
                yield f"{_name(store, run)} ends at byte {size}, not {start + length} ({what})"
            elif crc and report.whole:
                stretches = stretches or store.buffers.stretches(run)
                if store.buffers.checksum(run, start, length, stretches) != crc:
                    yield f"{_name(store, run)}: checksum mismatch at bytes {start}-{start + length} ({what})"


def _name(store: Store, run: int) -> str:
    return os.fsdecode(store.layout.buffer(run))


def _homes(store: Store, report: Report) -> Iterator[str]:
    """Kept files exist and are long enough for what any index that can be restored resolves to them. One that somebody
    has written to matters as far as an index has no other place of its bytes."""
    needed: dict[int, int] = {}
    kept = {each.inode: each for each in store.head.kept}
    changed = {each.inode for each in store.changed_kept()}
    if changed:
        Holders(store)                     # from here on copies count
    held: set[int] = set()
    before, looked_at = None, set[int]()   # of a state, and its files whose bytes were looked at
    for index in filter(store.is_restorable, store.indexes) if kept else ():
        state = store.state(index)
        if before is not None:
            looked_at -= objects_between(store.undo_log, before, state)
        before = state
        for inode in (changed - held) & state.pifs.keys():
            is_needed = state.paths(inode) or state.pifs[inode].count     # a name that nobody told us of is another's
            if is_needed and any(piece.kind == HOME for piece in state.pieces(inode)):
                held.add(inode)
        for inode in (state.pifs.keys() & kept.keys()) - looked_at:
            if not state.paths(inode):     # moves look after files with names only
                continue
            looked_at.add(inode)
            ends = [piece.end for piece in state.pieces(inode) if piece.kind == HOME]
            needed[inode] = max(needed.get(inode, 0), *ends, 0)
    for inode, home in kept.items():
        path = store.layout.kept(home.name)
        found = lstat_or_none(store.door, path)
        if found is None or not stat.S_ISREG(found.st_mode):
            if inode in needed:
                yield f"{os.fsdecode(path)}, the only copy of a file, is missing"
        elif found.st_size < needed.get(inode, 0):
            yield f"{os.fsdecode(path)} ends at byte {found.st_size}, not {needed[inode]}"
        elif inode in changed:
            try:
                require_kept(store.door, store.layout, home)
            except Damaged as error:
                if inode in held:
                    yield str(error)
                else:
                    report.notes.append(f"{os.fsdecode(path)} was changed by a name that is not tracked; all of it is "
                                        "elsewhere in the store")
    if not commit.exists(store.door, store.layout.kept_folder):
        yield "the folder of kept files is missing"
