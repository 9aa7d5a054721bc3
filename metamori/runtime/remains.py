"""The files that a power cut left, found again by what they are: as the fold of a checkpoint sees a run area.

A file is known by inode number and birth time; device numbers may be others after a start of the machine. Where the
store is on another filesystem, a file that lost its name is a copy, another inode: the log says which one
(`Base.moved`), or the last index that saw it knows its name in the store.
"""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace

from metamori.runtime.ahead import Record
from metamori.runtime.area import Touch
from metamori.runtime.base import Base
from metamori.store.head import lstat_or_none
from metamori.store.records import KeptHome, PifEntry
from metamori.store.state import State
from metamori.store.store import Store
from metamori.tables.record import record


@record
class Found:
    """A file that is there. home: where its bytes are; kept: its name in the store, of one that has no other; object 0:
    no index knows it."""

    object: int
    path: bytes
    home: bytes
    kept: bytes
    btime_ns: int
    st: os.stat_result


class Remains:
    """`files` by slot; a slot is one file, still there or not. The rest is what a fold asks of an area."""

    def __init__(self, store: Store, base: Base, state: State, looked: dict[bytes, os.stat_result | None],
                 arrived: dict[int, bytes]) -> None:
        self._store, self._state = store, state
        self.head = SimpleNamespace(run=base.run, flags=base.flags, next_object=store.next_object())
        self.files: dict[int, Found] = {}
        self._pifs: list[SimpleNamespace] = [SimpleNamespace()]
        self._slots: dict[tuple[int, int], int] = {}           # (object, or 0; inode number)
        self._there: dict[int, tuple[bytes, os.stat_result]] = {}
        for path, st in looked.items():
            if st is not None and stat.S_ISREG(st.st_mode):
                self._there.setdefault(st.st_ino, (path, st))
        self._kept: dict[int, tuple[bytes, os.stat_result]] = {}
        for name in store.door.listdir(store.layout.kept_folder):
            st = lstat_or_none(store.door, store.layout.kept(name))
            if st is not None and stat.S_ISREG(st.st_mode):
                self._kept.setdefault(st.st_ino, (name, st))
        self._copies = {(each.ino, each.btime_ns): each.copy()[1:] for each in base.moved}
        for inode, pif in state.pifs.items():
            if inode in arrived and (st := lstat_or_none(store.door, arrived[inode])):
                self._copies[pif.ino, pif.btime_ns] = st.st_ino, store.door.birth_ns(arrived[inode])
        self._by_ino: dict[int, list[tuple[int, int]]] = {}    # (object, born)
        for inode, pif in state.pifs.items():
            ino, born = self._now(pif)
            self._by_ino.setdefault(ino, []).append((inode, born))

    # -- as an area ------------------------------------------------------------------------------

    def pif(self, slot: int) -> SimpleNamespace:
        """object and mtime_ns of a file."""
        return self._pifs[slot]

    def find_pif(self, _dev: int, ino: int, btime_ns: int = 0) -> int:
        ino, _ = self._followed((ino, btime_ns))
        return next((slot for slot, found in self.files.items() if found.st.st_ino == ino), 0)

    def kept_name(self, slot: int) -> bytes:
        return self.files[slot].kept

    # -- finding ---------------------------------------------------------------------------------

    def kept_homes(self, there: State) -> list[KeptHome]:
        """Files without a name at an index whose home is in the store, whatever index knows them."""
        known: dict[int, tuple[PifEntry, int]] = {}
        for index in self._store.history.indexes:
            if index:
                meta = self._store.meta(index)
                for pif in (*meta.initial_pifs, *meta.pifs):
                    ino, born = self._now(pif)
                    if ino in self._kept:
                        known[ino] = pif, born
        found = []
        for ino, (pif, btime_ns) in known.items():
            born = self._store.door.birth_ns(self._store.layout.kept(self._kept[ino][0]))
            if not there.paths(pif.inode) and (not born or not btime_ns or born == btime_ns):
                found.append(KeptHome(pif.inode, self._kept[ino][0]))
        return found

    def _now(self, known: PifEntry | Record | Touch) -> tuple[int, int]:
        """Inode number and birth of a file that somebody knew, or of what is its home since."""
        at = self._followed((known.ino, known.btime_ns))
        if not isinstance(known, PifEntry) or at[0] in self._kept or self._is_there(at):
            return at
        for name in filter(None, (known.kept, b"%d" % known.inode)):   # the second: a restore has put it aside
            copy = self._store.layout.kept(name)
            st = lstat_or_none(self._store.door, copy)
            if st is not None and stat.S_ISREG(st.st_mode):
                return st.st_ino, self._store.door.birth_ns(copy)
        return at

    def _followed(self, at: tuple[int, int]) -> tuple[int, int]:
        passed = set[tuple[int, int]]()
        while at in self._copies and at not in passed and not self._is_there(at):
            passed.add(at)
            at = self._copies[at]
        return at

    def _is_there(self, at: tuple[int, int]) -> bool:
        if at[0] not in self._there:
            return False
        born = self._store.door.birth_ns(self._there[at[0]][0])
        return not born or not at[1] or born == at[1]

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

    def search(self, slot: int, known: PifEntry | Record, paths: list[bytes]) -> Found | None:
        """A file that went from all its paths, below the nearest folder of one that is there."""
        for path in paths:
            top = os.path.dirname(path)
            while not os.path.isdir(top):
                top = os.path.dirname(top)
            for at, folders, names in os.walk(top):
                folders[:] = [each for each in folders if os.path.join(at, each) != self._store.layout.root]
                for name in names:
                    there = os.path.join(at, name)
                    st = lstat_or_none(self._store.door, there)
                    if st is not None and st.st_ino == known.ino and stat.S_ISREG(st.st_mode):
                        return self._found(slot, self._pifs[slot].object, known.btime_ns, there, there, b"", st)
        return None

    def _slot(self, inode: int, ino: int, btime_ns: int, path: bytes) -> int:
        key = (inode, ino)
        if key in self._slots:
            return self._slots[key]
        slot = self._slots[key] = len(self._pifs)
        self._pifs.append(SimpleNamespace(object=inode, mtime_ns=0))
        if ino in self._there:
            there, st = self._there[ino]
            self._found(slot, inode, btime_ns, there, there, b"", st)
        elif ino in self._kept:
            name, st = self._kept[ino]
            self._found(slot, inode, btime_ns, path, self._store.layout.kept(name), name, st)
        return slot

    def _found(self, slot: int, inode: int, btime_ns: int, path: bytes, home: bytes, kept: bytes,
               st: os.stat_result) -> Found | None:
        born = self._store.door.birth_ns(home)
        if btime_ns and born and born != btime_ns:
            return None                    # another file has its number by now
        self.files[slot] = Found(inode, path, home, kept, born, st)
        return self.files[slot]
