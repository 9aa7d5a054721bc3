"""Reading an object's bytes as they were at an index, also beside a live run.

A live run may overwrite bytes in place after it has saved them; a record of that comes with its next checkpoint. So
bytes in place are read first, and then it is asked whether the run or new undo records say that they were saved: if so,
they are read again from where they say. In the same way it is asked after reading a buffer whether the store was pruned
meanwhile.
A file that was modified outside Metamori is refused, and beside a run one that it has not used: its bytes are not the
index's.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter

from metamori.errors import ChangedOutside, Damaged, MetamoriError, StoreBusy
from metamori.store.format.records import NO_LIMIT, Identity, PifEntry
from metamori.store.io import commit
from metamori.store.io.coalesced_io import SHORT
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import PIECE_BYTES
from metamori.store.read import invalidated
from metamori.store.read.head import born_then, identity_now, is_as_noted, require_kept, same_bytes
from metamori.store.read.holders import Holders
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AddressMap
from metamori.tables.view import BUFFER, HOME, LOST, Piece

Chunk = tuple[int, int, bytes | None]


class Reader:
    """The bytes of one object at one index. within: the only ranges that will be asked for, in file order, none meeting
    another."""

    def __init__(self, store: Store, index: int, inode: int, within: Sequence[tuple[int, int]] = ((0, NO_LIMIT),)
                 ) -> None:
        invalidated.require_none(store, index)
        self._store, self._index, self._inode, self._within = store, index, inode, within
        self._state = store.state(index)
        self.size = self._state.pifs[inode].size
        self._fd = -1
        self._seen: dict[int, tuple[int, int]] = {}    # data last found in a buffer (0: in place): start, end
        self._pieces: list[Piece] = []
        self._pieces_of: tuple[State, AddressMap] | None = None   # what they were worked out from

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._store.door.close(self._fd)

    def chunks(self, ranges: Iterable[tuple[int, int]] = ((0, NO_LIMIT),)) -> Iterator[tuple[int, int, bytes | None]]:
        """(start, end, bytes) in order, at most 1 MB of bytes each; None instead, for as many as there are, in a
        hole: a file may be very long."""
        left = [(start, min(end, self.size)) for start, end in ranges if start < self.size]
        left.reverse()
        while left:
            found = self._some(left)
            if not found:
                self._state = self._store.state(self._index)
            yield from found

    def read(self, start: int = 0, end: int = NO_LIMIT) -> bytes:
        """The bytes of a range, zeros for holes."""
        return next(self.read_all([(start, end)]))

    def read_all(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The same of each of these."""
        chunks = self.chunks(ranges)
        for start, end in ranges:
            parts, end = list[bytes](), min(end, self.size)
            while start < end:
                low, start, data = next(chunks)
                parts.append(bytes(start - low) if data is None else data)
            yield b"".join(parts)

    def _some(self, left: list[tuple[int, int]]) -> list[Chunk]:
        """About a megabyte of these ranges, taken from their end. Nothing: something else counts by now. That is asked
        once: it may be of a thousand pieces, in a store of a thousand records."""
        known, saved = self._store.history, self._state.saved(self._inode)
        found, room, at_home, again = list[Chunk](), PIECE_BYTES, False, False
        while left and room > 0 and not again:
            start, end = left[-1]
            piece = self._piece_at(start)
            try:
                stop, data = self._bytes(piece.clip(start, end))
            except MetamoriError:
                if found:                  # what comes before it first
                    break
                raise
            if found and _is_short(start, stop, data):
                break
            left[-1:] = [(stop, end)] if stop < end else []
            found.append((start, stop, data))
            at_home, room, again = at_home or piece.kind == HOME, room - (stop - start), data is _AGAIN
        again = again or self._store.was_pruned() or self._store.history is not known
        if again or (at_home and (self._store.undo_log.refresh() or self._state.saved(self._inode) is not saved)):
            left += [(start, stop) for start, stop, _ in reversed(found)]
            return []
        start, stop, data = found[0]
        if data is not None and _is_short(start, stop, data):
            raise Damaged(f"{self._name()}: the file ends at byte {start + len(data)}, before checkpoint "
                          f"{self._index} does")
        return found

    def _piece_at(self, offset: int) -> Piece:
        """The one that has this byte. They are worked out anew when other records count."""
        counts = self._state, self._state.saved(self._inode)
        if self._pieces_of is None or any(one is not other for one, other in zip(counts, self._pieces_of, strict=True)):
            parts = self._state.parts(self._inode, self._within)
            self._pieces, self._pieces_of = [piece for each in parts for piece in each], counts
        return self._pieces[bisect_right(self._pieces, offset, key=attrgetter("start")) - 1]

    def _bytes(self, piece: Piece) -> tuple[int, bytes | None]:
        """The first that were there, and where they end; whether they count is asked afterwards."""
        if piece.kind == BUFFER:
            try:
                return self._buffered(piece)
            except Damaged:
                beside = self._store.is_being_pruned()
                if not self._store.was_pruned():
                    if beside:
                        raise self._store.being_pruned() from None
                    raise
                return piece.end, _AGAIN
        if piece.kind == LOST:
            raise Damaged(f"{self._name()}: bytes {piece.start}-{piece.end} of checkpoint {self._index} "
                          "are lost")
        if piece.kind == HOME:
            return self._in_place(piece)
        return piece.end, None

    def _buffered(self, piece: Piece) -> tuple[int, bytes | None]:
        buffers, place = self._store.buffers, piece.offset
        length = piece.end - piece.start
        data, end = place, place + length
        if length > SHORT:                 # shorter ones are read faster than looked at
            data, end = self._data(piece.run, place, end, partial(buffers.data_ranges, piece.run),
                                   lambda: buffers.size(piece.run))
        stop = min(end, place + PIECE_BYTES) if data == place else data
        self._store.checked(self._index).require(piece.run, place, stop)
        return piece.start + stop - place, buffers.read(piece.run, place, stop - place) if data == place else None

    def _in_place(self, piece: Piece) -> tuple[int, bytes | None]:
        if self._fd < 0:
            saved = self._state.saved(self._inode)
            try:
                home = find_home(self._store, self._inode)
            except (ChangedOutside, Damaged):
                if self._state.saved(self._inode) is saved:
                    raise
                return piece.end, _AGAIN   # from a copy, which counts by now
            self._fd = self._store.door.open(home, os.O_RDONLY | os.O_NONBLOCK)
        door, start = self._store.door, piece.start
        size = door.fstat(self._fd).st_size
        end = min(piece.end, size)
        if end <= start:                   # it is too short
            return piece.end, b""
        data, end = self._data(0, start, end, partial(door.data_ranges, self._fd), lambda: size)
        if data > start:
            return data, None
        stop = min(end, start + PIECE_BYTES)
        return stop, door.pread(self._fd, stop - start, start)

    def _data(self, run: int, start: int, end: int, ranges: Callable[[int, int], Iterator[tuple[int, int]]],
              size: Callable[[], int]) -> tuple[int, int]:
        """The first data in [start, end). As in `Stretches`, where data ends is asked for once: tmpfs finds it page by
        page. But a hole is not kept, which the run may fill meanwhile."""
        low, high = self._seen.get(run, (0, 0))
        if not low <= start < high:
            low, high = next(ranges(start, end), (end, end))
            if low < high == end:          # it may go on
                low, high = next(ranges(low, max(end, size())), (end, end))
            self._seen[run] = low, high
        return min(max(start, low), end), min(end, high)

    def _name(self) -> str:
        return os.fsdecode(self._state.pifs[self._inode].filename)


_AGAIN = b"again"


def _is_short(start: int, stop: int, data: bytes | None) -> bool:
    return data is not None and len(data) < stop - start


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
    noted = store.noted()
    paths = [path for path in here.paths(inode) if path in noted]
    known |= {(noted[path].dev, noted[path].ino) for path in paths}
    if paths and not live:
        same = next((path for path in paths if identity_now(store.door, path) == noted[path]), None)
        if same is not None:
            return same
        if store.is_busy():
            raise StoreBusy(f"{os.fsdecode(paths[0])} is being moved; it can be read afterwards")
        pif = here.pifs.get(inode)
        place = next((path for path in paths if _has_its_bytes(store, pif, noted[path])), None)
        place = place or Holders(store).places.get(inode)      # a look at all files
        if place is None:
            raise _modified(store, paths)
        return place
    homes = store.kept_homes().get(inode, ())
    kept = [store.layout.kept(each.name) for each in homes]
    for each in homes:
        if not live:
            if not is_as_noted(store.door, store.layout, each):
                Holders(store)             # what the store has copied of it counts by now
            require_kept(store.door, store.layout, each)
    pif = newest.pifs.get(inode) or here.pifs.get(inode)
    if live and pif is not None and pif.kept:
        kept.append(store.layout.kept(pif.kept))
    if live and store.changed_beside is not None and store.changed_beside({inode}):
        raise _modified(store, paths or here.paths(inode))
    changed_ns = max((noted[path].ctime_ns for path in paths), default=0)
    for path in chain(kept, here.paths(inode), newest.paths(inode), _all_kept(store)):   # all kept ones: seldom
        found = lstat_or_none(store.door, path)
        if found is not None and stat.S_ISREG(found.st_mode) and (path in kept or (
                (found.st_dev, found.st_ino) in known
                and born_then(pif, found.st_dev, found.st_ino, store.door.birth_ns(path), changed_ns))):
            return path
    name = os.fsdecode(pif.filename) if pif is not None else f"object {inode}"
    if live:
        raise StoreBusy(f"{name} is being moved by the live run; it can be read after the next checkpoint")
    raise Damaged(f"the file that holds the bytes of {name} is missing")


def _has_its_bytes(store: Store, pif: PifEntry | None, was: Identity) -> bool:
    """Whether no more than a mode, an owner or a further name of a file is another by now; as Holders has it."""
    now = identity_now(store.door, was.path)
    return same_bytes(was, now) and born_then(
        pif, now.dev, now.ino, store.door.birth_ns(was.path), was.ctime_ns)


def _modified(store: Store, paths: Sequence[bytes]) -> ChangedOutside:
    where = os.fsdecode(paths[0]) if paths else "a file"
    return ChangedOutside(f"{where} was modified outside Metamori since checkpoint {store.head.index}", tuple(paths))


def _all_kept(store: Store) -> Iterator[bytes]:
    for name in store.door.listdir(store.layout.kept_folder):
        yield store.layout.kept(name)
