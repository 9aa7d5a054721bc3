"""The undo records of a store: pre-images of bytes in place, saved before they were overwritten.

A record with after_index a holds bytes that the backing file had for every index up to a. Of a byte that several
records know, the first one with after_index >= k says what it was at k.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from metamori.errors import Damaged
from metamori.store.format import files
from metamori.store.format.layout import Layout, parse_record_name
from metamori.store.format.records import Undo, UndoEntry
from metamori.store.format.row_table import part, runs
from metamori.store.io import commit
from metamori.store.io.os_io import Door
from metamori.tables.aml import AML, AddressMap
from metamori.tables.lru import Recent
from metamori.tables.view import NOTHING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from metamori.tables.record import NamedTuple

_COMBINED_MAX = 4096
_HELD_MAX = 500_000                        # entries of records held in memory: 24 MB


class Unwritten(NamedTuple):
    """What a live run has saved and no record has yet, each with its after_index, in the order in which they count:
    behind all records. anew: what was said before counts no more."""

    anew: bool
    entries: tuple[tuple[int, UndoEntry], ...]


class UndoLog:
    """Read lazily. `records` is sorted by (after_index, seq): the order in which they count.

    Of every record the files that it speaks of are known; its entries are held as _HELD_MAX allows, those looked
    at last, and read again.
    """

    def __init__(self, door: Door, layout: Layout) -> None:
        self._door = door
        self._layout = layout
        self._known: set[tuple[int, int]] = set()
        self._held: Recent[tuple[int, int], Undo] = Recent(_HELD_MAX, lambda undo: len(undo.entries))
        self._rows: Recent[tuple[int, int], dict[int, list[tuple[int, int]]]] = Recent(_HELD_MAX, len)   # by file
        self._last = 0                     # the highest seq of _known and damaged
        self._by_inode: dict[int, list[tuple[int, int]]] = {}
        self._given_up: set[int] = set()   # files of which a record says that bytes are lost
        self._combined: Recent[tuple[int, int, int, int, bool], AddressMap] = Recent(_COMBINED_MAX)
        self._loaded = False
        self.unwritten: Callable[[], Unwritten] | None = None    # of whoever reads beside a run
        self._beside: dict[int, list[tuple[int, UndoEntry]]] = {}
        self._assumed: dict[int, tuple[int, AddressMap]] = {}   # of a file: what a record would say, and up to where
        self.damaged: dict[tuple[int, int], str] = {}   # records that cannot be read, and why

    @property
    def records(self) -> list[Undo]:
        self._load()
        return [self._record(key) for key in sorted(self._known)]

    def between(self, low: int, high: int) -> list[Undo]:
        """The records with an after_index from `low` on and below `high`."""
        self._load()
        return [self._record(key) for key in sorted(key for key in self._known if low <= key[0] < high)]

    def names(self) -> list[tuple[int, int]]:
        """(after_index, seq) of every record that is there, readable or not."""
        self._load()
        return sorted(self._known | self.damaged.keys())

    def last(self) -> int:
        """The highest seq; 0 without a record."""
        self._load()
        return self._last

    def given_up(self) -> set[int]:
        """Files of which some record says that bytes are lost, or will."""
        self._load()
        beside = {inode for inode, said in self._beside.items() if not all(entry.run for _, entry in said)}
        return self._given_up | beside if beside else self._given_up

    def spoken_of(self, low: int, high: int) -> set[int]:
        """Files whose `saved_for` may not be the same at both indexes."""
        self._load()
        return {inode for inode, keys in self._by_inode.items()
                if bisect_left(keys, (low, 0)) < bisect_left(keys, (high, 0))}

    def forget(self) -> None:
        """Records have gone, or say something else: the next look begins anew."""
        self.damaged.clear()
        self._last = 0
        self._known.clear()
        self._held.clear()
        self._rows.clear()
        self._by_inode.clear()
        self._given_up.clear()
        self._combined.clear()
        self._assumed.clear()
        self._loaded = False

    def refresh(self) -> bool:
        """Read the records that others have added; whether there are any."""
        self._look_beside()                # before the records: what is in neither then is not there
        before = len(self._known)
        self._loaded = False
        self._load()
        return len(self._known) != before

    def _look_beside(self) -> None:
        if self.unwritten is None:
            return
        anew, entries = self.unwritten()
        if anew:
            self._beside.clear()
            self._combined.clear()
        for after_index, entry in entries:
            self._beside.setdefault(entry.inode, []).append((after_index, entry))

    def _load(self) -> None:
        if self._loaded:
            return
        for raw in self._door.listdir(self._layout.checkpoints):
            name = parse_record_name(raw) if b".undo." in raw else None    # few are: a reader asks again and again
            if name is not None and name.kind == "undo" and (name.index, name.number) not in self._known:
                try:
                    self._learn(self._read(name.index, name.number))
                    self.damaged.pop((name.index, name.number), None)
                except Damaged as error:
                    self.damaged[(name.index, name.number)] = str(error)
                    self._last = max(self._last, name.number)
        self._loaded = True

    def _read(self, after_index: int, seq: int) -> Undo:
        path = self._layout.undo(after_index, seq)
        try:
            found = files.decode_undo(commit.read_file(self._door, path), self._layout.id)
        except FileNotFoundError:
            raise Damaged(f"{os.fsdecode(path)} is missing") from None
        except files.FormatError as error:
            raise Damaged(f"{os.fsdecode(path)}: {error}") from error
        if (found.after_index, found.seq) != (after_index, seq):
            raise Damaged(f"{os.fsdecode(path)} is the undo record {found.after_index}.undo.{found.seq}")
        return found

    def _learn(self, undo: Undo) -> None:
        key = (undo.after_index, undo.seq)
        self._known.add(key)
        self._last = max(self._last, undo.seq)
        self._held.put(key, undo)
        for inode in {inode for inode, _, _ in runs(undo.entries, 0)}:
            insort(self._by_inode.setdefault(inode, []), key)
        self._given_up.update(undo.entries[low].inode for run, start, end in runs(undo.entries, 3) if not run
                              for low in range(start, end))
        self._combined.clear()

    def _record(self, key: tuple[int, int]) -> Undo:
        found = self._held.get(key)
        if found is None:
            found = self._read(*key)
            self._held.put(key, found)
        return found

    def add(self, entries: tuple[UndoEntry, ...], after_index: int, durable: bool, alone: bool = False) -> Undo:
        """A new record, after all that are there. Whole if it is there, also when nothing has to be durable: a torn one
        would stand in the way of every index before it. alone: nobody else has added one since the last look."""
        if not alone:
            self.refresh()
        seq = self.last() + 1
        undo = Undo(after_index, seq, entries)
        data = files.encode_undo(undo, self._layout.id)
        commit.write_file(self._door, self._layout.undo(after_index, seq), data, sync_folder=durable)
        self._learn(files.decode_undo(data, self._layout.id))   # rows, a third of what tuples take
        return undo

    def saved_for(self, inode: int, index: int) -> AddressMap:
        """What the backing file of an object had at an index where it has changed since. Run 0: lost. Damaged when a
        record that may say so cannot be read."""
        self._load()
        for (after_index, _), why in self.damaged.items():
            if after_index >= index:
                raise Damaged(why)
        up_to, assumed = self._assumed.get(inode, (0, NOTHING))
        keys, assumed = self._from(inode, index), assumed if index <= up_to else NOTHING
        beside = [entry for after_index, entry in self._beside.get(inode, ()) if after_index >= index]
        if not keys and not beside:
            return assumed
        of = (inode, *(keys[0] if keys else (index, 0)), len(beside), assumed is NOTHING)
        cached = self._combined.get(of)
        if cached is None:
            cached = AddressMap(self._in_turn(beside))
            cached.overlay(assumed)
            for key in reversed(keys):
                cached.overlay(AddressMap(self._amls(key, inode)))
            self._combined.put(of, cached)
        return cached

    def _from(self, inode: int, index: int) -> list[tuple[int, int]]:
        """The records that speak of a file, from those on that say what it was at an index."""
        known = self._by_inode.get(inode, [])
        return known[bisect_left(known, (index, 0)):]

    def first_from(self, wanted: Mapping[int, int]) -> dict[int, list[UndoEntry]]:
        """Of each file what the first record has saved of it that knows it at an index, or later."""
        self._load()
        records: dict[tuple[int, int], set[int]] = {}
        for inode, index in wanted.items():
            for key in self._from(inode, index)[:1]:
                records.setdefault(key, set()).add(inode)
        found: dict[int, list[UndoEntry]] = {}
        for key, inodes in records.items():
            entries = self._record(key).entries
            for inode, low, high in runs(entries, 0):
                if inode in inodes:
                    found.setdefault(inode, []).extend(entry for entry in part(entries, low, high) if entry.run)
        return found

    def assume(self, inode: int, entries: list[UndoEntry], after_index: int) -> None:
        """What the next record will say of a file, which nobody has written yet: it counts from now on."""
        if self._assumed.pop(inode, None) or entries:
            self._combined.clear()
        if entries:
            self._assumed[inode] = after_index, AddressMap(self._in_turn(entries))

    def _amls(self, key: tuple[int, int], inode: int) -> Iterator[AML]:
        """What a record says of a file. Of a byte that it names twice, the first entry counts, so the last is inserted
        first."""
        entries, rows = self._record(key).entries, self._rows.get(key)
        if rows is None:
            rows = {}
            for each, low, high in runs(entries, 0):
                rows.setdefault(each, []).append((low, high))
            self._rows.put(key, rows)
        return self._in_turn([row for low, high in rows.get(inode, ()) for row in part(entries, low, high)])

    @staticmethod
    def _in_turn(mine: list[UndoEntry]) -> Iterator[AML]:
        in_order = all(one.end <= other.start for one, other in pairwise(mine))
        for entry in mine if in_order else reversed(mine):
            yield AML(entry.start, entry.end, entry.run, entry.buffer_start if entry.run else entry.start)
