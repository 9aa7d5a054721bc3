"""What a backing file held that is not as it was, from the copy that an earlier run has left of it.

Such a copy (store/restore/safety_copies.py) is an undo record of the index at that run's end. If no checkpoint from
there to a later index speaks of the file, the two say the same of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection

from metamori.errors import Damaged
from metamori.store.format.records import UndoEntry
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.view import BUFFER, HOME, Piece

Copies = dict[int, list[UndoEntry]]


def last_copies(store: Store, state: State, inodes: Collection[int]) -> Copies:
    """Of what these files had at a state that they were at: what the store has copied, as entries for all indexes so
    far. None where a record cannot be read."""
    for inode in inodes:
        store.undo_log.assume(inode, [], 0)
    known = state.pifs.keys() & inodes
    if not known or state.is_doubtful:
        return {}
    try:
        since, unsaid = dict.fromkeys(known, 0), set(known)
        for index in filter(None, store.history.ancestors(state.index)):
            if not unsaid:                 # which is long before the first
                break
            for inode in unsaid & {pif.inode for pif in store.meta(index).pifs}:
                since[inode] = index
                unsaid.remove(inode)
        saved = store.undo_log.first_from(since)
        return {inode: found for inode in sorted(saved) if (found := _parts(state.pieces(inode), saved[inode]))}
    except Damaged:
        return {}


def _parts(pieces: list[Piece], saved: list[UndoEntry]) -> list[UndoEntry]:
    """Where the state says that the file had these bytes, or has them from this copy: then the file had them too."""
    found, starts = [], [piece.start for piece in pieces]
    for entry in saved:
        for piece in pieces[max(0, bisect_right(starts, entry.start) - 1):bisect_left(starts, entry.end)]:
            start, end = max(entry.start, piece.start), min(entry.end, piece.end)
            place = entry.buffer_start + start - entry.start
            if start < end and (piece.kind == HOME or (piece.kind == BUFFER and piece.run == entry.run
                                                       and piece.offset + start - piece.start == place)):
                whole = (start, end) == (entry.start, entry.end)
                found.append(UndoEntry(entry.inode, start, end, entry.run, place, entry.crc if whole else 0))
    return found
