"""What an isolated run found in place, when it was killed and head goes back to the last commit.

Its indexes count on those bytes as they lie there. Head has the same ones in buffers, or as zeros, and no restore from
there, or from where that leads, would save them for others. So they are recorded as saved before head goes back.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping

from metamori.store.format.records import UndoEntry
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.head import identity_now, same_bytes
from metamori.store.read.maps import merged
from metamori.store.read.store import Store
from metamori.store.restore.restore_plan import Save
from metamori.tables.view import BUFFER, HOME, ZERO, Piece

Range = tuple[int, int]


def of_run(store: Store, run: int, target: int, settled: Collection[int]) -> dict[int, list[Range]]:
    """Bytes in place of files that `target` has, by object, that indexes of a run count on and no record has saved.
    settled: those that the run wrote in their place."""
    then, found = store.state(target), dict[int, list[Range]]()
    indexes = [index for index in store.history.indexes if index > target and store.meta(index).run == run]
    spoken: dict[int, frozenset[int]] = {}
    for index in indexes:
        meta = store.meta(index)
        # in place there is never more than the run found, so an index has no more of it than the one that it grew from
        before = spoken.get(meta.parent, frozenset())
        new = {pif.inode for pif in meta.pifs} - before - set(settled)
        spoken[index] = before | new if new else before
        if meta.parent not in spoken:      # what a record has for target only, though the file is so again
            new |= store.undo_log.spoken_of(target, index) - set(settled)
        for inode in new & then.pifs.keys():
            if then.paths(inode):
                found.setdefault(inode, []).extend(
                    (piece.start, piece.end) for piece in store.state(index).pieces(inode) if piece.kind == HOME)
    ranges = {}
    for inode, home in found.items():
        covered = store.undo_log.saved_for(inode, store.newest)
        if left := [gap for each in merged(home) for gap in covered.gaps(*each)]:
            ranges[inode] = left
    return ranges


def as_saved(store: Store, target: int, ranges: Mapping[int, list[Range]], where: Mapping[int, bytes],
             ) -> tuple[list[UndoEntry], list[Save]]:
    """What is to be recorded of them, and what has to be saved before: zeros, and what is not as head noted it.
    where: the files are now."""
    then, noted = store.state(target), {each.path: each for each in store.head.identities}
    entries, saves = list[UndoEntry](), list[Save]()
    for inode, wanted in sorted(ranges.items()):
        path, name = where[inode], then.paths(inode)[0]
        found = lstat_or_none(store.door, path)
        if found is None or not stat.S_ISREG(found.st_mode):
            continue
        is_same = name in noted and same_bytes(noted[name], identity_now(store.door, path))
        for each in (piece for pieces in then.parts(inode, wanted) for piece in pieces):
            if each.kind == BUFFER and is_same:
                entries.append(_by_its_place(inode, each))
            elif each.kind in (BUFFER, ZERO) and each.start < found.st_size:
                saves.append(Save(inode, path, each.start, min(each.end, found.st_size)))
    return entries, saves


def _by_its_place(inode: int, piece: Piece) -> UndoEntry:
    """Whoever wrote it there has signed it."""
    return UndoEntry(inode, piece.start, piece.end, piece.run, piece.offset)
