"""Second copies of what only the user's own files hold, made at a run's end where they cost next to nothing.

Such bytes are lost when somebody removes, replaces or writes to the file outside of a run. So the files of a run are
saved as pre-images before anybody has overwritten them: short ones are copied, long ones are cloned where the
filesystem shares blocks. Nothing outside of the store shows it (docs/adr/0030).
Of a file that cannot be read, or is not as the index says, nothing is kept: it is no less what it was.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator

from metamori.store.buffers import BLOCK_BYTES
from metamori.store.head import lstat_or_none
from metamori.store.records import UndoEntry
from metamori.store.state import State
from metamori.store.store import Store
from metamori.tables.view import HOME, Piece

SHORT_BYTES = 64 << 10                     # a file of up to so many is copied
_ALL_BYTES = 32 << 20                      # of a run, whole blocks; what is beyond stays where it is
_AT_ONCE = 4 << 20


def keep(store: Store, index: int, run: int, clone: bool, durable: bool = True) -> None:
    """Keep copies of a run's files, whose homes have all that the index says; it is the newest. clone: long ones too.

    Where there is no room there are none: the run ends no less well.
    """
    try:
        entries = _Copies(store, index, run, clone).make()
        if entries:
            if durable:
                store.buffers.sync(run)
            store.add_undo(entries, store.newest, durable)
    except OSError:
        pass


class _Copies:
    """The copies that a run's last index gets. Not durable before the buffer is synced."""

    def __init__(self, store: Store, index: int, run: int, clone: bool) -> None:
        self._store, self._state, self._run = store, store.state(index), run
        self._place = -(-store.buffers.size(run) // BLOCK_BYTES) * BLOCK_BYTES
        self._left, self._can_clone = _ALL_BYTES, clone
        self._gathered: list[bytes] = []
        self._gathered_at = self._place
        self._fd = -1

    def make(self) -> list[UndoEntry]:
        """What was copied. OSError where there is no room, and then the buffer is as it was."""
        entries: list[UndoEntry] = []
        self._fd, before = self._store.buffers.writer(self._run), self._store.buffers.size(self._run)
        try:
            for path, inode, pieces in self._candidates():
                entries += self._file(path, inode, pieces)
            self._flush()
        except OSError:
            self._store.door.ftruncate(self._fd, before)
            raise
        finally:
            self._store.door.close(self._fd)
        return entries

    def _candidates(self) -> Iterator[tuple[bytes, int, list[Piece]]]:
        """Files of this run that have a name and bytes at home alone."""
        state = self._state
        for inode in sorted(_of_run(self._store, state, self._run)):
            pif = state.pifs[inode]
            short = pif.size <= SHORT_BYTES and self._left >= BLOCK_BYTES
            if not pif.size or not (short or self._can_clone) or not state.paths(inode):
                continue
            pieces = [piece for piece in state.pieces(inode) if piece.kind == HOME]
            if pieces:
                yield state.paths(inode)[0], inode, pieces

    def _file(self, path: bytes, inode: int, pieces: list[Piece]) -> list[UndoEntry]:
        pif, door = self._state.pifs[inode], self._store.door
        found = lstat_or_none(door, path)
        if found is None or not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (
                pif.size, pif.mtime_ns):
            return []
        try:
            fd = door.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return []
        try:
            if pif.size <= SHORT_BYTES:
                return self._copy(inode, pieces, door.pread(fd, pieces[-1].end, 0))
            return self._clone(inode, pieces, fd)
        finally:
            door.close(fd)

    def _copy(self, inode: int, pieces: list[Piece], data: bytes) -> list[UndoEntry]:
        entries: list[UndoEntry] = []
        if len(data) < pieces[-1].end:
            return entries
        for piece in pieces:
            part, shift = data[piece.start:piece.end], piece.start % BLOCK_BYTES
            padded = part if len(part) % BLOCK_BYTES == shift == 0 else (
                bytes(shift) + part + bytes(-(shift + len(part)) % BLOCK_BYTES))
            if len(padded) > self._left:
                break
            self._left -= len(padded)
            entries.append(UndoEntry(inode, piece.start, piece.end, self._run, self._place + shift, zlib.crc32(part)))
            self._gathered.append(padded)
            self._place += len(padded)
        if self._place - self._gathered_at >= _AT_ONCE:
            self._flush()
        return entries

    def _flush(self) -> None:
        if self._gathered:
            self._store.door.pwrite(self._fd, b"".join(self._gathered), self._gathered_at)
        self._gathered.clear()
        self._gathered_at = self._place

    def _clone(self, inode: int, pieces: list[Piece], fd: int) -> list[UndoEntry]:
        entries: list[UndoEntry] = []
        self._flush()
        for piece in pieces:
            place, length = self._place + piece.start % BLOCK_BYTES, piece.end - piece.start
            if not self._store.door.clone_range(fd, piece.start, self._fd, place, length):
                self._can_clone = False
                break
            entries.append(UndoEntry(inode, piece.start, piece.end, self._run, place))
            self._place = self._gathered_at = -(-(place + length) // BLOCK_BYTES) * BLOCK_BYTES
        return entries


def _of_run(store: Store, state: State, run: int) -> set[int]:
    """Objects that a run's checkpoints speak of, up to a state of it."""
    found: set[int] = set()
    for index in store.history.chain(state.index):
        if not index or store.meta(index).run != run:
            break
        found.update(pif.inode for pif in store.meta(index).pifs)
    return found & state.pifs.keys()
