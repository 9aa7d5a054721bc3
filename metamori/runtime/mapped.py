"""Files whose bytes change without a call that we see: mapped shared and writable, or used by an asynchronous engine.

Invariant: at every checkpoint such a file has all of its bytes in the cumulative map, so whatever is stored through a
mapping afterwards destroys nothing that an index needs. What has changed since the last checkpoint is found by
comparing with the copy that the store has; only blocks that differ are stored. The pre-image that was saved when the
mapping began is such a copy too, and is referred to instead of being stored again.
Who maps a file is asked of the kernel at each checkpoint: nothing has to be counted that a kill could leave wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from metamori._area import lib
from metamori.runtime.area import BLOCK, Area, Preimage, proc_folder
from metamori.store.state import State
from metamori.store.store import Store
from metamori.tables.aml import AML, AddressMap

_PIECE = 1 << 20
_RESERVE = 64


def mapped_inodes(area: Area, wanted: set[int]) -> set[int] | None:
    """Of these inode numbers, those that a live process of the run has mapped; None when one cannot be asked."""
    found: set[int] = set()
    for slot in area.processes():
        try:
            with open(proc_folder(area.process(slot).pid) + b"/maps", "rb") as lines:
                for line in lines:
                    words = line.split(None, 5)
                    if words[4] != b"0" and int(words[4]) in wanted:
                        found.add(int(words[4]))   # by inode number alone: one too many costs a look, not a byte
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            return None
    return found


def release(area: Area, slots: Iterable[int]) -> set[int]:
    """Let go of the files that nobody maps any more; the run is frozen. Returns those that were MM_MAPPED until now.

    While a program lives that is not followed, they stay at home.
    """
    alive = any(area.process(slot).outside for slot in area.processes())
    area.head.outsiders = 1 if area.head.outside_for_good or alive else 0
    flagged = [slot for slot in slots if area.pif(slot).flags & lib.MM_HOME]
    if not flagged or area.head.outsiders:
        return set()
    inodes = mapped_inodes(area, {area.pif(slot).ino for slot in flagged})
    released = set()
    for slot in flagged:
        p = area.pif(slot)
        if inodes is None or p.ino in inodes or (p.flags & lib.MM_ENGINE and p.refs):
            continue
        if p.flags & lib.MM_MAPPED:
            released.add(slot)
        p.flags &= ~(lib.MM_HOME | lib.MM_MAPPED | lib.MM_ENGINE)
    if released:
        area.relink_mapped()
    return released


class Capture:
    """What changed in such files, copied into the disk buffer at the instant of a checkpoint."""

    def __init__(self, store: Store, area: Area, parent: State) -> None:
        self._store, self._area, self._parent = store, area, parent
        self._run = area.head.run
        self._next = self._end = 0             # buffer blocks reserved
        self.stored = 0

    def of(self, slot: int, home: bytes, size: int, cut: int, preimages: Iterable[Preimage]) -> list[AML]:
        """New AMLs of a file, in file order; with the parent's (up to `cut`) they cover [0, size)."""
        if not size or not home:
            return []
        known = self._known(slot, cut)
        saved = AddressMap(AML(each.start, each.end, self._run, each.buffer_start)
                           for each in reversed([*preimages])
                           if each.pif == slot and each.start < each.end and each.start % BLOCK == 0)
        new = AddressMap()
        source = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(self._store.layout.buffer(self._run), os.O_RDWR | os.O_CLOEXEC)
        try:
            for start, end, aml, ours in _pieces(known, saved, size):
                if aml is None:
                    self._copy(source, target, start, end, new)
                else:
                    self._compare(source, target, aml, ours, new)
            covered = self._area.head.next_block * BLOCK
            if os.fstat(target).st_size < covered:
                os.ftruncate(target, covered)
        finally:
            os.close(source)
            os.close(target)
        return list(new)

    def knows(self, slot: int) -> bool:
        """Whether the parent has bytes of the file in buffers."""
        return self._area.pif(slot).object in self._parent.maps

    def _known(self, slot: int, cut: int) -> AddressMap:
        known = self._parent.maps.get(self._area.pif(slot).object)
        if known is None:
            return AddressMap()
        known = known.copy()
        known.cut(cut)
        return known

    def _compare(self, source: int, target: int, aml: AML, ours: bool, new: AddressMap) -> None:
        """Store the blocks that differ from a copy that there is; refer to the others where the parent does not."""
        at = aml.start
        while at < aml.end:
            length = min(_PIECE, aml.end - at)
            data = os.pread(source, length, at)
            old = self._store.buffers.read(aml.run, aml.offset + at - aml.start, length)
            if data == old:
                if ours:
                    new.insert(AML(at, at + length, aml.run, aml.offset + at - aml.start))
            else:
                self._differing(target, aml, at, data, old, ours, new)
            at += length

    def _differing(self, target: int, aml: AML, at: int, data: bytes, old: bytes, ours: bool, new: AddressMap) -> None:
        for low in range(0, len(old), BLOCK):
            high = min(low + BLOCK, len(old))
            if data[low:high] != old[low:high]:
                place = self._take(1) * BLOCK
                os.pwrite(target, data[low:high], place)
                self.stored += high - low
                new.insert(AML(at + low, at + high, self._run, place))
            elif ours:
                new.insert(AML(at + low, at + high, aml.run, aml.offset + at + low - aml.start))

    def _copy(self, source: int, target: int, start: int, end: int, new: AddressMap) -> None:
        """Bytes of which there is no copy. Holes stay holes."""
        place = self._take(-(-(end - start) // BLOCK)) * BLOCK
        new.insert(AML(start, end, self._run, place))
        for low, high in self._store.door.data_ranges(source, start, end):
            at = low
            while at < high:
                data = os.pread(source, min(_PIECE, high - at), at)
                if not data:
                    break
                os.pwrite(target, data, place + at - start)
                self.stored += len(data)
                at += len(data)

    def _take(self, count: int) -> int:
        if self._end - self._next < count:
            wanted = max(count, _RESERVE)
            self._next = self._area.take_blocks(wanted)
            self._end = self._next + wanted
        first = self._next
        self._next += count
        return first


def _pieces(known: AddressMap, saved: AddressMap, size: int) -> Iterator[tuple[int, int, AML | None, bool]]:
    """[0, size) as (start, end, the copy that there is, whether only this run's pre-image is one).

    Starts are at block boundaries, and so are ends but the last: a copy of a part of a block is none.
    """
    at = 0
    for aml in known.find(0, size):
        start, end = -(-aml.start // BLOCK) * BLOCK, aml.end if aml.end == size else aml.end // BLOCK * BLOCK
        if start < end:
            yield from _gap(saved, at, start, size)
            yield start, end, aml.clip(start, end), False
            at = end
    yield from _gap(saved, at, size, size)


def _gap(saved: AddressMap, at: int, stop: int, size: int) -> Iterator[tuple[int, int, AML | None, bool]]:
    for aml in saved.find(at, stop):
        start, end = -(-aml.start // BLOCK) * BLOCK, aml.end if aml.end == size else aml.end // BLOCK * BLOCK
        if at <= start < end:
            if at < start:
                yield at, start, None, False
            yield start, end, aml.clip(start, end), True
            at = end
    if at < stop:
        yield at, stop, None, False
