"""The bytes of one file back to an index, inside the program: where its block table points, or in place where it is
mapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from metamori._area import lib
from metamori.runtime.area import wal
from metamori.runtime.area.run_area import BLOCK, CHUNK, NO_LIMIT
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.rollback.copied_bytes import TakenOver, Unverified
from metamori.runtime.rollback.files_beside import give_attributes
from metamori.store.format.records import PifEntry, UndoEntry
from metamori.store.io.buffers import HOLE_BYTES, copy_beside, write_zeros
from metamori.store.io.commit import lstat_or_none
from metamori.store.io.os_io import REAL
from metamori.store.read.maps import merged
from metamori.store.read.state import State
from metamori.tables.view import BUFFER, HOME, LOST, NOTHING, ZERO, Piece

_AT_ONCE = 1024                            # blocks put together at a time: 4 MiB


class FileBack:
    """The bytes of one file, from `now` to `then`, while nothing of the run moves."""

    def __init__(self, session: Session, slot: int, inode: int, now: State, then: State, checked: TakenOver) -> None:
        self.session, self.area, self.store = session, session.area, session.store
        self.slot, self.inode, self.now, self.then = slot, inode, now, then
        self.p = self.area.pif(slot)
        self.run_number, self.checked = self.area.head.run, checked
        self.blocks = self.redirected = 0  # of the buffer, that it takes at most; how many more to write back: `copied`
        self.filled: list[tuple[int, int]] = []    # which of the former will not be holes

    def _changes(self, again: bool) -> list[tuple[int, int, Piece]]:
        """What the file has elsewhere then. Of a file of another branch, and once more after a stop, that is all of it:
        what the table says is of no use."""
        if again or self.inode not in self.now.pifs:
            return [(piece.start, piece.end, piece) for piece in self.then.pieces(self.inode)]
        ranges = [(start, end) for start, end, _, there in self.now.differences(self.then, self.inode) if there]
        ranges += self._unsaid()
        if ranges or self.now.pifs[self.inode] != self.then.pifs[self.inode]:
            ranges += self._tail()
        return [(piece.start, piece.end, piece)
                for pieces in self.then.parts(self.inode, merged(ranges)) for piece in pieces]

    def _unsaid(self) -> Iterator[tuple[int, int]]:
        """What the index knows by an undo record alone, and the present by its map, maybe at the same place: a block
        table that goes on pointing there would be in no record, and the next index has neither of the two."""
        if self.p.flags & lib.MM_HOME:     # nothing of it is left to a table
            return
        pif, saved, recorded = self.then.pifs[self.inode], self.then.saved(self.inode), self.then.maps.get(self.inode)
        for start, end in self.now.apart(self.then, self.inode) if saved else ():
            for aml in saved.find(start, min(end, pif.size, pif.home_limit)):
                yield from (recorded or NOTHING).gaps(aml.start, aml.end)

    def _tail(self) -> Iterator[tuple[int, int]]:
        """What is in place behind what the buffer has of the last block, where from now on that has all of it."""
        p, end = self.p, min(-(-self.p.size // BLOCK) * BLOCK, self.then.pifs[self.inode].size)
        if self._is_virtual and not p.flags & lib.MM_VIRTUAL and p.size < end and self._has(p.size // BLOCK):
            yield p.size, end

    def _has(self, block: int) -> bool:
        return bool(lib.mm_table_count(self.area.pointer, self.p, block, block + 1))

    @property
    def _is_virtual(self) -> bool:
        """Whether it will be that (MM_VIRTUAL)."""
        return bool((self.area.head.flags & lib.MM_ISOLATE and not self._settled) or self.p.flags & lib.MM_COPIED)

    @property
    def _settled(self) -> bool:
        """Settled in isolation, mapped no more: as in incremental mode, some bytes in place and some in the buffer."""
        return bool(self.p.flags & lib.MM_SETTLED)

    @property
    def _is_committed(self) -> bool:
        """What no name led to was not."""
        return self.session.single and not self._settled and bool(self.then.paths(self.inode))

    def copied(self, again: bool) -> Iterator[Piece]:
        """The buffer bytes that `run` would copy. Unverified when bytes of the file are lost."""
        pif = self.then.pifs.get(self.inode)
        if pif is None or (self._is_committed and not self.p.flags & lib.MM_HOME):
            return
        changes = self._changes(again)
        if self.inode in self.store.undo_log.given_up():
            for start, end, kind, _, _ in self.then.pieces(self.inode):
                if kind == LOST:
                    raise Unverified(f"{os.fsdecode(pif.filename)}: bytes {start}-{end} of checkpoint "
                                     f"{self.then.index} are lost")
        known = min(self.now.pifs[self.inode].size, self.p.fresh_from) if self.inode in self.now.pifs else 0
        cut = max(0, known - pif.size) if not self.p.flags & lib.MM_VIRTUAL else 0
        if self.p.flags & lib.MM_HOME:
            self._count([(start, min(end, known)) for start, end, there in changes
                         if there.kind != HOME and start < known])
        if cut:
            self._count([(pif.size, known)])
        if self.p.flags & lib.MM_HOME:
            yield from (there for _, _, there in changes if there.kind == BUFFER)
            return
        parts = list(self._blocks(changes, pif.size))
        mixed = [block for block, _, place in parts if place is None]
        self._take(len(mixed), [(0, len(mixed))])
        self.redirected = sum((place != 0) * count - lib.mm_table_count(self.area.pointer, self.p, first, first + count)
                              for first, count, place in parts)
        yield from (piece for parts in self._within(mixed, pif.size) for piece in parts if piece.kind == BUFFER)

    def _count(self, ranges: list[tuple[int, int]]) -> None:
        """What `_keep` of these will take."""
        fd = self._open_now() if ranges else -1
        try:
            for start, end in ranges:
                filled, at = list[tuple[int, int]](), start
                for low, high in [*(REAL.data_ranges(fd, start, end) if fd >= 0 else [(start, end)]), (end, end)]:
                    first = (at if low - at < HOLE_BYTES else low) - start
                    if filled and first // BLOCK <= filled[-1][1]:
                        first = filled.pop()[0] * BLOCK
                    filled.append((first // BLOCK, -(-(high - start) // BLOCK)))
                    at = high
                self._take(-(-(end - start) // BLOCK), filled)
        finally:
            if fd >= 0:
                REAL.close(fd)

    def _take(self, blocks: int, filled: list[tuple[int, int]]) -> None:
        self.filled += [(self.blocks + low, self.blocks + high) for low, high in filled if low < high]
        self.blocks += blocks + -blocks % (CHUNK // BLOCK)    # as `take_blocks` has it

    def _open_now(self) -> int:
        """The file before anything has moved; -1 where it is not found: then all of it may be data."""
        kept = self.store.layout.kept(self.area.kept_name(self.slot))
        for path in (*self.now.paths(self.inode), *self.then.paths(self.inode), kept):
            found = lstat_or_none(REAL, path)
            if found is not None and (found.st_dev, found.st_ino) == (self.p.dev, self.p.ino):
                try:
                    return REAL.open_shut(path, os.O_RDONLY | os.O_NONBLOCK)
                except OSError:
                    return -1
        return -1

    def run(self, again: bool) -> None:
        pif = self.then.pifs.get(self.inode)
        if pif is None or self.p.flags & lib.MM_LEFT:  # out of the scope by then, too: nobody asks for its bytes
            return
        changes = self._changes(again)
        attributes = self.now.pifs.get(self.inode) != pif
        if not again and not changes and not attributes:
            return
        self.area.touch_pif(self.slot)
        self.area.drop_frames(self.slot)   # written back by the cut
        if self.p.flags & lib.MM_HOME:
            self._at_home(pif, changes)
            return
        if self._is_committed:
            self._committed(pif)
            return
        isolated = self._is_virtual
        if isolated:
            self._resize_virtual(pif.size, pif.home_limit)
        else:
            self._resize_home(pif.size)
        # pieces are compared by place: what the file held in between is looked up by then's own view of it
        self._point(changes, pif.size)
        self.p.cut = self.p.cut_before = NO_LIMIT
        if not isolated:
            self.p.fresh_from = pif.size
        if not self.p.flags & lib.MM_VIRTUAL:
            self._ends_at(pif.size)
        self._attributes(pif)

    def _committed(self, pif: PifEntry) -> None:
        """In single mode the index is the last commit: its bytes are in place, what is buffered is dropped."""
        self.area.table_clear(self.p)
        if not self.p.flags & lib.MM_COPIED:
            self.area.size_is_in_place(self.p)
        self.p.size = self.p.home_limit = pif.size
        self.p.cut = self.p.cut_before = NO_LIMIT
        self._attributes(pif)

    def _at_home(self, pif: PifEntry, changes: list[tuple[int, int, Piece]]) -> None:
        """A file that is mapped: its bytes go back in place, where the mapping sees them, once those that an index
        knows in place alone are saved."""
        fd = REAL.open_shut(self._home(), os.O_RDWR)
        try:
            found = os.fstat(fd).st_size
            known = min(found, self.p.fresh_from)
            ranges = [(start, min(end, known)) for start, end, there in changes if there.kind != HOME and start < known]
            if pif.size < known:
                ranges.append((pif.size, known))
            self._keep(fd, ranges)
            os.ftruncate(fd, pif.size)
            for start, end, there in changes:
                if there.kind == ZERO:
                    write_zeros(self.store.door, fd, start, end)
            self.checked.require(there for _, _, there in changes if there.kind == BUFFER)
            self.store.buffers.copy_out(fd, ((there.run, there.offset, end - start, start)
                                             for start, end, there in changes if there.kind == BUFFER))
        finally:
            os.close(fd)
        self.area.table_clear(self.p)
        self.area.size_is_in_place(self.p)
        self.p.home_limit = NO_LIMIT
        self.p.fresh_from = 0 if self.p.flags & lib.MM_MAPPED else pif.size
        self.p.cut = self.p.cut_before = 0
        self._attributes(pif)

    def _attributes(self, pif: PifEntry) -> None:
        if give_attributes(self._home(), pif):
            self.p.mtime_ns = 0

    def _resize_virtual(self, size: int, home_limit: int) -> None:
        self.area.table_clear(self.p, -(-size // BLOCK))
        flags = self.p.flags & (lib.MM_VIRTUAL | lib.MM_COPIED)
        found = lstat_or_none(REAL, self._home()) if flags != lib.MM_VIRTUAL | lib.MM_COPIED else None
        if found is not None and found.st_size == size <= home_limit:
            if flags & lib.MM_VIRTUAL:     # somebody outside of the run may append to it as before
                self.p.size = self.p.home_limit = size
                self.area.size_is_in_place(self.p)
            return
        if not flags & lib.MM_VIRTUAL:
            self.p.flags |= lib.MM_VIRTUAL
            self.area.head.virtual_count += 1
        # Past the file's end nothing of it is in place. What an earlier run wrote back lies above the limit that the
        # index knows, which looks for it in that run's buffer: it stays where it is.
        self.p.size, self.p.home_limit = size, min(size, max(home_limit, self.p.home_limit))

    def _ends_at(self, size: int) -> None:
        """What comes behind the file's end from now on is in place, also in a redirected block (mm_has_tail)."""
        last, known = size // BLOCK, self.p.size
        if known % BLOCK and known // BLOCK == last:
            self.p.size = min(known, size)
        elif self._has(last) and not (known % BLOCK and self._has(known // BLOCK)):
            self.p.size = size

    def _home(self) -> bytes:
        paths = self.then.paths(self.inode)
        if paths:
            return paths[0]
        return self.store.layout.kept(self.area.kept_name(self.slot))

    def _resize_home(self, size: int) -> None:
        path = self._home()
        try:
            found = REAL.lstat(path).st_size
        except FileNotFoundError:
            return
        # somebody else's, who does not let us, has not changed its size
        fd = REAL.open_shut(path, os.O_RDWR) if size != found else -1
        try:
            known = min(found, self.p.fresh_from)
            if size < known:               # some index knows these bytes: saved before they go
                self._keep(fd, [(size, known)])
            if size != found or self.p.flags & lib.MM_VIRTUAL:
                self.area.table_clear(self.p, -(-size // BLOCK))
            if size != found:
                os.ftruncate(fd, size)
        finally:
            if fd >= 0:
                os.close(fd)
        if self.p.flags & lib.MM_VIRTUAL:
            self.area.size_is_in_place(self.p)
            self.p.home_limit = NO_LIMIT

    def _keep(self, fd: int, ranges: list[tuple[int, int]]) -> None:
        """An undo record of bytes in place that are about to go."""
        entries = []
        for start, end in ranges:
            place, saved = self._save(fd, start, end)
            if start < saved:
                crc = self.store.buffers.checksum(self.run_number, place, saved - start)
                entries.append(UndoEntry(self.inode, start, saved, self.run_number, place, crc))
            if saved < end:                # another process has cut it off meanwhile: these bytes are nowhere
                entries.append(UndoEntry(self.inode, saved, end, 0, 0))
        if entries:
            self.session.will_write_records()
            self.store.add_undo(entries, self.store.newest, durable=self.session.durable)

    def _save(self, fd: int, start: int, end: int) -> tuple[int, int]:
        """Where in the buffer the bytes [start, end) are now, or as many of them as there are, and their end."""
        place = self.area.take_blocks(-(-(end - start) // BLOCK)) * BLOCK
        with open(self.store.layout.buffer(self.run_number), "r+b", buffering=0) as buffer:
            if os.fstat(buffer.fileno()).st_size < place + (end - start):
                os.ftruncate(buffer.fileno(), -(-(place + end - start) // BLOCK) * BLOCK)
            saved = copy_beside(REAL, fd, buffer.fileno(), (start, end - start, place))
        if self.session.durable:
            with wal.syncing(self.area):
                self.store.buffers.sync(self.run_number)
        return place, saved

    # -- the block table -------------------------------------------------------------------------

    def _point(self, changes: list[tuple[int, int, Piece]], size: int) -> None:
        """Table entries for everything that differs: whole blocks by reference, the rest put together anew."""
        mixed: list[int] = []
        for first, count, place in self._blocks(changes, size):
            if place is not None:
                self.area.table_set(self.p, first, place, count)
                continue
            mixed.append(first)
            if len(mixed) == _AT_ONCE:
                self._assemble(mixed, size)
                mixed = []
        if mixed:
            self._assemble(mixed, size)

    def _blocks(self, changes: list[tuple[int, int, Piece]], size: int) -> Iterator[tuple[int, int, int | None]]:
        """(first block, blocks, where they are in the buffer, or 0: in place), in order; None: one that has to be put
        together."""
        done = -1                          # blocks up to here are right already
        for start, end, piece in changes:
            first, last = max(start // BLOCK, done + 1), -(-end // BLOCK)
            while first < last:
                count, place = self._by_reference(first, last, piece, size)
                yield first, count, place
                first += count
                done = first - 1

    def _by_reference(self, first: int, last: int, piece: Piece, size: int) -> tuple[int, int | None]:
        """As many whole blocks as can be pointed at the piece, and where; one and None where none can."""
        low, high = first * BLOCK, min(last * BLOCK, size)
        if low < piece.start or high > piece.end:
            high = min(high, piece.end) // BLOCK * BLOCK
        if low < piece.start or high <= low:
            return 1, None
        count = -(-(high - low) // BLOCK)
        if piece.kind == HOME or (piece.kind == ZERO and self.p.flags & lib.MM_VIRTUAL and low >= self.p.home_limit):
            return count, 0
        place = piece.offset + low - piece.start
        recorded = self.then.maps.get(self.inode)
        if piece.kind != BUFFER or piece.run != self.run_number or place % BLOCK or recorded is None:
            return 1, None
        if any(recorded.gaps(low, high)):  # known from an undo record only: the next index must say so itself
            return 1, None
        return count, place // BLOCK

    def _within(self, blocks: list[int], size: int) -> Iterator[list[Piece]]:
        """The parts of each block at the index."""
        return self.then.parts(self.inode, [(block * BLOCK, min((block + 1) * BLOCK, size)) for block in blocks])

    def _assemble(self, blocks: list[int], size: int) -> None:
        """Blocks as they were at the index, in order, into new buffer blocks of this epoch."""
        data, by_run = memoryview(bytearray(len(blocks) * BLOCK)), dict[int, list[tuple[int, Piece]]]()
        for number, parts in enumerate(self._within(blocks, size)):
            for piece in parts:
                if piece.kind in (BUFFER, HOME):
                    at = (number - blocks[number]) * BLOCK + piece.start
                    by_run.setdefault(piece.run, []).append((at, piece))
        self.checked.require(piece for run in by_run.values() for _, piece in run if piece.kind == BUFFER)
        for run, placed in by_run.items():
            if run == 0:
                self._read_home(data, placed)
                continue
            found = self.store.buffers.read_all(
                run, [(piece.offset, piece.offset + piece.end - piece.start) for _, piece in placed])
            for (at, _), there in zip(placed, found, strict=True):
                data[at:at + len(there)] = there
        place = self.area.take_blocks(len(blocks))
        with open(self.store.layout.buffer(self.run_number), "r+b", buffering=0) as buffer:
            REAL.pwrite(buffer.fileno(), data, place * BLOCK)
        low = 0
        for high in range(1, len(blocks) + 1):
            if high == len(blocks) or blocks[high] != blocks[high - 1] + 1:
                self.area.table_set(self.p, blocks[low], place + low, high - low)
                low = high

    def _read_home(self, data: memoryview, parts: list[tuple[int, Piece]]) -> None:
        home = REAL.open_shut(self._home(), os.O_RDONLY | os.O_NONBLOCK)
        try:
            for at, (start, end, *_) in parts:
                found = REAL.pread(home, end - start, start)
                data[at:at + len(found)] = found
        finally:
            REAL.close(home)
