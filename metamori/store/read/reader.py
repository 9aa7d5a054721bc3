"""Reading an object's bytes as they were at an index, also beside a live run.

A live run may overwrite bytes in place after it has saved them; a record of that comes with its next checkpoint. So
bytes in place are read first, and then it is asked whether the run or new undo records say that they were saved: if so,
they are read again from where they say. In the same way it is asked after reading a buffer whether the store was pruned
meanwhile.
Offline, a file that was modified outside Metamori is refused: its bytes are not the index's.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from metamori.errors import ChangedOutside, Damaged, StoreBusy
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import PIECE_BYTES
from metamori.store.read import invalidated
from metamori.store.read.head import born_then, identity_now, is_as_noted, require_kept
from metamori.store.read.holders import Holders
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AddressMap
from metamori.tables.view import BUFFER, HOME, LOST, ZERO, Piece


class Reader:
    """The bytes of one object at one index."""

    def __init__(self, store: Store, index: int, inode: int) -> None:
        invalidated.require_none(store, index)
        self._store, self._index, self._inode = store, index, inode
        self._state = store.state(index)
        self.size = self._state.pifs[inode].size
        self._fd = -1
        self._pieces: list[Piece] = []
        self._pieces_of: tuple[State, AddressMap] | None = None   # what they were worked out from

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._store.door.close(self._fd)

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, bytes | None]]:
        """(start, end, bytes) in order, at most 1 MB of bytes each; None instead, for as many as there are, where all
        are zeros: a store may say that a file is very long."""
        end = self.size if end is None else min(end, self.size)
        while start < end:
            piece = self._piece_at(start)
            stop = min(piece.end, end, start + PIECE_BYTES if piece.kind != ZERO else end)
            data = self._bytes(piece.clip(start, stop))
            if data is _AGAIN:
                self._state = self._store.state(self._index)
                continue
            yield start, stop, data
            start = stop

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a range, zeros for holes."""
        parts = self.chunks(start, end)
        return b"".join(bytes(high - low) if data is None else data for low, high, data in parts)

    def _piece_at(self, offset: int) -> Piece:
        """The one that has this byte. They are worked out anew when other records count."""
        counts = self._state, self._state.saved(self._inode)
        if self._pieces_of is None or any(one is not other for one, other in zip(counts, self._pieces_of, strict=True)):
            self._pieces, self._pieces_of = self._state.pieces(self._inode), counts
        return self._pieces[bisect_right(self._pieces, offset, key=attrgetter("start")) - 1]

    def _bytes(self, piece: Piece) -> bytes | None:
        length = piece.end - piece.start
        if piece.kind == BUFFER:
            try:
                self._store.checked(self._index).require(piece.run, piece.offset, piece.offset + length)
                data = self._store.buffers.read(piece.run, piece.offset, length)
            except Damaged:
                beside = self._store.is_being_pruned()
                if not self._store.was_pruned():
                    if beside:
                        raise self._store.being_pruned() from None
                    raise
                data = _AGAIN
            return _AGAIN if self._store.was_pruned() else data
        if piece.kind == LOST:
            raise Damaged(f"{self._name()}: bytes {piece.start}-{piece.end} of checkpoint {self._index} "
                          "are lost")
        if piece.kind == HOME:
            return self._home_bytes(piece.start, length)
        return None

    def _home_bytes(self, start: int, length: int) -> bytes:
        saved = self._state.saved(self._inode)
        if self._fd < 0:
            saved = self._state.saved(self._inode)
            try:
                home = find_home(self._store, self._inode)
            except (ChangedOutside, Damaged):
                if self._state.saved(self._inode) is saved:
                    raise
                return _AGAIN              # from a copy, which counts by now
            self._fd = self._store.door.open(home, os.O_RDONLY | os.O_NONBLOCK)
        data = self._store.door.pread(self._fd, length, start)
        if self._store.was_pruned() or self._store.undo_log.refresh() or self._state.saved(self._inode) is not saved:
            return _AGAIN
        if len(data) < length:
            raise Damaged(f"{self._name()}: the file ends at byte {start + len(data)}, before checkpoint "
                          f"{self._index} does")
        return data

    def _name(self) -> str:
        return os.fsdecode(self._state.pifs[self._inode].filename)


_AGAIN = b"again"


def find_home(store: Store, inode: int) -> bytes:
    """The path where an object's live bytes are. ChangedOutside, Damaged; StoreBusy while a run moves it."""
    known = store.head
    try:
        return _find_home(store, inode)
    except (ChangedOutside, Damaged):
        store.refresh()
        if store.head is known:
            raise
        return _find_home(store, inode)    # a run has ended meanwhile


def _find_home(store: Store, inode: int) -> bytes:
    live = any(commit.exists(store.door, each) for each in (store.layout.run_area, store.layout.nodes))
    here, newest = store.state(store.head.index, doubtful=True), store.state(store.newest, doubtful=True)
    known = {(pif.dev, pif.ino) for state in (here, newest) if (pif := state.pifs.get(inode)) is not None}
    noted = {each.path: each for each in store.head.identities}
    paths = [path for path in here.paths(inode) if path in noted]
    known |= {(noted[path].dev, noted[path].ino) for path in paths}
    if paths and not live:
        same = next((path for path in paths if identity_now(store.door, path) == noted[path]), None)
        if same is not None:
            return same
        if store.is_busy():
            raise StoreBusy(f"{os.fsdecode(paths[0])} is being moved; it can be read afterwards")
        place = Holders(store).places.get(inode)
        if place is None:
            raise ChangedOutside(f"{os.fsdecode(paths[0])} was modified outside Metamori since checkpoint "
                                 f"{store.head.index}", tuple(paths))
        return place
    kept = [store.layout.kept(each.name) for each in store.head.kept if each.inode == inode]
    for each in store.head.kept:
        if each.inode == inode and not live:
            if not is_as_noted(store.door, store.layout, each):
                Holders(store)             # what the store has copied of it counts by now
            require_kept(store.door, store.layout, each)
    pif = newest.pifs.get(inode) or here.pifs.get(inode)
    if live and pif is not None and pif.kept:
        kept.append(store.layout.kept(pif.kept))
    changed_ns = max((noted[path].ctime_ns for path in paths), default=0)
    for path in (*kept, *here.paths(inode), *newest.paths(inode), *_all_kept(store)):
        found = lstat_or_none(store.door, path)
        if found is not None and stat.S_ISREG(found.st_mode) and (path in kept or (
                (found.st_dev, found.st_ino) in known
                and born_then(pif, found.st_dev, found.st_ino, store.door.birth_ns(path), changed_ns))):
            return path
    name = os.fsdecode(pif.filename) if pif is not None else f"object {inode}"
    if live:
        raise StoreBusy(f"{name} is being moved by the live run; it can be read after the next checkpoint")
    raise Damaged(f"the file that holds the bytes of {name} is missing")


def _all_kept(store: Store) -> Iterator[bytes]:
    for name in store.door.listdir(store.layout.kept_folder):
        yield store.layout.kept(name)
