"""The records of a store: its checkpoints, undo records and head, read lazily.

Records never change once they have their name, but by a prune, which changes the counters. So everything read is
cached, and `refresh` only has to look for new names and at the counters: a reader works beside a live run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice

from metamori.errors import Damaged, NoSuchCheckpoint, StoreBusy
from metamori.store.format import files
from metamori.store.format.layout import parse_record_name
from metamori.store.format.records import Head, Meta, NameEntry, Offsets, PifEntry, Undo
from metamori.store.io import commit
from metamori.store.io.buffers import Buffers
from metamori.store.io.lock import StoreLock
from metamori.store.io.os_io import Door
from metamori.store.read import create
from metamori.store.read.counters import Counters
from metamori.store.read.head import as_copied, renumbered
from metamori.store.read.state import State
from metamori.store.read.undos import UndoLog
from metamori.tables.history import History, spans_text
from metamori.tables.lru import Recent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _Record = TypeVar("_Record")

META_ENTRIES = 250_000                     # names, files and descriptors in the records held: at most about 100 MB
STATES = 8                                 # held at a time
_NAMED_MAX = 20                            # a damaged or hostile record may say that there were any number


def _weight(meta: Meta) -> int:
    """What a record takes in memory, in entries. Its initial ones are held for the whole store, whatever happens."""
    return 1 + len(meta.names) + len(meta.pifs) + len(meta.fits)


class Catalog(StoreLock):
    """What a store has, for whoever reads it."""

    def __init__(self, path: str | bytes, door: Door) -> None:
        super().__init__(path, door)
        self.buffers = Buffers(door, self.layout)
        self.undo_log = UndoLog(door, self.layout)
        self.damaged: dict[int, str] = {}  # indexes whose record cannot be read, or whose parent's cannot, and why
        self._history = History()
        self._process_of: dict[int, int] = {}
        self._metas: Recent[int, Meta] = Recent(META_ENTRIES, _weight)
        self._states: Recent[int, State] = Recent(STATES)
        self._initial_names: dict[bytes, NameEntry] = {}
        self._initial_pifs: dict[int, PifEntry] = {}
        self._single_floor = 0
        self._merged = 0
        self._rootless = False
        self._still: dict[int, Meta] = {}  # records that `_take_up` need not read
        self._counters = Counters(door, self.layout)
        self._loaded = False
        self._head: Head | None = None
        self._head_read: tuple[bytes, Head] | None = None      # what was last read or written
        self._is_copied: bool | None = None
        self._devices: Mapping[int, int] = {}
        self._is_renumbered = False        # devices have other numbers than the head that was read says

    @property
    def history(self) -> History:
        """The tree. Index 0 is its root also when it was pruned."""
        self._load()
        return self._history

    @property
    def newest(self) -> int:
        """The highest index; 0 when there is no checkpoint."""
        return self.history.newest

    def refresh(self, alone: bool = False) -> bool:
        """Look for records and prunes of others; whether there are any. alone: nobody else has added a record since."""
        self._head = None
        before, pruned = self._history.newest, self.was_pruned()
        if alone and not pruned:
            return False
        return self.look() or self._history.newest != before or pruned

    def look(self) -> bool:
        """Learn the records that others have added, keeping the head that was read; whether there are undo records."""
        self._loaded = False
        self._load()
        return self.undo_log.refresh()

    def was_pruned(self) -> bool:
        """Whether somebody has pruned the store since this was last asked: then nothing read before counts."""
        if not self._counters.look():
            return False
        self.forget()
        return True

    def is_being_pruned(self) -> bool:
        """Whether somebody is about it: records go before the counters say so. To be asked before `was_pruned`."""
        return commit.exists(self.door, self.layout.prune) and self.is_busy()

    def was_disturbed(self) -> bool:
        """Whether somebody else prunes, or has since the store was opened: what is missed may have gone with reason."""
        if self._lock_fd >= 0:
            return False
        beside = self.is_being_pruned()
        self.was_pruned()
        return beside or self._counters.changed_since_opened()

    def being_pruned(self) -> StoreBusy:
        """What is said to whoever meets a prune of somebody else."""
        return StoreBusy(f"the store {self.path} is being pruned; ask again")

    def held_metas(self) -> dict[int, Meta]:
        """The records that are in memory."""
        return {index: meta for index in self._process_of if (meta := self._metas.get(index)) is not None}

    def prune_done(self, metas: Mapping[int, Meta]) -> None:
        """This process has pruned the store: of what was read before, these records count, as they are now."""
        self._counters.look()
        self.forget()
        self._still = dict(metas)
        self.refresh()

    def forget(self) -> None:
        """Nothing read so far counts."""
        self._still.clear()
        self._history, self._loaded = History(), False
        self._merged, self._rootless, self._single_floor = 0, False, 0
        for known in (self._process_of, self._metas, self._states, self._initial_names, self._initial_pifs,
                      self.damaged):
            known.clear()
        self.undo_log.forget()

    @property
    def is_pruned(self) -> bool:
        """Whether a prune has taken indexes away, or is about to."""
        return bool(self._counters.numbers.pruned) or commit.exists(self.door, self.layout.prune)

    def last_pruned(self) -> int:
        """The newest index of the last prune, 0 without one: no later one is missing with reason."""
        if commit.exists(self.door, self.layout.prune):
            return max(self.newest, self.head.newest)
        return self._counters.numbers.index

    def check_numbers(self) -> None:
        """Damaged unless the counters are as the last prune left them."""
        self._load()
        if self._counters.damage:
            raise Damaged(self._counters.damage)
        if self._merged and not self._counters.numbers.pruned and not commit.exists(self.door, self.layout.prune):
            raise Damaged(f"{os.fsdecode(self.layout.counters)} is missing")

    def _load(self) -> None:
        """Read what is not known yet. Where that fails for the moment nothing counts as known: it is begun anew."""
        if self._loaded:
            return
        try:
            self._read_all()
        except BaseException:
            self.forget()
            raise
        self._loaded = True

    def _read_all(self) -> None:
        self.was_pruned()
        found: dict[int, set[int]] = {}
        try:
            names = self.door.listdir(self.layout.checkpoints)
        except (FileNotFoundError, NotADirectoryError):
            raise Damaged(f"{os.fsdecode(self.layout.checkpoints)} is missing") from None
        for raw in names:
            name = parse_record_name(raw)
            if name is None:
                continue
            if name.kind == "meta" and self._process_of.get(name.index) != name.number:
                found.setdefault(name.index, set()).add(name.number)
            if name.kind != "undo":
                self._counters.note("process", name.number)
        for index in sorted({*found, *self.damaged}):
            try:
                self._take_up(index, found.get(index, set()))
                self.damaged.pop(index, None)
            except Damaged as error:
                self.damaged[index] = str(error)
        for run in self.buffers.runs():
            self._counters.note("run", run)

    def _take_up(self, index: int, processes: set[int]) -> None:
        """A checkpoint that was not known yet, or could not be read so far. processes: whose records of it are new."""
        before = {self._process_of[index]} if index in self._process_of else set()
        self._process_of[index] = min(before or processes)
        if len(before | processes) > 1:
            names = " and ".join(f"{index}.meta.{each}" for each in sorted(before | processes))
            raise Damaged(f"{os.fsdecode(self.layout.checkpoints)}: checkpoint {index} has two records, {names}")
        meta = self._still.pop(index, None)
        if meta is not None and meta.process == self._process_of[index]:
            self._metas.put(index, meta)
        self._learn(meta or self._read_meta(index))

    def _learn(self, meta: Meta) -> None:
        """Take a meta into the tables of the whole store. The first initial entry of a path counts."""
        try:
            self._history.add(meta.index, meta.parent)
        except (KeyError, ValueError) as error:
            why = self.damaged.get(meta.parent, f"checkpoint {meta.index} grew from {meta.parent}, which is not there")
            raise Damaged(why) from error
        self._merged += meta.merged
        self._rootless = self._rootless or meta.rootless
        if meta.mode == "single" and not meta.reason.startswith(("killed", "power cut")):
            self._single_floor = meta.index
        names = {entry.path: entry for entry in meta.initial_names if entry.path not in self._initial_names}
        pifs = {entry.inode: entry for entry in meta.initial_pifs if entry.inode not in self._initial_pifs}
        self._initial_names.update(names)
        self._initial_pifs.update(pifs)
        if names or pifs:
            for state in self._states.values():
                state.add_initial(names, pifs)
        self._counters.note("run", meta.run)
        self._counters.note("process", max((meta.process, *(entry.process for entry in meta.processes))))
        self._counters.note("object", max((0, *(pif.inode for pif in (*meta.pifs, *meta.initial_pifs)))))

    def _read_meta(self, index: int) -> Meta:
        path = self.layout.meta(index, self._process_of[index])
        meta = self._decoded(path, files.decode_meta)
        if meta.index != index:
            raise Damaged(f"{os.fsdecode(path)} is the record of checkpoint {meta.index}")
        self._metas.put(meta.index, meta)
        return meta

    def _decoded(self, path: bytes, decode: Callable[[bytes, int], _Record]) -> _Record:
        try:
            return decode(commit.read_file(self.door, path), self.layout.id)
        except FileNotFoundError:
            if any((self.is_being_pruned(), self.was_pruned())):   # both are asked, in this order
                raise self.being_pruned() from None
            raise Damaged(f"{os.fsdecode(path)} is missing") from None
        except files.FormatError as error:
            raise Damaged(f"{os.fsdecode(path)}: {error}") from error

    def missing(self) -> list[str]:
        """Which records were there once and are not. Up to the last prune numbers may be missing with reason."""
        head, folder = self.head, os.fsdecode(self.layout.checkpoints)
        self.look()                        # a live run writes a record before the head that counts it
        known = self.history.indexes
        there = {*known, *self.damaged}
        newest = max(head.newest, *there)
        first = self.last_pruned() + 1
        metas = (f"{folder}/{index}.meta.* is missing" for index in range(newest, first - 1, -1) if index not in there)
        if self.is_pruned:
            return list(islice(metas, _NAMED_MAX))
        last = max([head.undos, *(self.meta(index).undos for index in known[-1:] if index)])
        undos = {seq for _, seq in self.undo_log.names()}
        records = (f"{folder}/*.undo.{seq} is missing" for seq in range(1, last + 1) if seq not in undos)
        return [*islice(metas, _NAMED_MAX), *islice(records, _NAMED_MAX)]

    def require(self, index: int) -> None:
        """NoSuchCheckpoint unless the index exists."""
        newest = self.newest
        if index in self.damaged:
            raise Damaged(self.damaged[index])
        if index not in self._history:
            for why in self.missing():
                raise Damaged(why)
        if (index == 0 and self._rootless) or (0 < index < newest and index not in self._history):
            raise NoSuchCheckpoint(f"checkpoint {index} was pruned; there are {spans_text(self.indexes)}")
        if index not in self._history:
            known = f"there are {spans_text(self.indexes)}" if newest else "there is none yet"
            raise NoSuchCheckpoint(f"there is no checkpoint {index}; {known}")

    @property
    def indexes(self) -> list[int]:
        """All that are there, oldest first; 0 too, unless it was pruned."""
        return self.history.indexes[1 if self._rootless else 0:]

    def is_restorable(self, index: int) -> bool:
        """Whether an index that is there has all its bytes: not so in the past of single mode."""
        return index >= self._single_floor or index == self.head.index

    def require_restorable(self, index: int) -> None:
        """NoSuchCheckpoint when the index is of the past of single mode, which keeps the last one only."""
        self.require(index)
        if not self.is_restorable(index):
            raise NoSuchCheckpoint(f"checkpoint {index} cannot be restored: in single mode only the last "
                                   f"one is kept, {self._single_floor}")

    def meta(self, index: int) -> Meta:
        """The record of an index from 1 on."""
        self.require(index)
        if index == 0:
            raise NoSuchCheckpoint("index 0 is the state before the first run; it has no record")
        return self._metas.get(index) or self._read_meta(index)

    def offsets(self, index: int) -> Offsets:
        """The offset file of an index; without entries when its interval redirected nothing."""
        meta = self.meta(index)
        if meta.offset_entries == 0:
            return Offsets(index, meta.process, meta.run)
        path = self.layout.offset(index, meta.process)
        found: Offsets = self._decoded(path, files.decode_offsets)
        if (found.index, found.process, found.run) != (index, meta.process, meta.run):
            raise Damaged(f"{os.fsdecode(path)} is the offset file of checkpoint {found.index}, process "
                          f"{found.process}, run {found.run}")
        return found

    @property
    def undos(self) -> list[Undo]:
        """All undo records, oldest first."""
        return self.undo_log.records

    def state(self, index: int, doubtful: bool = False) -> State:
        """The state at an index, from the nearest one on its chain that is still cached.

        `doubtful`: an offset file that cannot be read counts as empty, and the state says so.
        """
        self.require(index)
        steps: list[int] = []
        state: State | None = None
        for ancestor in self._history.ancestors(index):
            state = self._states.get(ancestor)
            if state is not None:
                break
            if ancestor == 0:
                state = self.root_state()
                break
            steps.append(ancestor)
        assert state is not None           # every chain ends at 0
        if steps:
            try:
                state = state.successor([(self.meta(step), self.offsets(step)) for step in reversed(steps)])
            except Damaged:
                if not doubtful:
                    raise
                nothing = [(meta, Offsets(step, meta.process, meta.run)) for step in reversed(steps)
                           for meta in [self.meta(step)]]
                state = state.successor(nothing)
                state.is_doubtful = True
                return state
        self._states.put(index, state)
        return state

    def root_state(self) -> State:
        """What every history begins with: index 0, or what is left of it when it was pruned."""
        self._load()
        state = State(0, self.undo_log.saved_for)
        state.add_initial(self._initial_names, self._initial_pifs)
        return state

    @property
    def head(self) -> Head:
        if self._head is None:
            self._head = self._decoded(self.layout.head, self._head_of)
            if self.is_copied:
                self._head = as_copied(self.door, self.layout, self._head)
        return self._head

    def renumber(self, devices: Mapping[int, int]) -> None:
        """What numbers of devices that head has noted are now; {}: as far as its files tell."""
        self._devices, self._head, self._head_read = devices, None, None

    def _head_of(self, data: bytes, store: int) -> Head:
        """A run asks again and again, and head names every file."""
        if self._head_read is None or self._head_read[0] != data:
            noted = files.decode_head(data, store)
            self._head_read = data, renumbered(self.door, noted, self._devices)
            self._is_renumbered = self._head_read[1] is not noted
        return self._head_read[1]

    @property
    def is_copied(self) -> bool:
        """Whether nothing has written here yet since the store was copied: what is noted of inodes is another's."""
        if self._is_copied is None:
            self._is_copied = not create.is_in_place(self.door, self.layout)
        return self._is_copied
