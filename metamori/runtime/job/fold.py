"""One record of the job from those that its runs have written: what a checkpoint of all nodes is (docs/adr/0051).

Each run has numbered files and processes by itself; a file is the same one by device, inode and birth. Nothing of a
job's files is redirected: their bytes are in place, and what was overwritten is in the runs' buffers, which the job's
store has under the same numbers. Where several runs saved the same bytes, or noted the same name, the earliest counts:
it looked before anybody had changed them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from operator import itemgetter
from typing import TypeVar

from metamori.runtime.checkpoint.delta import GONE
from metamori.runtime.job import clock, folder
from metamori.runtime.job.order import Judge, Noted, Order, Saved, earliest_first
from metamori.runtime.job.part import Part, Said
from metamori.store.format.records import (
    NO_LIMIT,
    Meta,
    NameEntry,
    OffsetEntry,
    Offsets,
    PifEntry,
    UndoEntry,
)
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.tables.record import replace

Identity = tuple[int, int]
Entry = TypeVar("Entry", NameEntry, PifEntry)
Rows = list[tuple[Noted | None, Entry]]    # what runs have seen first, and when


class JobFold:
    """Of these parts, as a child of `parent` of the job's store. `said`: what a person should hear."""

    def __init__(self, store: Store, parts: Iterable[Part], parent: int, run: int, mapped: folder.Mapped,
                 live: Iterable[bytes], processes: dict[tuple[bytes, int], int] | None = None,
                 order: Order | None = None, own: Store | None = None,
                 note: Callable[[int, folder.Mapped], None] | None = None) -> None:
        """mapped: after the checkpoints so far. live: runs that are, also without a part. own: of a machine's own
        disk; `store` is the disk's then, and this the job's. note: before the record is there, what is mapped after it.
        """
        self.store, self.parent, self.run, self.own = store, parent, run, own
        self.index = store.newest + 1
        self.state = store.state(parent)
        self.dev = store.door.lstat(store.layout.format).st_dev
        # who has ended, or was killed, has looked at its files at another time: the last look at each counts (`looked`)
        parts = list(parts)
        by_place = all([part.has_places() for part in parts])
        parts.sort(key=lambda each: (each.live, each.when(each.upto, by_place)))
        told = [(part.place.boot, clock.read(store.door, folder.clock(store, part.name))) for part in parts]
        times = clock.timelines(told)
        self.of = [Said(part, times[part.place.boot], own is not None, by_place) for part in parts]
        if len(times) > 1:                 # one machine's clock says it
            lines = (order or Order(store)).lines(set().union(*(said.stamps() for said in self.of)))
            for said in self.of:
                said.in_order(lines)
        present = {*live, *(part.name for part in parts)}
        self.mapped = {inode: names & present for inode, names in mapped.items()}
        self._note = note
        self.said: list[str] = []
        self._known: dict[Identity, list[int]] = {}
        for inode, pif in self.state.pifs.items():
            self._known.setdefault((pif.dev, pif.ino), []).append(inode)
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._births: dict[int, int] = {}
        self._processes = {} if processes is None else processes
        self._lost: set[int] = set()       # for the checkpoints so far
        self._lost_here: set[int] = set()  # for this one too
        self._unseen = folder.unseen(store) if own is None else {}
        self._gone: dict[int, Part] = {}   # files that a run has used and not found, and nobody since

    # -- numbers ---------------------------------------------------------------------------------

    def _dev(self, said: Said, dev: int) -> int:
        if self.own is not None:
            return dev
        here = said.part.store.door.lstat(said.part.store.layout.format).st_dev      # who has completed it is here
        return self.dev if dev in (said.part.place.dev, here) else dev

    def number(self, said: Said, inode: int) -> int:
        """The job's number of a run's file."""
        key = (said.part.name, inode)
        if not inode or key in self._numbers:
            return self._numbers.get(key, 0)
        pif = said.pifs.get(inode) or next(each for each in said.meta.initial_pifs if each.inode == inode)
        identity = (self._dev(said, pif.dev), pif.ino)
        found = next((each for each in reversed(self._known.get(identity, ())) if self._is(each, pif)), 0)
        found = found or self.store.find_object(*identity, pif.btime_ns) or self.store.next_object()
        self._known.setdefault(identity, []).append(found)
        self._births.setdefault(found, pif.btime_ns)
        self._numbers[key] = found
        return found

    def _is(self, inode: int, pif: PifEntry) -> bool:
        known = self.state.pifs.get(inode)
        birth = known.btime_ns if known else self._births.get(inode, 0)
        if pif.btime_ns and birth:
            return pif.btime_ns == birth
        return not (known and known.was_deleted and not known.kept)

    def process(self, said: Said, number: int) -> int:
        key = (said.part.name, number)
        if number and key not in self._processes:
            self._processes[key] = self.store.next_process()
        return self._processes.get(key, 0)

    # -- the record ------------------------------------------------------------------------------

    def commit(self, message: str, reason: str, durable: bool, time_ns: int,
               require_place: Callable[[], None] = lambda: None) -> int:
        """The index; it exists with the last rename. Of a disk on which nothing has changed: the one that it is at.
        require_place: raises where another counts by now; asked when all that takes long is done."""
        if self.own is None:
            self.said += [f"{os.fsdecode(path)}: nodes may share it or not; what is there is not part of the job's "
                          "checkpoints" for path in sorted(set().union(*(said.nowhere for said in self.of)))]
        names, pifs = self._names(), self._pifs()
        self._moved_along(names)
        names, pifs = self._deleted(names, pifs)
        for inode, part in self._gone.items():
            self._look_for(inode, part, names, pifs)
        initial_pifs = self._initial_pifs(pifs)
        initial_names = self._initial_names(names, initial_pifs)
        undos = self._undos({*pifs, *initial_pifs})
        self._give_up_changed(initial_pifs)
        self._give_up_unseen(pifs)
        offsets = self._offsets(pifs)
        self._kept(pifs)
        if self.own is not None:
            if not (names or pifs or undos or initial_names or initial_pifs):
                return self.parent
            undos, offsets = self._brought(undos, offsets, durable)
        process = self.store.next_process()
        of = [said for said in self.of if said.part.live] or self.of
        meta = Meta(
            self.index, self.parent, time_ns, message, reason, self.run, process,
            bytes_added=sum(said.bytes_added for said in self.of), head_moved=False,
            processes=tuple(replace(each, process=self.process(said, each.process))
                            for said in of for each in said.meta.processes),
            names=tuple(names.values()), initial_names=tuple(initial_names.values()), pifs=tuple(pifs.values()),
            initial_pifs=tuple(initial_pifs.values()),
            fits=tuple(replace(fit, process=self.process(said, fit.process), inode=self.number(said, fit.inode))
                       for said in of for fit in said.meta.fits if said.part.live),
            inherited=tuple(replace(each, process=self.process(said, each.process))
                            for said in of for each in said.meta.inherited),
            launch=next((said.meta.launch for said in of if said.meta.launch), ()))
        require_place()
        if self.own is None:
            upto, _ = folder.folded(self.store)
            upto |= {said.part.name: said.part.upto for said in self.of}
            folder.note_folded(self.store, self.index, upto, self._mapped_after(), durable)
        elif self._note:
            self._note(self.index, self._mapped_after())
        if undos or self._lost:
            self.store.add_undo((*_nothing_of(self._lost), *undos), self.store.newest, durable)
        if self._lost_here:
            self.store.add_undo(_nothing_of(self._lost_here), self.index, durable)
        self.store.commit_checkpoint(meta, Offsets(self.index, process, self.run, tuple(offsets)), durable)
        if self.own is None:
            folder.forget_folded(self.store, self.index)
            folder.forget_unseen(self.store, self._unseen)
        return self.index

    def _brought(self, undos: list[UndoEntry], offsets: list[OffsetEntry], durable: bool
                 ) -> tuple[list[UndoEntry], list[OffsetEntry]]:
        """The bytes of a disk's records into its store's own buffer: a prune of the job's store would not know of
        them."""
        assert self.own is not None
        ranges: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        for entry in undos:
            ranges.setdefault(entry.run, {})[entry.buffer_start, entry.buffer_start + entry.end - entry.start] = (0, 0)
        for each in offsets:
            ranges.setdefault(each.run, {})[each.buffer_start, each.buffer_end] = (0, 0)
        ranges.pop(0, None)
        for run, wanted in ranges.items():
            fd = self.own.door.open(self._buffer(run), os.O_RDONLY)
            try:
                wanted |= zip(wanted, self.store.buffers.save(self.run, fd, list(wanted)), strict=True)
            finally:
                self.own.door.close(fd)
        if ranges and durable:
            self.store.buffers.sync(self.run)
        for at, entry in enumerate(undos):
            if entry.run:
                place, crc = ranges[entry.run][entry.buffer_start, entry.buffer_start + entry.end - entry.start]
                undos[at] = entry._replace(run=self.run, buffer_start=place, crc=crc)
        for at, each in enumerate(offsets):
            place, crc = ranges[each.run][each.buffer_start, each.buffer_end]
            offsets[at] = each._replace(run=self.run, buffer_start=place,
                                        buffer_end=place + each.buffer_end - each.buffer_start, crc=crc)
        return undos, offsets

    def _buffer(self, run: int) -> bytes:
        """Of one of the parts, by its number; the job's store may have lost its name for it."""
        return next(path for said in self.of
                    if commit.exists(self.store.door, path := said.part.store.layout.buffer(run)))

    def _pifs(self) -> dict[int, PifEntry]:
        """The later of two counts, unless it knows less: a name of its own that another run took away."""
        found: dict[int, PifEntry] = {}
        looks = [(said.looked(pif.inode), said, pif) for said in self.of for pif in said.meta.pifs]
        for _, said, pif in sorted(looks, key=itemgetter(0)):
            inode = self.number(said, pif.inode)
            if pif.mode == GONE:
                self._gone[inode] = said.part
                continue
            self._gone.pop(inode, None)
            known, other = self.state.pifs.get(inode), found.get(inode)
            created = inode not in self.state.pifs and (
                pif.inode in said.created or bool(other and other.was_created))
            new = replace(
                pif, inode=inode, dev=self._dev(said, pif.dev),
                was_created=known.was_created if known else self.index if created else 0,
                was_deleted=self.index if pif.was_deleted else 0,
                cut=pif.cut if said.part.name in self.mapped.get(inode, ()) else 0)
            if other and new.was_deleted and not new.kept:
                new = replace(other, was_created=new.was_created)
            elif other and other.kept and not new.kept:    # by another name it may have been written since
                new = replace(new, kept=other.kept, was_deleted=other.was_deleted)
            found[inode] = replace(new, count=pif.count + (other.count if other else 0))
        return found

    def _mapped_after(self) -> folder.Mapped:
        """Who has ended stores nothing any more: the next that writes such a file says by that that it is in place."""
        ended = {said.part.name for said in self.of if not said.part.live}
        return {inode: names - ended for inode, names in self.mapped.items()}

    def _names(self) -> dict[bytes, NameEntry]:
        found: dict[bytes, NameEntry] = {}
        looks = [(said.looked(entry.path), said, entry) for said in self.of for entry in said.meta.names]
        for _, said, entry in sorted(looks, key=itemgetter(0)):
            found[entry.path] = replace(entry, inode=self.number(said, entry.inode))
        return found

    def _moved_along(self, names: dict[bytes, NameEntry]) -> None:
        """What other runs know of a folder that one has renamed."""
        for said in self.of:
            for old, new, inside in said.moved:
                there = dict(inside)
                known = [entry for entry in self.state.names.values()
                         if entry.path.startswith(old + b"/") and entry.kind != "absent"]
                known += [entry for other in self.of for entry in self._other_names(other, old)]
                for entry in known:
                    now = new + entry.path[len(old):]
                    if entry.inode and there.get(now[len(new) + 1:]) == self._ino(entry.inode):
                        names.setdefault(now, replace(entry, path=now))
                    if entry.path not in names:
                        names[entry.path] = NameEntry(entry.path, "absent")

    def _other_names(self, said: Said, folder_: bytes) -> list[NameEntry]:
        return [replace(entry, inode=self.number(said, entry.inode)) for entry in said.meta.initial_names
                if entry.path.startswith(folder_ + b"/") and entry.kind != "absent" and
                entry.path not in self.state.names]

    def _ino(self, inode: int) -> int:
        """The filesystem's number of a file of the job."""
        if inode in self.state.pifs:
            return self.state.pifs[inode].ino
        return next((pif.ino for said in self.of for pif in (*said.meta.pifs, *said.meta.initial_pifs)
                     if self.number(said, pif.inode) == inode), 0)

    def _look_for(self, inode: int, part: Part, names: dict[bytes, NameEntry], pifs: dict[int, PifEntry]) -> None:
        """A file that another run has renamed. Who lives had closed it before that, so the other's look counts. Who has
        ended may have written it later, and nobody has it open any more: it is as it is now."""
        paths = [path for path, entry in names.items() if entry.kind == "file" and entry.inode == inode]
        paths += [path for path in self.state.paths(inode) if path not in names]
        known = pifs.get(inode) or self.state.pifs.get(inode)
        for path in paths if not part.live else ():
            with suppress(FileNotFoundError):
                st = self.store.door.lstat(path)
                if known and (st.st_dev, st.st_ino) == (known.dev, known.ino):
                    pifs[inode] = replace(known, filename=path, count=0, size=st.st_size, mode=st.st_mode,
                                          uid=st.st_uid, gid=st.st_gid, mtime_ns=st.st_mtime_ns)
                    return
        # its size at the instant is not known; of one without a name it is asked when it is met (_give_up_changed)
        if paths and inode not in pifs:
            self._lost_here.add(inode)
            self.said.append(f"{os.fsdecode(part.name)} could not find a file that another run has renamed: "
                             "it is lost for this checkpoint")

    def _deleted(self, names: dict[bytes, NameEntry], pifs: dict[int, PifEntry]
                 ) -> tuple[dict[bytes, NameEntry], dict[int, PifEntry]]:
        """A file has lost its last name when no run knows one: each knows only those that it has used."""
        named = {entry.inode for entry in names.values() if entry.kind == "file"}
        for inode, pif in pifs.items():
            here = inode in named or any(path not in names for path in self.state.paths(inode))
            known = self.state.pifs.get(inode)
            if here and pif.was_deleted:
                pifs[inode] = replace(pif, was_deleted=0, kept=b"")
            elif not here and known and not stat.S_ISDIR(pif.mode):     # who keeps it may have ended
                pifs[inode] = replace(pif, was_deleted=pif.was_deleted or self.index, kept=pif.kept or known.kept)
        return names, pifs

    def _initial_pifs(self, pifs: dict[int, PifEntry]) -> dict[int, PifEntry]:
        """The first look at a file counts; of one that a run has made there is none."""
        looks: dict[int, Rows[PifEntry]] = {}
        for said in self.of:
            first = said.first_looks()
            for pif in said.meta.initial_pifs:
                inode = self.number(said, pif.inode)
                if inode not in pifs or pifs[inode].was_created != self.index:
                    looks.setdefault(inode, []).append(
                        (first.get(pif.inode), replace(pif, inode=inode, dev=self._dev(said, pif.dev))))
        return {inode: self._first_look(rows) for inode, rows in looks.items()}

    def _first_look(self, rows: Rows[PifEntry]) -> PifEntry:
        """Who changes a file has noted a name of it before, or found it by one that another had given it, who had. Its
        time, which may be set, or of another clock, counts only where nobody has noted anything."""
        noted, judge = _noted_first(rows)
        order = noted or sorted(rows, key=lambda row: row[1].mtime_ns)
        first_at, first = order[0]
        for at, each in order[1:]:
            doubt = judge.is_in_doubt(first_at, at) if noted else each.mtime_ns == first.mtime_ns
            if doubt and (each.size, each.mtime_ns) != (first.size, first.mtime_ns):
                self._lost.add(first.inode)            # nobody can say which was first
        return first

    def _initial_names(self, names: dict[bytes, NameEntry], initial: dict[int, PifEntry]) -> dict[bytes, NameEntry]:
        seen: dict[bytes, Rows[NameEntry]] = {}
        for said in self.of:
            for entry in said.meta.initial_names:
                if entry.path in self.state.names:
                    continue
                inode = self.number(said, entry.inode)
                new = replace(entry, inode=inode)
                if entry.kind == "file" and inode not in initial and inode not in self.state.pifs:
                    new = NameEntry(entry.path, "absent")        # a run has made it since
                if entry.kind == "file" and inode in initial:
                    first = initial[inode]
                    new = replace(new, mode=first.mode, uid=first.uid, gid=first.gid, mtime_ns=first.mtime_ns)
                seen.setdefault(entry.path, []).append((said.named_at(entry.path), new))
        found = {path: self._first_name(entries) for path, entries in seen.items()}
        return found | {path: NameEntry(path, "absent") for path in names
                        if path not in found and path not in self.state.names}

    def _first_name(self, entries: Rows[NameEntry]) -> NameEntry:
        """Who has noted it counts before who has not."""
        noted, judge = _noted_first(entries)
        for at, entry in noted[1:]:
            first_at, first = noted[0]
            if judge.is_in_doubt(first_at, at) and (entry.kind, entry.inode) != (first.kind, first.inode):
                self._lost |= {entry.inode, first.inode} - {0}   # nobody can say which of them was there
        return (noted or entries)[0][1]

    # -- bytes -----------------------------------------------------------------------------------

    def _undos(self, known: Container[int]) -> list[UndoEntry]:
        """Of a byte that several have saved the first entry counts: the earliest."""
        by_file: dict[int, list[Saved]] = {}
        for said in self.of:
            run = os.fsdecode(said.part.name)
            for stamp, entry in said.undos:
                inode = self.number(said, entry.inode)
                if inode not in self.state.pifs and inode not in known:
                    continue               # no checkpoint has it, and none will
                by_file.setdefault(inode, []).append((said.noted(stamp), run, entry._replace(inode=inode)))
        return [entry for rows in by_file.values() for entry in earliest_first(rows, self._differing)]

    def _differing(self, one: UndoEntry, other: UndoEntry) -> list[UndoEntry]:
        start, end = max(one.start, other.start), min(one.end, other.end)
        if not (one.run and other.run):
            return [UndoEntry(one.inode, start, end, 0, 0)]
        a = self._saved(one, start, end)
        b = self._saved(other, start, end)
        if a == b:
            return []
        low = next(i for i in range(len(a)) if a[i] != b[i])
        high = next(i for i in range(len(a), 0, -1) if a[i - 1] != b[i - 1])
        return [UndoEntry(one.inode, start + low, start + high, 0, 0)]

    def _saved(self, entry: UndoEntry, start: int, end: int) -> bytes:
        store = next(said.part.store for said in self.of
                     if commit.exists(self.store.door, said.part.store.layout.buffer(entry.run)))
        return store.buffers.read(entry.run, entry.buffer_start + start - entry.start, end - start)

    def _offsets(self, pifs: dict[int, PifEntry]) -> list[OffsetEntry]:
        """What a run stored of files that it had mapped. What another did to such a file it does not see."""
        found: list[OffsetEntry] = []
        for said in self.of:
            for entry in said.offsets:
                inode = self.number(said, entry.inode)
                self.mapped.setdefault(inode, set()).add(said.part.name)
                found.append(entry._replace(inode=inode, process=self.process(said, entry.process)))
        users: dict[int, set[bytes]] = {}
        for said in self.of:
            for pif in said.meta.pifs:
                users.setdefault(self.number(said, pif.inode), set()).add(said.part.name)
        for inode in self.mapped.keys() & users.keys():
            if len(users[inode]) == 1 and users[inode] <= self.mapped[inode]:
                continue
            self._lost_from_here(inode, pifs)
            found = [entry for entry in found if entry.inode != inode]
        return found

    def _lost_from_here(self, inode: int, pifs: dict[int, PifEntry]) -> None:
        self._lost_here.add(inode)
        pifs[inode] = replace(pifs[inode], cut=0)      # what is stored of it may be older
        name = os.fsdecode(pifs[inode].filename)
        self.said.append(f"{name} is lost: one node maps it, and others write it")

    def _give_up_changed(self, initial: dict[int, PifEntry]) -> None:
        """Files that somebody outside had changed before the job's first run came to them; or that anybody has, by a
        name out of the scope, where no run of it could look."""
        noted = {(each.dev, each.ino): (each.size, each.mtime_ns) for each in self.store.head.identities}
        touched = self._touched_by_job(initial)
        for inode, first in initial.items():
            known = self.state.pifs.get(inode)
            if known is None or stat.S_ISDIR(first.mode):
                continue
            if inode in touched and (known.kept or self.state.paths(inode)):
                continue
            if (first.size, first.mtime_ns) not in ((known.size, known.mtime_ns),
                                                    noted.get((first.dev, first.ino), (known.size, known.mtime_ns))):
                self._lost.add(inode)

    def _give_up_unseen(self, pifs: dict[int, PifEntry]) -> None:
        """Files that a run has written over since it was taken for dead: what was there nobody has."""
        for note in self._unseen.values():
            for ino, btime_ns in note["files"]:
                for inode in self._known.get((self.dev, ino), ()):
                    pif = pifs.get(inode) or self.state.pifs.get(inode)
                    if pif is not None and pif.btime_ns == btime_ns:
                        self._lost.add(inode)
                        self.said.append(f"{os.fsdecode(pif.filename)} is lost for the checkpoints so far: a run that "
                                         "was taken for dead has overwritten it")

    def _touched_by_job(self, wanted: Iterable[int]) -> set[int]:
        found: set[int] = set()
        left = set(wanted) & self.state.pifs.keys()
        for index in self.store.history.chain(self.parent):
            if not left or not index or (meta := self.store.meta(index)).run != self.run:
                break
            here = left & {pif.inode for pif in meta.pifs}
            found |= here
            left -= here
        return found

    def _kept(self, pifs: dict[int, PifEntry]) -> None:
        """What a run keeps of files without a name, under the same names in the job's store."""
        for inode, pif in pifs.items():
            if not pif.kept:
                continue
            for said in self.of:
                try:
                    self.store.door.link(said.part.store.layout.kept(pif.kept), self.store.layout.kept(pif.kept))
                    break
                except FileExistsError:
                    break
                except FileNotFoundError:
                    continue
            else:
                if not commit.exists(self.store.door, self.store.layout.kept(pif.kept)):
                    pifs[inode] = replace(pif, kept=b"")


def _noted_first(rows: Rows[Entry]) -> tuple[Rows[Entry], Judge]:
    """Those that were noted, in order; and who is judge of it."""
    noted = [row for row in rows if row[0]]
    judge = Judge(at for at, _ in noted)
    return sorted(noted, key=lambda row: judge.key(row[0])), judge


def _nothing_of(inodes: set[int]) -> tuple[UndoEntry, ...]:
    return tuple(UndoEntry(inode, 0, NO_LIMIT, 0, 0) for inode in sorted(inodes))
