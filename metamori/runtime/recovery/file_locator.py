"""The files that a power cut left, found again by what they are: as the fold of a checkpoint sees a run area.

A file is known by inode number and birth time: device numbers may be others after a start of the machine, and files of
two filesystems, the store's and the data's, have the same inode numbers. Where the store is on another filesystem, a
file that lost its name is a copy, another inode: the log says which one (`Base.moved`), or the last index that saw it
knows its name in the store. Of a file that the run left alone head says which inode it is: a restore before the run may
have made another of it than the index recorded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from types import SimpleNamespace

from metamori.runtime.area import scope
from metamori.runtime.area.run_area import Touch
from metamori.runtime.area.wal import Record
from metamori.runtime.recovery.recovery_base import Base
from metamori.store.format.records import KeptHome, PifEntry
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.head import NO_TIME
from metamori.store.read.scope import EVERYTHING
from metamori.store.read.scope import read as read_scope
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.record import record

_NOBODY = 1                                # a birth that no file has


@record
class Found:
    """A file that is there. `home`: where its bytes are; kept: its name in the store, of one that has no other; object
    0: no index knows it."""

    object: int
    path: bytes
    home: bytes
    kept: bytes
    btime_ns: int
    st: os.stat_result


@record
class Present:
    """What is there now at a path; kept: its name in the store, if it is one of those."""

    path: bytes
    kept: bytes
    born: int
    st: os.stat_result

    def fits(self, born: int) -> bool:
        """Whether a file of this inode number that was born then can be it; 0 is unknown."""
        return not born or not self.born or born == self.born


class Remains:
    """`files` by slot; a slot is one file, still there or not. The rest is what a fold asks of an area."""

    def __init__(self, store: Store, base: Base, state: State, looked: dict[bytes, os.stat_result | None],
                 arrived: dict[int, bytes], began_ns: int, not_here: Callable[[bytes], bool]) -> None:
        self._store, self._state, self._not_here = store, state, not_here
        self._rules = scope.rules(read_scope(store.door, store.layout) or EVERYTHING, os.environb)
        self.head = SimpleNamespace(run=base.run, flags=base.flags, next_object=store.next_object())
        self.files: dict[int, Found] = {}
        self._pifs: list[SimpleNamespace] = [SimpleNamespace()]
        self._slots: dict[tuple[int, int, int], int] = {}      # (object, or 0; inode number; birth, of object 0)
        self._homes: dict[int, list[int]] = {}                 # inode number: slots
        self._there: dict[int, list[Present]] = {}
        self._walked: dict[bytes, dict[int, list[tuple[bytes, os.stat_result]]]] = {}
        for path, st in looked.items():
            self._present(self._there, path, b"", st)
        self._kept: dict[int, list[Present]] = {}
        for name in store.door.listdir(store.layout.kept_folder):
            path = store.layout.kept(name)
            self._present(self._kept, path, name, lstat_or_none(store.door, path))
        self._devices = {each.st.st_dev for some in (*self._there.values(), *self._kept.values()) for each in some}
        self._copies = {(each.ino, each.btime_ns): each.copy()[1:] for each in base.moved}
        self._by_head = self._noted_by_head(began_ns)          # object: inode number, birth
        for inode, pif in state.pifs.items():
            if inode in arrived and (st := lstat_or_none(store.door, arrived[inode])):
                self._copies[self.identity(pif)] = st.st_ino, store.door.birth_ns(arrived[inode])
        self._by_ino: dict[int, list[tuple[int, int]]] = {}    # (object, born)
        for inode, pif in state.pifs.items():
            ino, born = self._now(pif)
            self._by_ino.setdefault(ino, []).append((inode, born))

    def _present(self, kind: dict[int, list[Present]], path: bytes, kept: bytes, st: os.stat_result | None) -> None:
        if st is not None and stat.S_ISREG(st.st_mode):
            kind.setdefault(st.st_ino, []).append(Present(path, kept, self._store.door.birth_ns(path), st))

    def _noted_by_head(self, began_ns: int) -> dict[int, tuple[int, int]]:
        """Objects that were other inodes when head was written than their records say, and of which nothing was
        recorded since. Head has no births: of the files that have had a number it means the youngest that is older than
        what head knows of it, or than the run, where a live run took head along."""
        births: dict[int, list[int]] = {}
        present = [each for kind in (self._there, self._kept) for some in kind.values() for each in some]
        for ino, born in (*self._copies, *((each.st.st_ino, each.born) for each in present)):
            births.setdefault(ino, []).append(born)
        here, found = self._store.state(self._store.head.index), {}
        for each in self._store.head.identities:
            entry = here.names.get(each.path)
            pif = self._state.pifs.get(entry.inode) if entry and entry.kind == "file" and each.ino else None
            if pif is None or here.pifs.get(pif.inode) != pif:
                continue
            before = each.ctime_ns or began_ns
            born = max((born for born in births.get(each.ino, ()) if born <= before), default=0)
            is_later = 0 < pif.btime_ns < born
            if 0 < born < NO_TIME:         # a generation, which has no order
                is_later = pif.btime_ns != 0 and pif.btime_ns not in births[each.ino]
            if pif.ino != each.ino or is_later:
                found[pif.inode] = each.ino, born or _NOBODY
        return found

    # -- as an area ------------------------------------------------------------------------------

    def pif(self, slot: int) -> SimpleNamespace:
        """object and mtime_ns of a file."""
        return self._pifs[slot]

    def find_pif(self, dev: int, ino: int, btime_ns: int = 0) -> int:
        ino, born = self._followed((ino, btime_ns))
        fit = [slot for slot in self._homes.get(ino, ())
               if not born or not self.files[slot].btime_ns or self.files[slot].btime_ns == born]
        same = [slot for slot in fit if self.files[slot].st.st_dev == dev]
        return next(iter(same or (fit if born or dev not in self._devices else ())), 0)

    def in_scope(self, path: bytes) -> bool:
        return scope.has(self._rules, path)

    def kept_name(self, slot: int) -> bytes:
        return self.files[slot].kept

    # -- finding ---------------------------------------------------------------------------------

    def kept_homes(self, there: State) -> list[KeptHome]:
        """Files without a name at an index whose backing file is in the store, whatever index knows them."""
        known: dict[bytes, PifEntry] = {}
        for index in self._store.history.indexes:
            if index:
                meta = self._store.meta(index)
                for pif in (*meta.initial_pifs, *meta.pifs):
                    kept = _fitting(self._kept, self._now(pif))
                    if kept:
                        known[kept.kept] = pif
        return [KeptHome(pif.inode, name) for name, pif in known.items() if not there.paths(pif.inode)]

    def _now(self, known: PifEntry | Record | Touch) -> tuple[int, int]:
        """Inode number and birth of a file that somebody knew, or of what backs it since."""
        at = self._followed(self.identity(known))
        if not isinstance(known, PifEntry) or _fitting(self._kept, at) or _fitting(self._there, at):
            return at
        for name in filter(None, (known.kept, b"%d" % known.inode)):   # the second: a restore has put it aside
            copy = self._store.layout.kept(name)
            st = lstat_or_none(self._store.door, copy)
            if st is not None and stat.S_ISREG(st.st_mode):
                return st.st_ino, self._store.door.birth_ns(copy)
        return at

    def identity(self, known: PifEntry | Record | Touch) -> tuple[int, int]:
        """Inode number and birth, before this run made a copy of it."""
        by_head = self._by_head.get(known.inode) if isinstance(known, PifEntry) else None
        return by_head or (known.ino, known.btime_ns)

    def _followed(self, at: tuple[int, int]) -> tuple[int, int]:
        passed = set[tuple[int, int]]()
        while at in self._copies and at not in passed and not _fitting(self._there, at):
            passed.add(at)
            at = self._copies[at]
        return at

    def slot_of(self, record: Record | Touch) -> int:
        """The file that a record of the log, or a note, speaks of."""
        ino, born = self._now(record)
        inode = next((inode for inode, known in reversed(self._by_ino.get(ino, []))
                      if not known or not born or known == born), 0)
        return self._slot(inode, ino, born, record.path)

    def slot_of_object(self, inode: int) -> int:
        pif = self._state.pifs[inode]
        return self._slot(inode, *self._now(pif), pif.filename)

    def slot_of_arrival(self, inode: int, path: bytes) -> int:
        """An object to which a restore has given this name again."""
        st = lstat_or_none(self._store.door, path)
        return self._slot(inode, st.st_ino, self._store.door.birth_ns(path), path) if st else 0

    def search(self, slot: int, known: PifEntry | Record | Touch, paths: list[bytes]) -> Found | None:
        """A file that went from all its paths, below the nearest folder of one that is there."""
        ino, born = self.identity(known)
        for path in paths:
            if self._not_here(path):
                continue
            top = os.path.dirname(path)
            while not os.path.isdir(top):
                top = os.path.dirname(top)
            for there, st in self._below(top).get(ino, ()):
                one = Present(there, b"", self._store.door.birth_ns(there), st)
                if one.fits(born):
                    return self._found(slot, self._pifs[slot].object, there, one)
        return None

    def _below(self, top: bytes) -> dict[int, list[tuple[bytes, os.stat_result]]]:
        """Regular files below a folder, by inode number: one walk, however many files are missing."""
        if top not in self._walked:
            found = self._walked[top] = {}
            for at, folders, names in self._store.door.walk(top):
                folders[:] = [each for each in folders if os.path.join(at, each) != self._store.layout.root
                              and not self._not_here(os.path.join(at, each))]
                for there in (os.path.join(at, name) for name in names):
                    st = lstat_or_none(self._store.door, there)
                    if st is not None and stat.S_ISREG(st.st_mode):
                        found.setdefault(st.st_ino, []).append((there, st))
        return self._walked[top]

    def _slot(self, inode: int, ino: int, btime_ns: int, path: bytes) -> int:
        key = (inode, ino, 0 if inode else btime_ns)
        if key in self._slots:
            return self._slots[key]
        slot = self._slots[key] = len(self._pifs)
        self._pifs.append(SimpleNamespace(object=inode, mtime_ns=0, flags=0, refs=0, root=0))
        there, kept = (_fitting(kind, (ino, btime_ns)) for kind in (self._there, self._kept))
        if there:
            self._found(slot, inode, there.path, there)
        elif kept:
            self._found(slot, inode, path, kept)
        return slot

    def _found(self, slot: int, inode: int, path: bytes, at: Present) -> Found:
        self.files[slot] = Found(inode, path, at.path, at.kept, at.born, at.st)
        self._homes.setdefault(at.st.st_ino, []).append(slot)
        return self.files[slot]


def _fitting(kind: dict[int, list[Present]], at: tuple[int, int]) -> Present | None:
    """What is there of this inode number and birth; another file may have either by now."""
    return next((each for each in kind.get(at[0], ()) if each.fits(at[1])), None)
