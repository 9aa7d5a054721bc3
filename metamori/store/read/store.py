"""A store: its records (catalog.py), and how they are written durably.

Invariants:
  1. An index exists when its meta file does; the offset file was durable before.
  2. Whoever writes holds `lock` (a live run's supervisor holds it for the run), except that the processes of
     a run commit checkpoints under their supervisor's lock.
  3. Before bytes in place change that some index resolves to, they are saved: a live run says so in its journal until
     its next checkpoint (runtime/area/unwritten.py), else an undo record is durable.
  4. Offline, the files are at `head`: each named object's backing file has exactly its bytes at head.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping

from metamori.errors import Damaged, MetamoriError
from metamori.store.format import files
from metamori.store.format.records import Head, Identity, KeptHome, Meta, Numbers, Offsets, Undo, UndoEntry
from metamori.store.io import commit
from metamori.store.io.os_io import REAL, Door
from metamori.store.io.owner import require_own
from metamori.store.read import create, invalidated, scope
from metamori.store.read.catalog import STATES, Catalog
from metamori.store.read.checksums import Checked, signed_ranges
from metamori.store.read.head import (
    NamesNow,
    as_far_as_noted,
    born_then,
    is_as_noted,
    objects_at,
    present_head,
    wait_past,
)
from metamori.tables.lru import Recent
from metamori.tables.record import replace


class Store(Catalog):
    """One store. Made by `open` or `create_or_open`; `door` is what tests replace."""

    def __init__(self, path: str | bytes, door: Door = REAL) -> None:
        super().__init__(path, door)
        self._checked: Recent[int, tuple[int, Checked]] = Recent(STATES)   # and as of which undo record
        self._objects: tuple[Head, dict[tuple[int, int], tuple[int, int]]] | None = None
        self._noted: tuple[Head, dict[bytes, Identity]] | None = None
        self._kept_homes: tuple[Head, dict[int, list[KeptHome]]] | None = None
        self.changed_beside: Callable[[Collection[int] | None], set[int]] | None = None   # as UndoLog.unwritten

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
    def has_disks(self) -> bool:
        """Whether jobs in it have written to nodes' own disks (runtime/job/disk.py)."""
        return commit.exists(self.door, self.layout.disks)

    def forget(self) -> None:
        super().forget()
        self._checked.clear()
        self._objects = self._noted = self._kept_homes = None

    def noted(self) -> dict[bytes, Identity]:
        """What head has noted, by path."""
        if self._noted is None or self._noted[0] is not self.head:
            self._noted = self.head, {each.path: each for each in self.head.identities}
        return self._noted[1]

    def kept_homes(self) -> dict[int, list[KeptHome]]:
        """What head has noted of files in kept/, by file."""
        if self._kept_homes is None or self._kept_homes[0] is not self.head:
            homes = self._kept_homes = self.head, defaultdict[int, list[KeptHome]](list)
            for each in self.head.kept:
                homes[1][each.inode].append(each)
        return self._kept_homes[1]

    def checked(self, index: int) -> Checked:
        """What the buffer bytes that an index may resolve to have to be."""
        known, last = self._checked.get(index), self.undo_log.last()
        if known is None or known[0] != last:
            known = last, signed_ranges(self, index)
            self._checked.put(index, known)
        return known[1]

    def settle_in(self) -> None:
        """This store is in place here, from now on: the caller holds the lock, and nothing is unfinished."""
        invalidated.note(self)
        head = self.head                   # read first: that finds out what is in it
        if self.is_copied or self._is_renumbered:
            data = files.encode_head(head, self.layout.id)         # what it says of the records stays as it was
            commit.write_file(self.door, self.layout.head, data)
            self._head_read, self._is_renumbered = (data, head), False
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
        """Tracked paths that are not as they were when head was written, and what has the place of folders around."""
        identities, names = self.head.identities, NamesNow(self.door, self.scope_folders())
        there = names.look(each.path for each in identities)
        changed = [each.path for each, (now, _) in zip(identities, there, strict=True)
                   if as_far_as_noted(each, now) != each]
        replaced = [path for path in names.replaced if path not in self.noted()]
        return sorted(changed + replaced) if replaced else changed

    def scope_folders(self) -> tuple[bytes, ...]:
        """The folders that runs have tracked, as far as that is recorded and can be read."""
        try:
            found = scope.read(self.door, self.layout)
        except Damaged:                    # the next run says so
            return ()
        return found.folders if found else ()

    def left_behind(self) -> list[bytes]:
        """Paths at which head says there is something that its index does not have: a folder, say, that a restore left
        there since it holds other files. Nobody changed it; the next index has to have it, or what is in it is lost."""
        here = self.state(self.head.index).names
        return [each.path for each in self.head.identities if each.ino and here[each.path].kind == "absent"]

    @property
    def is_recorded(self) -> bool:
        """Whether what there is now is as the index says at which head is."""
        return not (self.changed_outside() or self.changed_kept() or self.left_behind())

    def changed_kept(self) -> list[KeptHome]:
        """Backing files in the store that are not as they were when head was written: written to by another name."""
        return [each for each in self.head.kept if not is_as_noted(self.door, self.layout, each)]

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

    def number_runs_from(self, number: int) -> None:
        """The next run of this store has this number: another store has its buffer too."""
        self._load()
        self._counters.note("run", number - 1)

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
        """Record saved pre-images. The buffer must be durable already, the file in place still untouched."""
        return self.undo_log.add(tuple(entries), after_index, durable)

    def set_head(self, index: int, kept: tuple[KeptHome, ...] | None = None, durable: bool = True,
                 noted: bool = False, touched: Container[bytes] = frozenset(),
                 theirs: Container[bytes] = frozenset(), seen: Mapping[bytes, Identity] | None = None) -> Head:
        """Say that the user's files are at this index now, and note their identities.

        A file of which both indexes say the same stays known as what it was, unless its path is among those `touched`:
        if it is another by now, somebody else has changed it, and that is still to be found out.
        `kept` are the backing files of objects without a name; None: as the PIF entries of the index say.
        `noted`: those that carry what lstat said of them keep that. `theirs`: somebody has put other files there, or
        written to them, as is to be found out. `seen`: what files were as this index recorded them.
        """
        known = self.state(self.head.index, doubtful=True)
        now = present_head(self.door, self.layout, self.head, known, self.state(index), kept, noted, touched,
                           theirs, seen or {}, self.scope_folders())
        head = replace(now, newest=self.newest, undos=self.undo_log.last())
        data = files.encode_head(head, self.layout.id)
        commit.write_file(self.door, self.layout.head, data, durable)
        self._head, self._head_read, self._is_renumbered = head, (data, head), False
        wait_past((*head.identities, *head.kept))
        return head
