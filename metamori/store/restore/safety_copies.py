"""Second copies of what only the user's own files hold, made at a run's end, and when a restore takes a file out of
`kept/`, where they cost next to nothing.

Such bytes are lost when somebody removes, replaces or writes to the file outside of a run. So these files are
saved as pre-images before anybody has overwritten them: short ones are copied, long ones are cloned where the
filesystem shares blocks. Nothing outside of the store shows it (docs/adr/0030).
Of a file that cannot be read, or is not as the index says, nothing is kept: it is no less what it was.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Set

from metamori._area import ffi
from metamori.store.format.records import PifEntry, UndoEntry
from metamori.store.io.buffers import BLOCK_BYTES
from metamori.store.read.store import Store
from metamori.tables.view import HOME, Piece

SHORT_BYTES = 64 << 10                     # a file of up to so many is copied
_ALL_BYTES = 32 << 20                      # of a run, whole blocks; what is beyond stays where it is
_AT_ONCE = 256 << 10


def keep(store: Store, index: int, run: int, clone: bool, durable: bool = True, only: Set[int] | None = None) -> None:
    """Keep copies of a run's files, or only of these objects; they have all that the index says, and head is there.
    clone: of long ones too.

    Where there is no room there are none: the run ends no less well.
    """
    try:
        entries = _Copies(store, index, run, clone, only).make()
        if entries:
            if durable:
                store.buffers.sync(run)
            store.add_undo(entries, store.newest, durable)
    except OSError:
        pass


class _Copies:
    """The copies that an index gets. Not durable before the buffer is synced."""

    def __init__(self, store: Store, index: int, run: int, clone: bool, only: Set[int] | None) -> None:
        self._store, self._state, self._run = store, store.state(index), run
        self._inodes = (of_run(store, run) if only is None else only) & self._state.pifs.keys()
        self._place = -(-store.buffers.size(run) // BLOCK_BYTES) * BLOCK_BYTES
        self._left, self._can_clone = _ALL_BYTES, clone
        self._entries: list[UndoEntry] = []
        self._memory, self._used = ffi.new("char[]", _AT_ONCE + SHORT_BYTES), 0   # of `_place`, not written yet
        self._fd = -1

    def make(self) -> list[UndoEntry]:
        """What was copied. OSError where there is no room, and then the buffer is as it was."""
        self._fd, before = self._store.buffers.writer(self._run), self._store.buffers.size(self._run)
        try:
            for each in self._candidates():
                self._file(*each)
            self._flush()
        except OSError:
            self._store.door.ftruncate(self._fd, before)
            raise
        finally:
            self._store.door.close(self._fd)
        return self._entries

    def _candidates(self) -> Iterator[tuple[bytes, PifEntry, list[Piece]]]:
        """Files that have a name and bytes in place alone."""
        state = self._state
        for inode in sorted(self._inodes):
            pif = state.pifs[inode]
            short = pif.size <= SHORT_BYTES and self._left >= BLOCK_BYTES
            if not pif.size or not (short or self._can_clone):
                continue
            paths = state.paths(inode)
            if not paths:
                continue
            pieces = [piece for piece in state.pieces(inode) if piece.kind == HOME]
            if pieces:
                yield paths[0], pif, pieces

    def _file(self, path: bytes, pif: PifEntry, pieces: list[Piece]) -> None:
        """What is copied: bytes of a file that is still the same once they have been read."""
        door, short = self._store.door, pif.size <= SHORT_BYTES
        try:
            if short:
                room = -(-pif.size // BLOCK_BYTES) * BLOCK_BYTES
                crc = door.read_short(path, pif.size, pif.mtime_ns, self._memory + self._used, room)
            else:
                fd = door.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return
        if not short:
            try:
                self._clone(pif, pieces, fd)
            finally:
                door.close(fd)
        elif crc is not None:
            self._copy(pif, pieces, crc)

    def _copy(self, pif: PifEntry, pieces: list[Piece], crc: int) -> None:
        """A file whose bytes are in memory, after what is to be written."""
        if pieces[0][:2] == (0, pif.size):
            self._take(pif.inode, 0, pif.size, crc)
            return
        data = bytes(ffi.buffer(self._memory + self._used, pif.size))
        for start, end, _, _, _ in pieces:
            part = bytes(start % BLOCK_BYTES) + data[start:end]
            part += bytes(-len(part) % BLOCK_BYTES)
            ffi.memmove(self._memory + self._used, part, len(part))
            self._take(pif.inode, start, end, zlib.crc32(data[start:end]))

    def _take(self, inode: int, start: int, end: int, crc: int) -> None:
        """These bytes of a file, which are in memory now as they lie in whole blocks."""
        shift = start % BLOCK_BYTES
        length = -(-(shift + end - start) // BLOCK_BYTES) * BLOCK_BYTES
        if length > self._left:
            return
        self._entries.append(UndoEntry(inode, start, end, self._run, self._place + self._used + shift, crc))
        self._left -= length
        self._used += length
        if self._used >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._used:
            self._store.door.pwrite(self._fd, ffi.buffer(self._memory, self._used), self._place)
        self._place += self._used
        self._used = 0

    def _clone(self, pif: PifEntry, pieces: list[Piece], fd: int) -> None:
        self._flush()
        door, entries = self._store.door, []
        for piece in pieces:
            place, length = self._place + piece.start % BLOCK_BYTES, piece.end - piece.start
            if not door.clone_range(fd, piece.start, self._fd, place, length):
                self._can_clone = False
                break
            entries.append(UndoEntry(pif.inode, piece.start, piece.end, self._run, place))
            self._place = -(-(place + length) // BLOCK_BYTES) * BLOCK_BYTES
        st = door.fstat(fd)
        if (st.st_size, st.st_mtime_ns) == (pif.size, pif.mtime_ns):
            self._entries += entries


def of_run(store: Store, run: int) -> set[int]:
    """Objects that a run's checkpoints speak of, those of branches that it went back from too; it is the newest."""
    found: set[int] = set()
    for index in reversed(store.indexes):
        if not index or store.meta(index).run != run:
            break
        found.update(pif.inode for pif in store.meta(index).pifs)
    return found
