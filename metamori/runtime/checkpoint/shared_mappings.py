"""Files whose bytes change without a call that we see: mapped shared and writable, or used by an asynchronous engine.

Invariant: at every checkpoint such a file has all of its bytes in the cumulative map, so whatever is stored through a
mapping afterwards destroys nothing that an index needs. What has changed since the last checkpoint is found by
comparing with the copy that the store has, all of it or where the kernel says (dirty_pages.py); only blocks that
differ are stored. The pre-image that was saved when the mapping began is such a copy too, and is referred to instead of
being stored again.
Who maps a file is asked of the kernel at each checkpoint: nothing has to be counted that a kill could leave wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from metamori._area import lib
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area, Preimage
from metamori.runtime.checkpoint.dirty_pages import Range, Watch, held_outside, mappings, merged
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AML, AddressMap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_pif

_PIECE = 1 << 20
_RESERVE = 64


def release(area: Area, slots: Iterable[int]) -> Watch:
    """Let go of the files that nobody maps any more.

    The checkpoint that is being made looks at all of them once more, and when it is not written, the next one does.
    While a program lives that is not tracked, or what it forked and gave such a file, they stay in place.
    """
    area.relink_mapped()
    lived, for_good = bool(area.head.untracked), area.head.outside_for_good
    alive = any(area.process(slot).outside for slot in area.slots()) or (
        lived and not for_good and held_outside(area, shown(area)))
    area.head.untracked = 1 if for_good or alive else 0
    flagged = [slot for slot in slots if area.pif(slot).flags & lib.MM_HOME]
    # by inode number alone (btrfs shows other devices here): one too many costs a look, not a byte
    # and while none is let go of, only where it is asked what was stored into them
    asked = {p.ino for p in map(area.pif, flagged)
             if not _stays(p) and (p.flags & lib.MM_MAPPED or not area.head.untracked)}
    found = mappings(area, asked) if asked else []
    watch = Watch(area, found or [], lived or alive)
    if not flagged or area.head.untracked:
        return watch
    inodes = {each.inode for each in found or ()}
    for slot in flagged:
        p = area.pif(slot)
        if found is None or p.ino in inodes or p.flags & (lib.MM_LEFT | lib.MM_WATCHED) or (
                p.flags & lib.MM_ENGINE and p.refs):
            continue
        if p.flags & lib.MM_MAPPED:
            p.let_go = area.head.epoch
        p.flags &= ~(lib.MM_HOME | lib.MM_MAPPED | lib.MM_ENGINE)
    return watch


def _stays(p: mm_pif) -> bool:
    """In place, whoever maps it; and what changes there is seen."""
    kept = p.flags & lib.MM_WATCHED or (p.flags & lib.MM_ENGINE and p.refs)
    return bool(kept and not p.flags & lib.MM_MAPPED)


def shown(area: Area) -> set[int]:
    """Files that a program which is not tracked was given (by inode number alone, as below)."""
    flagged = [area.pif(slot) for slot in range(1, area.head.pif_count)]
    return {p.ino for p in flagged if p.flags & lib.MM_HOME and p.flags & lib.MM_ENGINE}


def is_copied(pif: mm_pif) -> bool:
    """Whether a copy in the store (on another filesystem than the file) is the backing file; not of one that may be
    mapped."""
    return bool(pif.flags & lib.MM_COPIED and pif.flags & lib.MM_VIRTUAL)


def now_a_copy(area: Area, slot: int, size: int) -> None:
    """A file without a name that was copied to another filesystem while it was mapped, and that nobody maps any more:
    the index that is being made has all of its bytes in buffers, and what is written from here on goes there too."""
    p = area.pif(slot)
    if not (p.flags & lib.MM_COPIED and p.flags & lib.MM_NAMELESS) or p.flags & (lib.MM_VIRTUAL | lib.MM_HOME):
        return
    p.size = p.home_limit = size
    p.fresh_from = NO_LIMIT
    p.let_go = area.head.epoch             # if this checkpoint is not written, the next one takes all of it again
    p.flags |= lib.MM_VIRTUAL
    area.head.virtual_count += 1


class Capture:
    """What changed in such files, copied into the disk buffer at the instant of a checkpoint."""

    def __init__(self, store: Store, area: Area, parent: State) -> None:
        self._store, self._area, self._parent = store, area, parent
        self._run = area.head.run
        self._next = self._end = 0             # buffer blocks reserved
        self.stored = 0

    def of(self, slot: int, home: bytes, size: int, cut: int, preimages: Iterable[Preimage],
           candidates: list[Range] | None) -> list[AML]:
        """New AMLs of a file, in file order; with the parent's (up to `cut`) they cover [0, size).

        candidates: where it may differ from what the parent has of it; None: anywhere."""
        if not size or not home:
            return []
        known = self._known(slot, cut)
        saved = AddressMap(AML(each.start, each.end, self._run, each.buffer_start) for each in reversed([*preimages])
                           if each.slot == slot and each.start < each.end and each.start % BLOCK == 0)
        ranges = [(0, size)]
        if candidates is not None:
            ranges = merged((*candidates, *(known.gaps(0, size) if known.nbytes < size else ())))
        source = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(self._store.layout.buffer(self._run), os.O_RDWR | os.O_CLOEXEC)
        work = _Copies(self, source, target)
        try:
            for start, end in ranges:
                work.look(known, saved, start, min(end, size), size)
            covered = self._area.head.next_block * BLOCK
            if os.fstat(target).st_size < covered:
                os.ftruncate(target, covered)
        finally:
            os.close(source)
            os.close(target)
        return work.new

    def knows(self, slot: int) -> bool:
        """Whether the parent has bytes of the file in buffers."""
        return self._area.pif(slot).object in self._parent.maps

    def _known(self, slot: int, cut: int) -> AddressMap:
        known = self._parent.maps.get(self._area.pif(slot).object)
        if known is None:
            return AddressMap()
        if any(True for _ in known.find(cut, 1 << 63)):
            known = known.copy()
            known.cut(cut)
        return known

    def data_of_copy(self, aml: AML) -> Iterator[Range]:
        """Where a copy is not a hole, as places in the file."""
        shift = aml.start - aml.offset
        for start, end in self._store.buffers.data_ranges(aml.run, aml.offset, aml.offset + aml.end - aml.start):
            yield start + shift, end + shift

    def read_copy(self, aml: AML) -> bytes:
        return self._store.buffers.read(aml.run, aml.offset, aml.end - aml.start)

    def data_ranges(self, source: int, start: int, end: int) -> Iterator[Range]:
        return self._store.door.data_ranges(source, start, end)

    def take(self, count: int) -> tuple[int, int]:
        """Room for blocks: run and first byte."""
        if self._end - self._next < count:
            wanted = max(count, _RESERVE)
            self._next = self._area.take_blocks(wanted)
            self._end = self._next + wanted
        first = self._next
        self._next += count
        return self._run, first * BLOCK


class _Copies:
    """What of one file goes into the buffer. new: in file order, neighbours merged."""

    def __init__(self, capture: Capture, source: int, target: int) -> None:
        self._capture, self._source, self._target = capture, source, target
        self.new: list[AML] = []

    def look(self, known: AddressMap, saved: AddressMap, start: int, end: int, size: int) -> None:
        """The bytes [start, end), which begin at a block's boundary and end at one or with the file."""
        for low, high, aml, ours in _pieces(known, saved, start, end, size):
            if aml is None:
                self._copy(low, high)
            else:
                self._compare(aml, ours)

    def _compare(self, aml: AML, ours: bool) -> None:
        """Store the blocks that differ from a copy that there is; refer to the others where the parent does not."""
        done = aml.start
        for start, end in [*self._data(aml), (aml.end, aml.end)]:
            if ours and done < start:
                self._append(aml.clip(done, start))
            for at in range(start, end, _PIECE):
                piece = aml.clip(at, min(at + _PIECE, end))
                data, old = os.pread(self._source, piece.end - at, at), self._capture.read_copy(piece)
                if data != old:
                    self._differing(piece, data, old, ours)
                elif ours:
                    self._append(piece)
            done = end

    def _data(self, aml: AML) -> list[Range]:
        """What of a copy is to be compared: where it and the file are both a hole, they are the same."""
        if aml.end - aml.start <= _PIECE:
            return [(aml.start, aml.end)]
        return [(start, min(end, aml.end)) for start, end in merged((
            *self._capture.data_ranges(self._source, aml.start, aml.end), *self._capture.data_of_copy(aml)))]

    def _differing(self, aml: AML, data: bytes, old: bytes, ours: bool) -> None:
        for low in range(0, len(old), BLOCK):
            part = aml.clip(aml.start + low, min(aml.start + low + BLOCK, aml.end))
            block = data[low:low + BLOCK]
            if block != old[low:low + BLOCK]:
                run, place = self._capture.take(1)
                self._write(block, place)
                self._append(AML(part.start, part.end, run, place))
            elif ours:
                self._append(part)

    def _copy(self, start: int, end: int) -> None:
        """Bytes of which there is no copy. Holes stay holes."""
        lead = start % BLOCK
        run, place = self._capture.take(-(-(lead + end - start) // BLOCK))
        place += lead
        self._append(AML(start, end, run, place))
        for low, high in self._capture.data_ranges(self._source, start, end):
            for at in range(low, high, _PIECE):
                self._write(os.pread(self._source, min(_PIECE, high - at), at), place + at - start)

    def _write(self, data: bytes, place: int) -> None:
        os.pwrite(self._target, data, place)
        self._capture.stored += len(data)

    def _append(self, aml: AML) -> None:
        last = self.new[-1] if self.new else None
        if last is not None and last.joins(aml):
            self.new[-1] = AML(last.start, aml.end, last.run, last.offset)
        else:
            self.new.append(aml)




def _pieces(known: AddressMap, saved: AddressMap, at: int, stop: int,
            size: int) -> Iterator[tuple[int, int, AML | None, bool]]:
    """[at, stop) as (start, end, the copy that there is, whether only this run's pre-image is one).

    Starts are at block boundaries, and so are ends but the file's: a copy of a part of a block is none.
    """
    for start, end, aml in _whole_blocks(known, at, stop, size):
        yield from _gap(saved, at, start, size)
        yield start, end, aml, False
        at = end
    yield from _gap(saved, at, stop, size)


def _gap(saved: AddressMap, at: int, stop: int, size: int) -> Iterator[tuple[int, int, AML | None, bool]]:
    for start, end, aml in _whole_blocks(saved, at, stop, size):
        if at < start:
            yield at, start, None, False
        yield start, end, aml, True
        at = end
    if at < stop:
        yield at, stop, None, False


def _whole_blocks(known: AddressMap, at: int, stop: int, size: int) -> Iterator[tuple[int, int, AML]]:
    for aml in known.find(at, stop):
        start, end = -(-aml.start // BLOCK) * BLOCK, aml.end if aml.end == size else aml.end // BLOCK * BLOCK
        if start < end:
            yield start, end, aml.clip(start, end)
