"""After a power cut in a live run: its end, worked out from what is durable alone (docs/adr/0016).

Durable are the checkpoints, the user's files as they are now, what the store keeps, and the log of what had to be
durable before something else was (wal.py). The tables of the run area are not looked at. The base is the index that
the run had last; what the log says came after it is put on top, names are looked at, and that becomes an index of its
own, whose buffered bytes are then written back as at the end of any run. Nothing is remembered in between: stopped
anywhere, this begins again, and comes to the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from typing import cast

from metamori._area import lib
from metamori.errors import Damaged
from metamori.runtime.area import name_journal
from metamori.runtime.area.run_area import BLOCK, NO_LIMIT, Area, Preimage, Touch, retire
from metamori.runtime.area.wal import Record, began, began_ns, read
from metamori.runtime.area.whereabouts import device
from metamori.runtime.checkpoint import job_stamps
from metamori.runtime.checkpoint.cut import Cut, look
from metamori.runtime.checkpoint.cut import Found as Look
from metamori.runtime.checkpoint.delta import GONE, Fold
from metamori.runtime.recovery import torn_checkpoints
from metamori.runtime.recovery.file_locator import Found, Remains
from metamori.runtime.recovery.recovery_base import REASON, Base, base_of
from metamori.store.format.records import Meta, OffsetEntry, Offsets, PifEntry, UndoEntry
from metamori.store.io.os_io import REAL
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.store.restore.redo import Applier, read_intent
from metamori.tables.aml import AML, AddressMap
from metamori.tables.pif import Pif, later
from metamori.tables.record import replace
from metamori.tables.view import BUFFER


def recover(store: Store, why: str = "the machine went down during the last run", *,
            not_here: Callable[[bytes], bool]) -> str:
    """Complete the run. A line for a person that says why it was necessary. not_here: of a path, whether it is on a
    disk of the run's machine, which is another one: what has the same path here is something else."""
    assert store.is_locked
    run_area = os.fsdecode(store.layout.run_area)
    store.refresh()
    log, begun = read(run_area), began(run_area)
    start = next((each for each in log if each.kind == lib.MM_AHEAD_START), begun)
    nothing_left = ""
    if start is not None and not start.flags & lib.MM_POWER:
        nothing_left = torn_checkpoints.drop(store, start.run)
    base = base_of(store, log, begun)
    work = _Leavings(store, base, _noted(run_area, base.epoch), _carry_through(store), began_ns(run_area),
                     not_here)
    index = work.commit(lambda: retire(run_area))
    if os.path.exists(run_area):
        retire(run_area)
    shutil.rmtree(run_area + ".over", ignore_errors=True)
    restore.sweep_kept(store)
    lost = "".join(f"; {os.fsdecode(path)} was not found again" for path in work.lost)
    lost += "".join(f"; {os.fsdecode(path)} lacks bytes that had not reached the disk" for path in work.torn)
    return f"{why}: what was durable of it is checkpoint {index}{nothing_left}{lost}"


def _carry_through(store: Store) -> dict[int, bytes]:
    """Names that a restore inside the program had begun to move. Where files are that got a name of theirs again."""
    try:
        begun = read_intent(store, store.layout.run_intent)
    except Damaged:
        return {}                          # it never was durable, so it was not begun
    if begun is None:
        return {}
    Applier(store, True, store.layout.run_intent).run(begun)
    return {op.inode: op.other for op in begun.names if op.op == "drop" and op.other}


def _noted(run_area: str, epoch: int) -> list[Touch]:
    """What was noted after an epoch, in order: of a path that was noted twice the first note says how it was. If that
    is not left, there was nothing; or it was to be in names before the path changed, so the path has not."""
    found = name_journal.named(os.path.join(run_area, "notes"))
    with contextlib.suppress(FileNotFoundError), open(os.path.join(run_area, "journal"), "rb") as file:
        found |= name_journal.surviving(file.read())
    notes = [note for _, note in sorted(found.items()) if note.epoch > epoch]
    return [note for note in notes if note.before <= epoch or not note.stood]


class _Leavings:
    """What is left of the run, as if it were cut at an instant. lost: files of the base that are nowhere; torn: those
    that stay as they are for a part, since what was buffered of them is not what was signed."""

    def __init__(self, store: Store, base: Base, noted: list[Touch], arrived: dict[int, bytes],
                 began_ns: int, not_here: Callable[[bytes], bool]) -> None:
        self.store, self.base, self._not_here = store, base, not_here
        self.isolated = bool(base.flags & lib.MM_ISOLATE)
        self.in_job = bool(base.flags & lib.MM_JOB)    # what is not there may be known to another run (job/fold.py)
        self.state = store.state(base.index)
        self.lost: list[bytes] = []
        # in isolation nothing of it is written back
        self._good: dict[int, list[AML]] = {}
        if not base.flags & lib.MM_POWER and not self.isolated:
            self._good = torn_checkpoints.verified(store, self.state, None if base.everything else {base.run})
        self.torn = [path for inode in self._good for path in self.state.paths(inode)[:1]]
        self.cut = Cut(base.index, 0, 0, 0)
        self._place = job_stamps.take_place(store.door, job_stamps.order_of(store)) if self.in_job else -1
        self._look(noted)
        self.cut.found.update((path, self._at(path)) for path in arrived.values())
        looked = {path: found.st for path, found in self.cut.found.items()}
        self.remains = Remains(store, base, self.state, looked, arrived, began_ns, not_here)
        self._homes = {(ino, born) for _, ino, born in base.at_home}
        self._gone: list[int] = []
        self._left: list[int] = []         # slots of files that no index knows and that are not there: in the log alone
        self._log: dict[int, list[Record]] = {}
        self._files(arrived)

    # -- what there is ---------------------------------------------------------------------------

    def _at(self, path: bytes) -> Look:
        return Look(None) if self._not_here(path) else look(path)

    def _look(self, noted: list[Touch]) -> None:
        """At every path that anybody speaks of."""
        names, cut = self.state.names, self.cut
        for path in names:
            cut.found[path] = self._at(path)
        for note in noted:
            if note.path not in names:
                cut.touches.setdefault(note.path, note if note.before <= self.base.epoch else _absent(note.path))
                cut.found.setdefault(note.path, self._at(note.path))
        for record in self.base.log:
            if record.path and record.path not in cut.found:
                cut.found[record.path] = self._at(record.path)
                if record.created:
                    cut.touches.setdefault(record.path, _absent(record.path))
        self._moved_folders([note for note in noted if stat.S_ISDIR(note.mode)])

    def _moved_folders(self, noted: list[Touch]) -> None:
        """A folder that is noted and went has another name, whose note may be lost; what is in it went along."""
        cut, below = self.cut, dict[bytes, dict[tuple[int, int], bytes]]()
        for note in noted:
            if self._not_here(note.path):
                continue
            st = look(note.path).st
            if st is not None and st.st_ino == note.ino:
                continue
            top = os.path.dirname(note.path)
            while not os.path.isdir(top):
                top = os.path.dirname(top)
            if top not in below:
                below[top] = folders_below(top, self.store.layout.root)
            path = below[top].get((note.dev, note.ino))
            born = self.store.door.birth_ns(path) if path else 0
            if path and path not in self.state.names and (not born or not note.btime_ns or born == note.btime_ns):
                cut.touches.setdefault(note.path, note)
                cut.touches.setdefault(path, _absent(path))
                cut.found.setdefault(path, look(path))

    def _files(self, arrived: dict[int, bytes]) -> None:
        for record in self.base.log:
            self._log.setdefault(self.remains.slot_of(record), []).append(record)
        for inode, pif in sorted(self.state.pifs.items()):
            if not self.state.paths(inode):
                continue
            slot = self.remains.slot_of_object(inode)
            found = self.remains.files.get(slot)
            if found is None:
                found = self.remains.search(slot, pif, self.state.paths(inode))
                if found is not None and not found.kept:
                    self.cut.found[found.path] = look(found.path)
            if found is None:
                self._gone.append(inode)
                self.lost += [] if self.in_job else self.state.paths(inode)[:1]
            elif slot in self._log or found.kept or inode in self._good or self._differs(inode, pif, found.st):
                self.cut.pifs.append(self._pif(slot, found, self._log.get(slot, [])))
        known = {each.slot for each in self.cut.pifs}
        for inode, path in arrived.items():
            slot = self.remains.slot_of_arrival(inode, path)
            if slot in self.remains.files and slot not in known:
                known.add(slot)
                self.cut.pifs.append(self._pif(slot, self.remains.files[slot], self._log.get(slot, [])))
        for slot, records in self._log.items():
            if slot not in self.remains.files and self._new_and_moved(slot, records[-1]):
                known.discard(slot)
            if slot in self.remains.files and slot not in known:
                self.cut.pifs.append(self._pif(slot, self.remains.files[slot], records))
            elif slot not in self.remains.files and not self.remains.pif(slot).object and _saved(records):
                self.cut.pifs.append(_left(slot, records[-1], self.in_job))
                self._left.append(slot)
            self._preimages(slot, records)
        self._first_touched({each.slot for each in self.cut.pifs})

    def _new_and_moved(self, slot: int, record: Record) -> bool:
        """Whether a file that the base does not know is at another place than its record says."""
        return record.kind == lib.MM_AHEAD_SYNCED and bool(record.path) and self._moved(slot, record) is not None

    def _moved(self, slot: int, known: Record | Touch) -> Found | None:
        """A file that no index knows, where it is: the note of its new name may be lost."""
        found = None if self.remains.pif(slot).object else self.remains.search(slot, known, [known.path])
        if found is not None:
            self.cut.found[found.path] = look(found.path)
            self.cut.touches.setdefault(found.path, _absent(found.path))
        return found

    def _first_touched(self, known: set[int]) -> None:
        """Files that no index knew before the base, and only a note tells how they were."""
        for note in [*self.cut.touches.values()]:
            slot = self.remains.slot_of(note) if stat.S_ISREG(note.mode) else 0
            if slot and slot not in known:
                found = self.remains.files.get(slot) or self._moved(slot, note)
                if found is None or found.object:      # it had another name
                    continue
                known.add(slot)
                pif = self._pif(slot, replace(found, path=note.path), [])
                self.cut.pifs.append(replace(pif, created=False, preexisting=True, old=(
                    note.size, note.mtime_ns, note.mode, note.uid, note.gid)))

    def _differs(self, inode: int, pif: PifEntry, st: os.stat_result) -> bool:
        """Whether the backing file was changed since the base."""
        if self.isolated:
            return False
        later = st.st_mtime_ns > pif.mtime_ns if self._redirected(inode) else st.st_mtime_ns != pif.mtime_ns
        return later or st.st_size != pif.size or (self._at_home(inode) and inode in self.state.maps)

    def _redirected(self, inode: int) -> bool:
        return any(self.base.everything or aml.run == self.base.run for aml in self.state.maps.get(inode) or ())

    def _at_home(self, inode: int) -> bool:
        return self.remains.identity(self.state.pifs[inode]) in self._homes

    def _pif(self, slot: int, found: Found, records: list[Record]) -> Pif:
        """A file at the instant: the bytes in place, and on top those of the log."""
        st, known, last = found.st, self.state.pifs.get(found.object), records[-1] if records else None
        settled = self.isolated and (st.st_dev, st.st_ino) in self.base.settled
        virtual = self.isolated and not settled
        cut, blocks = (0, {}) if settled else self._replayed(found, records)
        mtime_ns = later(last.mtime_ns if last else 0, st.st_mtime_ns)
        if known and cut and self._redirected(found.object):
            mtime_ns = max(mtime_ns, known.mtime_ns)
        size, limit, tail = st.st_size, NO_LIMIT, NO_LIMIT
        if virtual:
            size, limit = known.size if known else size, known.home_limit if known else size
        for each in records:
            if each.kind == lib.MM_AHEAD_SYNCED:
                own = each.flags & lib.MM_VIRTUAL
                tail = NO_LIMIT if own else each.size
                if virtual:
                    size, limit = (each.size, each.home_limit) if own else (st.st_size, NO_LIMIT)
        return Pif(
            slot, found.object, st.st_dev, st.st_ino, found.btime_ns,
            (lib.MM_KEPT | lib.MM_NAMELESS if found.kept else 0) | (lib.MM_VIRTUAL if virtual else 0),
            bool(last and last.created), not (last and last.created), 0, found.path, found.home, size, limit,
            min(cut, size), mtime_ns, st, last.old if last else (0, 0, 0, 0, 0),
            [(block, buffer, 1) for block, buffer in sorted(blocks.items())], tail=tail)

    def _replayed(self, found: Found, records: list[Record]) -> tuple[int, dict[int, int]]:
        """Smallest size since the base (0 where all was in place, or its buffer is torn: then all is said anew), and
        blocks in the buffer."""
        cut, blocks = NO_LIMIT, dict[int, int]()
        if found.object and (self._at_home(found.object) or found.object in self._good):
            cut = 0
        for each in records:
            if each.kind == lib.MM_AHEAD_HOME:
                cut, blocks = 0, {}
            elif each.kind == lib.MM_AHEAD_SYNCED:
                blocks = {} if each.whole else blocks
                cut = min(cut, each.cut) if self.isolated else cut
                blocks.update((block + i, buffer + i) for block, buffer, count in each.ranges for i in range(count))
            elif each.length_after != NO_LIMIT and was_cut(each, found.st):
                cut = min(cut, each.length_after)
                blocks = {block: buffer for block, buffer in blocks.items() if block * BLOCK < cut}
        return cut, blocks

    def _preimages(self, slot: int, records: list[Record]) -> None:
        if not (self.remains.pif(slot).object or slot in self.remains.files or slot in self._left):
            return
        for each in _saved(records):
            if each.data:
                self._into_buffer(each)
            self.cut.in_place.setdefault(slot, []).append((each.start, each.end))
            self.cut.preimages.append(Preimage(0, each.index, slot, each.start, each.end, each.buffer_start,
                                               each.stamp_ns if self.in_job else 0))

    def _into_buffer(self, record: Record) -> None:
        fd = self.store.door.open(self.store.layout.buffer(self.base.run), os.O_RDWR | os.O_CREAT)
        try:
            self.store.door.pwrite(fd, record.data, record.buffer_start)
        finally:
            self.store.door.close(fd)

    # -- what becomes of it ----------------------------------------------------------------------

    def commit(self, retire: Callable[[], None]) -> int:
        """The index that says what is left. retire: ends the run."""
        store, base = self.store, self.base
        committed, index = store.head.index, store.newest + 1
        self._reach()
        fold = Fold(store, cast(Area, self.remains), self.cut, index)
        meta, offsets = fold.records("", REASON, store.next_process(), "single" if base.flags & lib.MM_SINGLE else
                                     "incremental")
        meta, offsets = self._with_all(meta, offsets)
        fold.ends.clear()                  # what is not there never came to the disk
        undo = fold.undo_entries()
        gone = [*self._gone, *(fold.objects[slot] for slot in self._left)]
        if gone and not self.in_job:       # but for what was saved of it
            undo.setdefault(index - 1, []).extend(UndoEntry(inode, 0, NO_LIMIT, 0, 0) for inode in gone)
        if meta.names or meta.pifs or offsets.entries or undo or base.index != store.newest:
            if self.in_job:
                job_stamps.note(store, self.cut, index, True, self._place)
            if offsets.entries or self.cut.preimages:
                store.buffers.sync(base.run)
            for after_index, entries in sorted(undo.items()):
                store.add_undo(entries, after_index)
            store.commit_checkpoint(meta, offsets)
        else:
            index = base.index
        kept = self.remains.kept_homes(store.state(index))
        if self.isolated:
            last = store.meta(index) if index else None       # a completion's, maybe of one that was killed
            new = {pif.inode for pif in last.pifs} if last and last.reason == REASON else set()
            settled = [inode for inode, pif in store.state(index).pifs.items()
                       if (pif.dev if inode in new else device(pif.dev), pif.ino) in base.settled]
            restore.move_names(store, index, committed, settled, base.run, kept=kept, retire=retire)
        else:
            restore.commit_home(store, index, self._pending(index), run=base.run, kept=kept)
        return index

    def _reach(self) -> None:
        """The buffer as far as the log speaks of it: what was never written there reads as zeros."""
        ends = [(buffer + count) * BLOCK for pif in self.cut.pifs for _, buffer, count in pif.ranges]
        ends += [-(-(each.buffer_start + each.end - each.start) // BLOCK) * BLOCK for each in self.cut.preimages]
        fd = self.store.door.open(self.store.layout.buffer(self.base.run), os.O_RDWR | os.O_CREAT)
        try:
            if self.store.door.fstat(fd).st_size < max(ends, default=0):
                self.store.door.ftruncate(fd, max(ends))
        finally:
            self.store.door.close(fd)

    def _with_all(self, meta: Meta, offsets: Offsets) -> tuple[Meta, Offsets]:
        """After a restore inside the program an index may have bytes that only undo records know: the new one, which is
        later than those, says them itself. So it does what is left of a torn buffer. And files that are nowhere end."""
        entries, said = list(offsets.entries), {entry.inode for entry in meta.pifs}
        for inode, good in self._good.items():
            if not self._at_home(inode):
                mine = AddressMap(AML(e.start, e.end, self.base.run, e.buffer_start) for e in entries
                                  if e.inode == inode)
                for aml in good:
                    entries += self._entries(inode, meta.process, aml.start, aml.end, aml.run, aml.offset, mine)
        if self.base.everything:
            for inode in self.state.pifs:
                mine = AddressMap(AML(e.start, e.end, e.run or offsets.run, e.buffer_start) for e in entries
                                  if e.inode == inode)
                limit = next((pif.cut for pif in meta.pifs if pif.inode == inode), NO_LIMIT)
                recorded = self.state.maps.get(inode) or AddressMap()
                for piece in self.state.pieces(inode) if self.state.paths(inode) else ():
                    if piece.kind == BUFFER and piece.start < limit and any(recorded.gaps(piece.start, piece.end)):
                        entries += self._entries(inode, meta.process, piece.start, min(piece.end, limit), piece.run,
                                                 piece.offset, mine)
        end = {"mode": GONE} if self.in_job else {"size": 0, "cut": 0, "was_deleted": meta.index}
        gone = tuple(replace(self.state.pifs[inode], **end) for inode in self._gone if inode not in said)
        return replace(meta, pifs=(*meta.pifs, *gone)), replace(
            offsets, entries=tuple(sorted(entries, key=lambda entry: entry.inode)))

    def _entries(self, inode: int, process: int, start: int, end: int, run: int, place: int,
                 mine: AddressMap) -> list[OffsetEntry]:
        found = []
        for low, high in mine.gaps(start, end):
            at = place + low - start
            found.append(OffsetEntry(inode, process, low, high, at, at + high - low,
                                     self.store.buffers.checksum(run, at, high - low), run))
        return found

    def _pending(self, index: int) -> dict[int, AddressMap]:
        """Bytes of the index that may not be in place: all that are in buffers of this run."""
        there, found = self.store.state(index), {}
        for inode in there.pifs:
            mine = [aml for aml in there.maps.get(inode) or () if self.base.everything or aml.run == self.base.run]
            if mine:
                found[inode] = AddressMap(mine)
        return found


def folders_below(top: bytes, but: bytes) -> dict[tuple[int, int], bytes]:
    """Device and inode number of each folder, and where it is; without one of them and what is in it."""
    found = {}
    for at, folders, _ in REAL.walk(top):
        folders[:] = [each for each in folders if os.path.join(at, each) != but]
        for name in folders:
            st = REAL.lstat(os.path.join(at, name))
            found[st.st_dev, st.st_ino] = os.path.join(at, name)
    return found


def was_cut(record: Record, st: os.stat_result) -> bool:
    """Whether the cut that a record announces has reached the disk."""
    return st.st_size <= record.length_after or st.st_ctime_ns > record.home_ctime_ns


def _saved(records: list[Record]) -> list[Record]:
    return [each for each in records if each.kind == lib.MM_AHEAD_PREIMAGE]


def _left(slot: int, last: Record, in_job: bool) -> Pif:
    """A file that was moved out of the scope, or to where nobody finds it, after its bytes had been saved."""
    flags = 0 if in_job else lib.MM_NAMELESS | lib.MM_LEFT
    return Pif(slot, 0, last.dev, last.ino, last.btime_ns, flags, False, True, 0, last.path, b"", 0, NO_LIMIT, 0,
               last.mtime_ns, None, last.old, [])


def _absent(path: bytes) -> Touch:
    return Touch(0, path, 0, 0, 0, 0, 0, 0, 0, 0, b"")
