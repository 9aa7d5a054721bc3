"""A store: its checkpoints, undo records and head, read lazily and written durably.

Invariants:
  1. An index exists when its meta file does; the offset file was durable before.
  2. Records never change once they have their name, but by a prune, which changes the counters. So everything
     read is cached, and `refresh` only has to look for new names and at the counters: a reader works beside a
     live run.
  3. Whoever writes holds `lock` (a live run's supervisor holds it for the run), except that the processes of
     a run commit checkpoints under their supervisor's lock.
  4. Before bytes in place change that some index resolves to, an undo record of them is durable.
  5. Offline, the files are at `head`: each named object's home has exactly its bytes at head.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from typing import TypeVar

from metamori.errors import Damaged, MetamoriError, NoSuchCheckpoint, StoreBusy
from metamori.store.format import files
from metamori.store.format.layout import parse_record_name
from metamori.store.format.records import Head, KeptHome, Meta, NameEntry, Numbers, Offsets, PifEntry, Undo, UndoEntry
from metamori.store.io import commit
from metamori.store.io.buffers import Buffers
from metamori.store.io.lock import StoreLock
from metamori.store.io.os_io import REAL, Door
from metamori.store.io.owner import require_own
from metamori.store.read import create, invalidated
from metamori.store.read.checksums import Checked, missing, signed_ranges
from metamori.store.read.counters import Counters
from metamori.store.read.head import as_copied, born_then, identity_now, objects_at, present_head, wait_past
from metamori.store.read.state import State
from metamori.store.read.undos import UndoLog
from metamori.tables.history import History, spans_text
from metamori.tables.lru import Recent
from metamori.tables.record import replace

META_ENTRIES = 50_000                      # names, files and descriptors in the records held: about 20 MB
_STATE_CACHE = 8
_Record = TypeVar("_Record")


def _weight(meta: Meta) -> int:
    """What a record takes in memory, in entries."""
    return 1 + len(meta.names) + len(meta.initial_names) + len(meta.pifs) + len(meta.initial_pifs) + len(meta.fits)


class Store(StoreLock):
    """One store. Made by `open` or `create_or_open`; `door` is what tests replace."""

    def __init__(self, path: str | bytes, door: Door = REAL) -> None:
        super().__init__(path, door)
        self.buffers = Buffers(door, self.layout)
        self.undo_log = UndoLog(door, self.layout)
        self._history = History()
        self._process_of: dict[int, int] = {}
        self._metas: Recent[int, Meta] = Recent(META_ENTRIES, _weight)
        self._states: Recent[int, State] = Recent(_STATE_CACHE)
        self._initial_names: dict[bytes, NameEntry] = {}
        self._initial_pifs: dict[int, PifEntry] = {}
        self._single_floor = 0
        self._merged = 0
        self._rootless = False
        self._counters = Counters(door, self.layout)
        self._loaded = False
        self.damaged: dict[int, str] = {}  # indexes whose record cannot be read, or whose parent's cannot, and why
        self._checked: Recent[int, tuple[int, Checked]] = Recent(_STATE_CACHE)   # and as of which undo record
        self._head: Head | None = None
        self._objects: tuple[Head, dict[tuple[int, int], tuple[int, int]]] | None = None
        self._is_copied: bool | None = None

    # -- opening ---------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | bytes, write: bool = False, door: Door = REAL) -> Store:
        """An existing store; with `write` its lock is taken. NoStore, StoreBusy, Damaged."""
        store = cls(path, door)
        require_own(door, store.layout)
        store.read_format()
        if write:
            store.lock()
        return store

    def read_format(self) -> None:
        """What `open` does first: version and number of the store. NoStore, Damaged."""
        create.read_format(self.door, self.layout)

    @classmethod
    def create_or_open(cls, path: str | bytes, door: Door = REAL) -> Store:
        """The store at `path`, made when there is none. Not locked. MetamoriError where none can be made."""
        store = cls(path, door)
        require_own(door, store.layout)
        if not commit.exists(door, store.layout.format):
            try:
                create.create(door, store.layout)
            except OSError as error:
                raise MetamoriError(
                    f"no store can be made at {store.path}: {error.strerror}; --store names another place") from error
        return cls.open(path, door=door)

    def close(self) -> None:
        self.unlock()
        self.buffers.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, Damaged) and self.was_disturbed():
                raise self.being_pruned() from error
        finally:
            self.close()

    # -- reading ---------------------------------------------------------------------------------

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

    def forget(self) -> None:
        self._history, self._loaded = History(), False
        self._merged, self._rootless, self._single_floor = 0, False, 0
        for known in (self._process_of, self._metas, self._states, self._initial_names, self._initial_pifs,
                      self.damaged, self._checked):
            known.clear()
        self._objects = None
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
        self._learn(self._read_meta(index))

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

    def require(self, index: int) -> None:
        """NoSuchCheckpoint unless the index exists."""
        newest = self.newest
        if index in self.damaged:
            raise Damaged(self.damaged[index])
        if index not in self._history:
            for why in missing(self):
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

    def checked(self, index: int) -> Checked:
        """What the buffer bytes that an index may resolve to have to be."""
        known, last = self._checked.get(index), self.undo_log.last()
        if known is None or known[0] != last:
            known = last, signed_ranges(self, index)
            self._checked.put(index, known)
        return known[1]

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
            self._head = self._decoded(self.layout.head, files.decode_head)
            if self.is_copied:
                self._head = as_copied(self.door, self.layout, self._head)
        return self._head

    @property
    def is_copied(self) -> bool:
        """Whether nothing has written here yet since the store was copied: what is noted of inodes is another's."""
        if self._is_copied is None:
            self._is_copied = not create.is_in_place(self.door, self.layout)
        return self._is_copied

    def settle_in(self) -> None:
        """This store is in place here, from now on: the caller holds the lock, and nothing is unfinished."""
        invalidated.note(self)
        if self.is_copied:
            data = files.encode_head(self.head, self.layout.id)    # what it says of the records stays as it was
            commit.write_file(self.door, self.layout.head, data)
        create.note_place(self.door, self.layout)
        self._is_copied = False

    def find_object(self, dev: int, ino: int, btime_ns: int = 0) -> int:
        """The object that a file is, by what head knows; 0 for a file that no index knows.

        btime_ns 0: not known. A file that has another birth time than the one recorded is another file.
        """
        state = self.state(self.head.index)
        if self._objects is None or self._objects[0] is not self.head:
            self._objects = (self.head, objects_at(self.door, self.layout, self.head, state))
        inode, changed_ns = self._objects[1].get((dev, ino), (0, 0))
        return inode if inode and born_then(state.pifs.get(inode), dev, ino, btime_ns, changed_ns) else 0

    def changed_outside(self) -> list[bytes]:
        """Tracked paths that are not as they were when head was written."""
        return [each.path for each in self.head.identities if identity_now(self.door, each.path) != each]

    # -- numbers ---------------------------------------------------------------------------------

    def next_index(self) -> int:
        """The index that the next checkpoint gets; the others' checkpoints are looked for first."""
        self.refresh()
        return self._history.newest + 1

    def numbers(self) -> Numbers:
        """The highest numbers handed out so far, counting one more prune."""
        self.check_numbers()
        self._note_saved()
        return self._counters.after_prune(self.newest)

    def _note_saved(self) -> None:
        for undo in self.undos:
            self._counters.note("object", max((entry.inode for entry in undo.entries), default=0))

    def next_object(self) -> int:
        """A new object number. Durable when a record that uses it is."""
        self._load()
        self._note_saved()
        return self._counters.hand_out("object")

    def next_process(self) -> int:
        self._load()
        return self._counters.hand_out("process")

    def next_run(self) -> int:
        self._load()
        return self._counters.hand_out("run")

    # -- writing ---------------------------------------------------------------------------------

    def commit_checkpoint(self, meta: Meta, offsets: Offsets | None = None, durable: bool = True) -> Meta:
        """Make a checkpoint exist: offset file, then meta file. The buffer must be durable already."""
        if meta.parent not in self.history:
            self.refresh()
        offsets = offsets or Offsets(meta.index, meta.process, meta.run)
        meta = replace(meta, offset_entries=len(offsets.entries), undos=self.undo_log.last())
        if meta.index in self.damaged:
            raise Damaged(self.damaged[meta.index])
        path = self.layout.meta(meta.index, meta.process)
        there = f"{os.fsdecode(path)}: checkpoint {meta.index} is there already; it is not written over"
        if meta.index in self._process_of or commit.exists(self.door, path):
            raise MetamoriError(there)
        if offsets.entries:
            commit.write_file(self.door, self.layout.offset(meta.index, meta.process),
                              files.encode_offsets(offsets, self.layout.id), durable)
        try:
            commit.write_new(self.door, path, files.encode_meta(meta, self.layout.id), durable)
        except FileExistsError:
            raise MetamoriError(there) from None
        self._process_of[meta.index] = meta.process
        self._metas.put(meta.index, meta)
        self._learn(meta)
        return meta

    def add_undo(self, entries: Iterable[UndoEntry], after_index: int, durable: bool = True) -> Undo:
        """Record saved pre-images. The buffer must be durable already, the home still untouched."""
        return self.undo_log.add(tuple(entries), after_index, durable)

    def set_head(self, index: int, kept: tuple[KeptHome, ...] | None = None, durable: bool = True,
                 noted: bool = False, touched: Container[bytes] = frozenset()) -> Head:
        """Say that the user's files are at this index now, and note their identities.

        A file of which both indexes say the same stays known as what it was, unless its path is among those `touched`:
        if it is another by now, somebody else has changed it, and that is still to be found out.
        `kept` are the homes of objects without a name; None: as the PIF entries of the index say.
        `noted`: those that carry what lstat said of them keep that.
        """
        known = self.state(self.head.index, doubtful=True)
        now = present_head(self.door, self.layout, self.head, known, self.state(index), kept, noted, touched)
        head = replace(now, newest=self.newest, undos=self.undo_log.last())
        commit.write_file(self.door, self.layout.head, files.encode_head(head, self.layout.id), durable)
        self._head = head
        wait_past(head.identities)
        return head
