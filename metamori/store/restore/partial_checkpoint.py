"""An index that some files cannot be brought back to, without those files: an index of its own, to be moved to.

Nothing is made up for what is lost. Where a lost file was, the new index has what is there now, or nothing; all else is
as at the index asked for. It is an index like any other, so that the move to it is a move like any other.

It is recorded while the files are elsewhere. So every byte that the index asked for has in a buffer is a redo entry
here, those of undo records too: they speak to the indexes before them only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from metamori.store.format.records import Meta, NameEntry, OffsetEntry, Offsets, PifEntry
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.tables.record import replace
from metamori.tables.view import BUFFER

REASON = "restored in part"


def without(store: Store, index: int, lost: Iterable[int]) -> int:
    """Record what a checkpoint is without these objects; the new index. Files are not touched, nor is head."""
    return _Partial(store, index, lost).commit()


class _Partial:
    def __init__(self, store: Store, index: int, lost: Iterable[int]) -> None:
        self._store, self._target = store, index
        self._here, self._there = store.state(store.head.index), store.state(index)
        self._lost = set(lost)
        self._folders = {each.inode for each in self._there.existing() if each.kind == "dir" and each.inode}
        self._index, self._process = store.next_index(), store.next_process()
        self._run = restore.newest_run(store)
        self._pifs: dict[int, PifEntry] = {}
        self._rows: list[OffsetEntry] = []

    def commit(self) -> int:
        store, there = self._store, self._there
        names = [self._instead(path) for inode in sorted(self._lost) for path in there.paths(inode)]
        staying = {entry.inode for entry in names if entry.kind == "file"}
        for inode in sorted(staying):
            self._as_at(self._here, store.head.index, inode)
        for inode in sorted(there.pifs):
            if inode in self._lost and inode not in staying:
                self._pifs[inode] = replace(there.pifs[inode], size=0, cut=0, count=0, was_deleted=self._index,
                                            kept=b"")
            elif inode not in staying and there.paths(inode) and any(
                    piece.kind == BUFFER for piece in there.pieces(inode)):
                self._as_at(there, self._target, inode)
        meta = Meta(self._index, self._target, time.time_ns(), f"checkpoint {self._target} without what is lost",
                    REASON, self._run, self._process, names=there.with_unplaced(tuple(names)),
                    pifs=tuple(self._pifs.values()))
        rows = tuple(sorted(self._rows))
        store.commit_checkpoint(meta, Offsets(self._index, self._process, self._run, rows))
        return self._index

    def _instead(self, path: bytes) -> NameEntry:
        """What is at a lost file's path now, unless it belongs elsewhere at the index asked for."""
        entry = self._here.names.get(path)
        elsewhere = entry is None or (
            entry.inode in self._folders if entry.kind == "dir" else
            entry.kind == "file" and entry.inode not in self._lost and bool(self._there.paths(entry.inode)))
        return NameEntry(path, "absent") if entry is None or elsewhere else entry

    def _as_at(self, state: State, index: int, inode: int) -> None:
        """A file with all its buffered bytes as at some index; what is in place stays there."""
        checked, buffers = self._store.checked(index), self._store.buffers
        for piece in state.pieces(inode):
            if piece.kind == BUFFER:
                end = piece.offset + piece.end - piece.start
                checked.require(piece.run, piece.offset, end)
                crc = buffers.checksum(piece.run, piece.offset, end - piece.offset)
                self._rows.append(OffsetEntry(inode, self._process, piece.start, piece.end, piece.offset, end, crc,
                                              piece.run if piece.run != self._run else 0))
        self._pifs[inode] = replace(state.pifs[inode], cut=0)
