"""From an instant of the run area to the records of a checkpoint: what changed, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain

from metamori._area import lib
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area, Touch
from metamori.runtime.area.whereabouts import device
from metamori.runtime.checkpoint import outside
from metamori.runtime.checkpoint.cut import Cut, Found
from metamori.runtime.checkpoint.snapshot import examine
from metamori.store.format.records import (
    FitEntry,
    Meta,
    NameEntry,
    OffsetEntry,
    Offsets,
    PifEntry,
    UndoEntry,
)
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.store import Store
from metamori.tables.pif import Pif, later, nearest_ns
from metamori.tables.record import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from metamori.store.format.records import NameKind

    Mode = Literal["incremental", "single"]

Identity = tuple[int, int]


def kind_of(mode: int) -> NameKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "fifo" if stat.S_ISFIFO(mode) else "other"


GONE = 0                                   # no file's mode: of one that the run cannot find any more


class Fold:
    """The records of one cut. `index` is the new checkpoint's; nothing is written here but copies of mapped files."""

    def __init__(self, store: Store, area: Area, cut: Cut, index: int) -> None:
        self.store, self.area, self.cut, self.index = store, area, cut, index
        self.before = store.state(cut.parent)
        if not cut.complete().is_examined:
            examine(cut, area, self.before)
        if not area.head.flags & lib.MM_JOB:
            outside.replaced(cut, self.before)
        self.run = area.head.run
        self.in_job = bool(area.head.flags & lib.MM_JOB)
        self._known: dict[Identity, list[int]] | None = None   # the parent's files by identity, once somebody asks
        self._met: dict[Identity, list[int]] = {}   # likewise those of the interval; the last one has the number now
        self.pifs: dict[int, PifEntry] = {}
        self.initial_pifs: dict[int, PifEntry] = {}
        self.names: dict[bytes, NameEntry] = {}
        self.initial_names: dict[bytes, NameEntry] = {}
        self._new_folders: dict[bytes, list[bytes]] = {}   # what _new_around said of each: names are many, folders few
        self._order: dict[bytes, int] = {}     # of the notes, once somebody asks
        self.objects: dict[int, int] = {}     # PIF slot -> object
        self.offsets: list[OffsetEntry] = []
        self.bytes_added = cut.captured_bytes
        self.changed_beside: set[int] = set()   # slots of files that were not as known when the run came to them
        self._changed_outside: set[int] = set()    # likewise files that have none
        self.ends: list[tuple[int, int, int]] = []  # of files that are shorter in place than they have to be
        self._in_cut: dict[int, Identity] | None = None   # what the cut's slots are known as, once somebody asks
        self._folder_of: dict[int, bytes] | None = None   # the parent's, by number
        self._seen_at_head: set[int] | None = None   # files that head has noted
        self._at_head: dict[Identity, tuple[int, int]] = {}
        self._noted: dict[Identity, Touch] = {}   # the first note of a file: no earlier than its PIF
        for touch in cut.touches.values():
            if touch.mode:
                self._noted.setdefault((touch.dev, touch.ino), touch)

    def records(self, message: str, reason: str, process: int, mode: Mode) -> tuple[Meta, Offsets]:
        """Meta file and offset file."""
        meta, offsets = self.state(message, reason, process, mode)
        crcs = iter(self.store.buffers.checksums(
            self.run, [(entry.buffer_start, entry.buffer_end) for entry in offsets.entries if not entry.run]))
        entries = tuple(entry if entry.run else entry._replace(crc=next(crcs)) for entry in offsets.entries)
        return meta, replace(offsets, entries=entries)

    def state(self, message: str, reason: str, process: int, mode: Mode) -> tuple[Meta, Offsets]:
        """The same without checksums, for whoever only wants to know how things stand."""
        for pif in self.cut.pifs:
            self._file(pif, process)
        self._names()
        meta = Meta(
            self.index, self.cut.parent, self.cut.time_ns, message, reason, self.run, process, mode,
            bool(self.area.head.flags & lib.MM_ISOLATE),
            self.bytes_added, False, tuple(self.cut.processes),
            tuple(self.names.values()), tuple(self.initial_names.values()), tuple(self.pifs.values()),
            tuple(self.initial_pifs.values()), tuple(self._fits()), tuple(self.cut.inherited))
        return meta, Offsets(self.index, process, self.run, tuple(self.offsets))

    def undo_entries(self) -> dict[int, list[UndoEntry]]:
        """Pre-images of the interval, by the highest index that they serve."""
        entries: dict[int, list[UndoEntry]] = {}
        for each, entry in outside.saved(self.store, self.run, self.cut.preimages):
            inode = self.objects.get(each.slot) or self.area.pif(each.slot).object
            if inode:
                # the index of a checkpoint that was cut but never written may be this one: it knows what came after
                entries.setdefault(min(each.after_index, self.index - 1), []).append(entry._replace(inode=inode))
        lost = [*outside.cut_off(self.before, self.ends, chain.from_iterable(entries.values()))]
        if lost:                           # last of all: what was saved holds
            entries.setdefault(self.index - 1, []).extend(lost)
        return entries

    def given_up(self) -> list[UndoEntry]:
        """What the indexes so far have lost: somebody else changed these files before this run came to them."""
        changed = self._changed_outside | {self.objects[slot] for slot in self.changed_beside}
        return outside.whole(self.store, self.before, changed) if changed else []

    # -- files -----------------------------------------------------------------------------------

    def _knows(self, identity: Identity, inode: int) -> None:
        met = self._met.setdefault(identity, [])
        if inode not in met[-1:]:
            met.append(inode)

    def _have_had(self, identity: Identity) -> Iterator[int]:
        """Files that have, or had, an inode number; the last one first, and those that have left after all others: what
        a state says of them may have come into it later than what it says of one that is there."""
        yield from reversed(self._met.get(identity, ()))
        if self._known is None:
            self._known = {}
            for inode, pif in self.before.pifs.items():
                had = self._known.setdefault((device(pif.dev), pif.ino), [])
                had.insert(0 if pif.was_deleted and not pif.kept else len(had), inode)
        yield from reversed(self._known.get(identity, ()))

    def _has_birth(self, inode: int, btime_ns: int) -> bool:
        pif = self.pifs.get(inode) or self.before.pifs.get(inode) or self.initial_pifs.get(inode)
        return not (pif and btime_ns and pif.btime_ns and pif.btime_ns != btime_ns)

    def _was_another(self, inode: int, identity: Identity) -> bool:
        """Whether a file was another one when the run began: a restore had made it anew, and this is what had been it,
        by a name out of the scope, or a new file with its old number. Its birth may be the same: the clock has steps.
        Of a file that the interval has spoken of it is known what it was."""
        if inode in self.pifs:
            return inode not in self._met.get(identity, ())
        then = self.store.state(self.store.head.index)
        if self._seen_at_head is None:
            head = self.store.head
            named = ((each, then.names.get(each.path)) for each in head.identities if each.ino)
            self._seen_at_head = {entry.inode for _, entry in named if entry is not None and entry.kind == "file"}
            self._seen_at_head.update(each.inode for each in head.kept)
        return (inode in self._seen_at_head and self.before.pifs.get(inode) == then.pifs.get(inode)
                and self.store.find_object(*identity) != inode)

    def _has_left(self, inode: int) -> bool:
        """The scope, for good: if it has a name again, its bytes are not those that an index knows."""
        pif = self.pifs.get(inode) or self.before.pifs.get(inode)
        return bool(pif and pif.was_deleted and not pif.kept)

    def _object(self, identity: Identity, btime_ns: int, fresh: bool) -> tuple[int, bool]:
        """The store's number of a file, and whether the store has not seen it before."""
        inode = 0
        if not fresh:
            inode = next((each for each in self._have_had(identity) if self._has_birth(each, btime_ns)
                          and not self._was_another(each, identity)), 0)
            inode = inode or self.store.find_object(*identity, btime_ns)
        if inode:
            return inode, inode not in self.before.pifs
        inode = self.area.head.next_object    # of the run area: a restore gives numbers that no record has yet
        self.area.head.next_object += 1
        self._knows(identity, inode)
        return inode, True

    def _present(self, identity: Identity, btime_ns: int, fresh: bool = False) -> tuple[int, bool]:
        """The same of a file that is there now. One that has left the scope, or that a restore has made anew since, is
        not it: out there was a further name of what it had been."""
        inode, new = self._object(identity, btime_ns, fresh)
        if not fresh and (self._has_left(inode) or self._is_elsewhere(inode, identity)):
            return self._object(identity, btime_ns, True)
        return inode, new

    def _stood(self, identity: Identity, btime_ns: int) -> tuple[int, bool]:
        """The same of a file that was there before the run. One that had left the scope by then is not it."""
        inode, new = self._object(identity, btime_ns, False)
        then = self.store.state(self.store.head.index).pifs.get(inode)
        if then is not None and then.was_deleted and not then.kept:
            return self._object(identity, btime_ns, True)
        return inode, new

    def _is_elsewhere(self, inode: int, identity: Identity) -> bool:
        """Whether the run knows another file as this one."""
        if self._in_cut is None:
            self._in_cut = {pif.object: (pif.dev, pif.ino) for pif in self.cut.pifs if pif.object}
        if inode in self._folders():
            return self._is_another_folder(self._folders()[inode], identity)
        known = self.before.pifs.get(inode)
        slot = self.area.find_pif(device(known.dev), known.ino, known.btime_ns) if known else 0
        if slot and self.area.pif(slot).object == inode:
            return (self.area.pif(slot).dev, self.area.pif(slot).ino) != identity
        return self._in_cut.get(inode, identity) != identity

    def _folders(self) -> dict[int, bytes]:
        if self._folder_of is None:
            self._folder_of = {each.inode: path for path, each in self.before.names.items() if each.kind == "dir"}
        return self._folder_of

    def _is_another_folder(self, path: bytes, identity: Identity) -> bool:
        """Whether another folder stands, or stood as the interval began, where the parent has this number's."""
        touch = self.cut.touches.get(path)
        if touch is not None:
            return stat.S_ISDIR(touch.mode) and (touch.dev, touch.ino) != identity
        st = lstat_or_none(self.store.door, path)
        return st is not None and stat.S_ISDIR(st.st_mode) and (st.st_dev, st.st_ino) != identity

    def _file(self, pif: Pif, process: int) -> None:
        inode, new = (pif.object, pif.object not in self.before.pifs) if pif.object else self._present(
            (pif.dev, pif.ino), pif.btime_ns, pif.created)
        self.objects[pif.slot] = inode
        self._knows((pif.dev, pif.ino), inode)
        known = self.before.pifs.get(inode)
        # in a job others change our files as they please, and save what was there themselves
        if known and pif.preexisting and not self.in_job and not (
                self._is_as_seen(pif, known) if pif.object else self._is_as_known(pif, known)):
            self.changed_beside.add(pif.slot)      # what the parent has in buffers is not there any more
        else:
            self.area.pif(pif.slot).object = inode
        st = pif.held or pif.st
        mode, uid, gid = (st.st_mode, st.st_uid, st.st_gid) if st else pif.old[2:]
        at_home = st and (st.st_dev, st.st_ino) == (pif.dev, pif.ino)
        a_copy = pif.flags & lib.MM_COPIED and not at_home
        if a_copy:
            mode, uid, gid = (known.mode, known.uid, known.gid) if known else pif.old[2:]
        if not st and self.in_job and not pif.flags & lib.MM_NAMELESS:
            mode = GONE                    # another run of the job has renamed or removed it, and knows more
        nameless = bool(pif.flags & lib.MM_NAMELESS)
        entry = PifEntry(
            inode, pif.dev, pif.ino, pif.btime_ns, pif.refs, pif.path,
            known.was_created if known else self.index if not pif.preexisting else 0,
            0 if not nameless else known.was_deleted if known and known.was_deleted else self.index,
            pif.size, pif.home_limit, 0 if pif.slot in self.changed_beside else pif.cut, mode, uid, gid, pif.mtime_ns,
            self.area.kept_name(pif.slot) if pif.flags & lib.MM_KEPT else b"")
        self.pifs[inode] = entry
        if known and pif.captured is None and pif.slot not in self.changed_beside:
            self._in_place(pif, inode, process)
        # one that a job's run has not found, and meets again, may be another than what is assumed of it (job/fold.py)
        again = self.in_job and known and known.mode == GONE and self._note_of(pif)
        if (new or again) and pif.preexisting:
            size, mtime_ns, old_mode, old_uid, old_gid = self._old(pif)
            self.initial_pifs[inode] = replace(
                entry, size=size, mtime_ns=mtime_ns, mode=old_mode, uid=old_uid, gid=old_gid, count=0, was_created=0,
                was_deleted=0, home_limit=NO_LIMIT, cut=size, kept=b"")
        was = self.initial_pifs.get(inode) or known
        if was and st and at_home and not self.in_job and pif.slot not in self.changed_beside:
            isolated = self.area.head.flags & (lib.MM_ISOLATE | lib.MM_SINGLE) == lib.MM_ISOLATE
            needed = outside.needed(was, isolated, pif.preexisting, pif.flags, pif.old[0])
            if st.st_size < needed:
                self.ends.append((inode, st.st_size, needed))
        if pif.captured or pif.ranges:
            self._changed(pif, inode, process)

    def _in_place(self, pif: Pif, inode: int, process: int) -> None:
        """What may be written over in its place is no more what the parent has in a buffer, of an earlier run, say: its
        map ends there, and what of the rest is still true is said again, unsigned: who said it first has signed it."""
        saved = self.cut.in_place.get(pif.slot, ())
        old = self.before.maps.get(inode) if saved else None
        first = min((aml.start for start, end in saved for aml in old.find(start, end)), default=None) if old else None
        if old is None or first is None:
            return
        left = old.copy()
        left.cut(pif.cut)
        for start, end in saved:
            left.remove(start, end)
        self.pifs[inode] = replace(self.pifs[inode], cut=min(first, pif.cut))
        self.offsets.extend(
            OffsetEntry(inode, process, aml.start, aml.end, aml.offset, aml.offset + aml.end - aml.start, 0, aml.run)
            for aml in left.find(first, NO_LIMIT))

    def _is_as_known(self, pif: Pif, known: PifEntry) -> bool:
        """Whether a file that the run has just come to had the bytes that the indexes count on: whether size and time
        were as recorded, or as head noted them."""
        return self._is_known(known, {pif.old[:2], self._old(pif)[:2]}, (pif.dev, pif.ino))

    def _is_known(self, known: PifEntry, was: set[tuple[int, int]], identity: Identity) -> bool:
        if (known.size, known.mtime_ns) in was:
            return True
        if not self._at_head:
            self._at_head = {(each.dev, each.ino): (each.size, each.mtime_ns) for each in self.store.head.identities}
        return self._at_head.get(identity) in was

    def _is_as_seen(self, pif: Pif, known: PifEntry) -> bool:
        """Whether one that had no name the parent knew, nor a link in the store, is as the parent assumed it to be: it
        had left the scope by a name, where nobody could look at it."""
        if known.kept or known.was_deleted or self.before.paths(known.inode):
            return True
        return (noted := self._note_of(pif)) is None or outside.is_as_noted(pif, known, noted)

    def _note_of(self, pif: Pif) -> Touch | None:
        """Of this file, not of one that had its inode number before."""
        return self._note_at((pif.dev, pif.ino), pif.btime_ns)

    def _note_at(self, identity: Identity, btime_ns: int) -> Touch | None:
        noted = self._noted.get(identity)
        return noted if noted and not (btime_ns and noted.btime_ns and noted.btime_ns != btime_ns) else None

    def _old(self, pif: Pif) -> tuple[int, int, int, int, int]:
        """Size, time, mode and owner before the run. A file that was only chmodded has no PIF yet, but a note."""
        noted = self._note_of(pif)
        if noted is None:
            return pif.old
        size = noted.size if self.in_job else pif.old[0]   # of one instant: another run may have written in between
        return size, noted.mtime_ns, noted.mode, noted.uid, noted.gid

    def _changed(self, pif: Pif, inode: int, process: int) -> None:
        """The AMLs of the interval. What was captured is in `bytes_added` since the cut."""
        redirected = pif.redirected(self.run, BLOCK)
        self.bytes_added += redirected.nbytes
        self.offsets.extend(
            OffsetEntry(inode, process, aml.start, aml.end, aml.offset, aml.offset + aml.end - aml.start)
            for aml in pif.with_captured(redirected))

    # -- names -----------------------------------------------------------------------------------

    def _names(self) -> None:
        touched = self.cut.touches
        if not self.in_job:
            outside.moved(self.cut, self.before, self.pifs.values())
        for path, found in self.cut.examined.items():
            entry = self._name(path, found)
            if path not in self.before.names:
                self.initial_names[path] = self._initial(path, touched.get(path), entry)
            before = self.before.names.get(path, self.initial_names.get(path))
            if self.in_job or before != entry or self.before.is_unplaced(path):
                self.names[path] = entry
        self._other_names()

    def _other_names(self) -> None:
        """Extended attributes are the file's: all its names have those that one of them, or a descriptor, was given."""
        given = {entry.inode: entry.xattrs for entry in self.names.values() if entry.kind == "file"}
        for inode, have in given.items():
            for path in self.before.paths(inode):
                old = self.before.names[path]
                if path not in self.names and path not in self.cut.found and have != old.xattrs:
                    self.names[path] = replace(old, xattrs=have)

    def _name(self, path: bytes, found: Found) -> NameEntry:
        st = found.st
        if st is None:
            return NameEntry(path, "absent")
        kind = kind_of(st.st_mode)
        inode, mtime_ns = 0, st.st_mtime_ns
        if kind in ("file", "dir"):
            slot = found.slot
            inode = self.objects.get(slot, 0) or (self.area.pif(slot).object if slot else 0)
            if not inode:
                inode, born = self._untouched(path, st)
                if kind == "file" and not (slot or self.in_job):
                    self._not_as_known(inode, st, born)
                if slot:                   # noted before a call that then did not change it
                    self.objects[slot] = self.area.pif(slot).object = inode
            if kind == "file":
                if self.in_job:
                    self._as_it_is(inode, path, st)
                mtime_ns = self._attributes(inode, slot, st)
        return NameEntry(
            path, kind, inode, st.st_mode, st.st_uid, st.st_gid, mtime_ns,
            found.target, found.xattrs)

    def _attributes(self, inode: int, slot: int, st: os.stat_result) -> int:
        """Mode, owner and time of a file whose bytes were not touched may have changed; its time of change."""
        if inode not in self.pifs and inode in self.before.pifs:
            old = self.before.pifs[inode]
            mtime_ns = later(self.area.pif(slot).mtime_ns if slot else 0, st.st_mtime_ns)
            new = replace(old, mode=st.st_mode, uid=st.st_uid, gid=st.st_gid, mtime_ns=mtime_ns, cut=old.size)
            if new != replace(old, cut=old.size):
                self.pifs[inode] = new
                self._knows((st.st_dev, st.st_ino), inode)
            return mtime_ns
        pif = self.pifs.get(inode)
        return pif.mtime_ns if pif else st.st_mtime_ns

    def _as_it_is(self, inode: int, path: bytes, st: os.stat_result) -> None:
        """Another run of the job may have written it, and not know its new name."""
        old = self.pifs.get(inode) or self.before.pifs.get(inode)
        if old is None:
            return
        if inode not in self.pifs or old.mode == GONE:
            self._knows((st.st_dev, st.st_ino), inode)
            self.pifs[inode] = replace(old, size=st.st_size, mode=st.st_mode, uid=st.st_uid, gid=st.st_gid, cut=0,
                                       mtime_ns=st.st_mtime_ns, filename=path, was_deleted=0, kept=b"")

    def _untouched(self, path: bytes, st: os.stat_result) -> tuple[int, int]:
        """A file (or folder) that has a tracked name, but whose bytes nobody touched: as it is, and as it was. Its
        number, and its birth, or 0."""
        born = self.store.door.birth_ns(path)      # a file that went may have had the same number
        now = lstat_or_none(self.store.door, path)
        if now is None or (now.st_dev, now.st_ino) != (st.st_dev, st.st_ino) or born > st.st_ctime_ns:
            born = 0                       # the program has gone on: it is, or may be, another one's
        inode, new = self._present((st.st_dev, st.st_ino), born)
        if new and inode not in self.pifs:
            size = st.st_size if stat.S_ISREG(st.st_mode) else 0
            entry = PifEntry(inode, st.st_dev, st.st_ino, born, 0, path, 0, 0, size, NO_LIMIT, size, st.st_mode,
                             st.st_uid, st.st_gid, st.st_mtime_ns, b"")
            self.pifs[inode] = entry
            noted = self._note_at((st.st_dev, st.st_ino), born)
            self.initial_pifs[inode] = entry if noted is None else replace(
                entry, size=noted.size if self.in_job and stat.S_ISREG(noted.mode) else size,
                mtime_ns=noted.mtime_ns, mode=noted.mode, uid=noted.uid, gid=noted.gid)
        return inode, born

    def _not_as_known(self, inode: int, st: os.stat_result, born: int) -> None:
        """One of which the run has used a name only: whether it was not as known by then, or has another size now."""
        known, noted = self.before.pifs.get(inode), self._note_at((st.st_dev, st.st_ino), born)
        if known is None or inode in self.pifs or not self.before.paths(inode):
            return
        was = (noted.size, noted.mtime_ns) if noted else (st.st_size, st.st_mtime_ns)
        if st.st_size != was[0] or not self._is_known(known, {(was[0], nearest_ns(was[1]))}, (st.st_dev, st.st_ino)):
            self._changed_outside.add(inode)
            self._knows((st.st_dev, st.st_ino), inode)
            self.pifs[inode] = replace(known, size=st.st_size, mode=st.st_mode, uid=st.st_uid, gid=st.st_gid,
                                       mtime_ns=nearest_ns(st.st_mtime_ns), home_limit=NO_LIMIT, cut=0)

    def _in_new_folder(self, path: bytes, touch: Touch | None) -> bool:
        """Whether a folder around it was none before: then nothing in it was there, however it came there. What was
        noted before that folder was there, though: somebody outside of this run took the one around it away."""
        folder = os.path.dirname(path)
        if folder not in self._new_folders:
            self._new_folders[folder] = self._new_around(folder)
        new = self._new_folders[folder]
        if not new or touch is None or not touch.mode:
            return bool(new)
        self._order = self._order or {path: at for at, path in enumerate(self.cut.touches)}
        return any(self._order[each] < self._order[path] for each in new)

    def _new_around(self, folder: bytes) -> list[bytes]:
        """Of it and the folders around it, those that were none when they were noted."""
        found = []
        while len(folder) > 1:
            touch = self.cut.touches.get(folder)
            if touch is not None and not stat.S_ISDIR(touch.mode):
                found.append(folder)
            folder = os.path.dirname(folder)
        return found

    def _in_exchanged_folder(self, path: bytes) -> bool:
        """Whether a folder around it is another one than was there before."""
        folder = os.path.dirname(path)
        while len(folder) > 1:
            touch, found = self.cut.touches.get(folder), self.cut.found.get(folder)
            if touch is not None and found is not None and found.st is not None:
                return (touch.dev, touch.ino) != (found.st.st_dev, found.st.st_ino)
            folder = os.path.dirname(folder)
        return False

    def _initial(self, path: bytes, touch: Touch | None, now: NameEntry) -> NameEntry:
        """What stood at a path before the run."""
        if path in self.cut.came_along or self._in_new_folder(path, touch):
            return NameEntry(path, "absent")
        if touch is None:                  # never noted: it changed only in its bytes
            pif = self.initial_pifs.get(now.inode)
            if pif is not None and now.kind == "file":
                return replace(now, mode=pif.mode, uid=pif.uid, gid=pif.gid, mtime_ns=pif.mtime_ns)
            stays = now.kind == "dir" and not self._in_exchanged_folder(path)
            return now if stays else NameEntry(path, "absent")
        if not touch.mode:
            return NameEntry(path, "absent")
        kind = kind_of(touch.mode)
        inode = 0
        if kind in ("file", "dir"):
            slot = self.area.find_pif(touch.dev, touch.ino, touch.btime_ns) if kind == "file" else 0
            inode = self.objects.get(slot, 0) or (self.area.pif(slot).object if slot else 0)
            if not inode:
                inode, new = self._stood((touch.dev, touch.ino), touch.btime_ns)
                if new and inode not in self.initial_pifs:
                    size = touch.size if kind == "file" else 0
                    self.initial_pifs[inode] = PifEntry(
                        inode, touch.dev, touch.ino, touch.btime_ns, 0, path, 0, 0, size, NO_LIMIT, size, touch.mode,
                        touch.uid, touch.gid, touch.mtime_ns, b"")
        is_device = stat.S_ISCHR(touch.mode) or stat.S_ISBLK(touch.mode)
        return NameEntry(path, kind, inode, touch.mode, touch.uid, touch.gid, touch.mtime_ns,
                         b"%d" % touch.size if is_device else touch.target, touch.xattrs)

    # -- descriptors -----------------------------------------------------------------------------

    def _fits(self) -> list[FitEntry]:
        found = []
        for fit in self.cut.fits:
            inode = (self.objects.get(fit.slot, 0) or self.area.pif(fit.slot).object) if fit.slot else 0
            found.append(replace(fit.entry, inode=inode))
        return found
