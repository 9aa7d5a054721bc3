"""What no record says until a live run's next checkpoint: bytes that it has saved before it wrote over them in place,
and which files somebody else has changed before it came to them."""

from __future__ import annotations

import importlib.util
import stat
from collections.abc import Collection
from contextlib import closing

from metamori.store.format.records import NO_LIMIT, UndoEntry
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.copies import last_copies
from metamori.store.read.state import State, parents
from metamori.store.read.store import Store
from metamori.store.read.undos import Unwritten
from metamori.tables.pif import nearest_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori._area import mm_pif
    from metamori.runtime.area.run_area import Area, Preimage, Touch


def beside_runs(store: Store) -> Store:
    """The same: whoever reads its indexes reads the right bytes beside a run, too."""
    beside = _Beside(store)
    store.undo_log.unwritten, store.changed_beside = beside.look, beside.changed
    return store


class _Beside:
    """Of the run that lives in a store, whichever that is when it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._run, self._start, self._at = 0, 0, 0     # which run; from where on its journal counts; looked at so far
        self._assumed = set[int]()         # changed files of which what an earlier run has copied counts
        self._slots = dict[int, list[int]]()   # by object,
        self._slots_at: tuple[object, ...] = ()            # and when they were so
        self._touched: dict[bytes, Touch] = {}
        self._touched_at = 0, 0, 0         # which run; from where on its journal counts; looked at so far

    def look(self) -> Unwritten:
        """What has come since the last look."""
        area = self._area()
        if area is None:
            anew, self._run = self._run != 0, 0
            return Unwritten(anew, ())
        with closing(area):
            while True:
                head = area.head
                run, start, tail = head.run, head.committed_journal, head.journal_tail
                anew = (run, start) != (self._run, self._start)
                found = _saved(area, start if anew else self._at)
                if head.committed_journal == start:
                    break
            self._run, self._start, self._at = run, start, tail
            return Unwritten(anew, tuple((each.after_index, self._entry(area, each)) for each in found))

    def changed(self, inodes: Collection[int] | None = None) -> set[int]:
        """Files (of these) that are not what the index says at which the run is, and not by its doing. Where the store
        has a copy of one, that counts from now on."""
        area = self._area()
        if area is None:
            return set()
        with closing(area):
            while True:
                head = area.head
                start = head.parent, head.committed_epoch, head.restoring
                if head.restoring:         # the run's own files are on their way
                    return set()
                found, now = self._changed(area, inodes)
                if (head.parent, head.committed_epoch, head.restoring) == start:
                    break
        anew = found - self._assumed
        for inode, entries in last_copies(self._store, now, anew).items() if anew else ():
            self._store.undo_log.assume(inode, entries, self._store.newest)
        self._assumed |= anew
        return found

    def _changed(self, area: Area, inodes: Collection[int] | None) -> tuple[set[int], State]:
        """The files are looked at first: what the run does to one it has said before."""
        from metamori._area import lib

        store = self._store
        if area.head.parent not in store.history:
            store.refresh()
        is_job = area.head.flags & lib.MM_JOB      # others change its files as they please, and save what was there
        if is_job or area.head.parent not in store.history:
            return set(), store.state(store.head.index)
        now = store.state(area.head.parent)
        noted = store.noted()

        def is_known(inode: int, size: int, mtime_ns: int) -> bool:
            was, at = now.pifs[inode], (noted[path] for path in now.paths(inode) if path in noted)
            return (size, mtime_ns) in ((was.size, was.mtime_ns), *((each.size, each.mtime_ns) for each in at))

        def is_there(inode: int) -> bool:
            there = (lstat_or_none(store.door, path) for path in now.paths(inode))
            return any(st is not None and stat.S_ISREG(st.st_mode) and is_known(
                inode, st.st_size, nearest_ns(st.st_mtime_ns)) for st in there)

        found = {inode for inode in (now.pifs if inodes is None else now.pifs.keys() & inodes)
                 if now.paths(inode) and not is_there(inode)}
        if not found:
            return found, now
        found = {inode for inode in found if not any(
            p.object or is_known(inode, p.old_size, p.old_mtime_ns) for p in self._of(area, inode))}
        touched = self._touches(area) if found else {}

        def is_used(inode: int, path: bytes) -> bool:
            was = touched.get(path)
            if was is None:
                return not touched.keys().isdisjoint(parents(path))
            return stat.S_ISREG(was.mode) and is_known(inode, was.size, nearest_ns(was.mtime_ns))

        return {inode for inode in found if not any(is_used(inode, path) for path in now.paths(inode))}, now

    def _of(self, area: Area, inode: int) -> list[mm_pif]:
        """What the run has of a file. All slots are walked through where some may have come since; what was found is
        looked at itself: a run may make files all the time."""
        from metamori._area import lib

        def still() -> list[mm_pif]:
            return [p for p in map(area.pif, self._slots.get(inode, ()))
                    if p.flags & lib.MM_USED and self._object(p) == inode]

        if found := still():
            return found
        head = area.head
        at = self._store.head, head.run, head.pif_generation, head.records, head.parent, head.committed_epoch
        if at != self._slots_at:
            self._slots.clear()
            for slot in area.pifs():
                self._slots.setdefault(self._object(area.pif(slot)), []).append(slot)
            self._slots_at = () if head.pif_generation & 1 else at     # odd: one is being made
        return still()

    def _object(self, p: mm_pif) -> int:
        return p.object or self._store.find_object(p.dev, p.ino, p.btime_ns)

    def _touches(self, area: Area) -> dict[bytes, Touch]:
        """The first note of each path since the run's last checkpoint."""
        from metamori.runtime.area.run_area import Touch

        run, start, tail = area.head.run, area.head.committed_journal, area.head.journal_tail
        if self._touched_at[:2] != (run, start):
            self._touched, self._touched_at = {}, (run, start, start)
        for each in area.journal(self._touched_at[2]):
            if isinstance(each, Touch):
                self._touched.setdefault(each.path, each)
        self._touched_at = run, start, tail
        return self._touched

    def _area(self) -> Area | None:
        here = commit.exists(self._store.door, self._store.layout.run_area)
        if not here or importlib.util.find_spec("metamori._area") is None:
            return None
        from metamori.runtime.area.run_area import Area

        try:
            area = Area(self._store.path)
        except OSError:                    # it is over
            return None
        if not area.head.committed_journal:    # it is just being made (start_run.py)
            area.close()
            return None
        return area

    def _entry(self, area: Area, saved: Preimage) -> UndoEntry:
        inode = self._object(area.pif(saved.slot))
        if not saved.buffer_start:
            return UndoEntry(inode, saved.start, NO_LIMIT, 0, 0)
        return UndoEntry(inode, saved.start, saved.end, area.head.run, saved.buffer_start)


def _saved(area: Area, start: int) -> list[Preimage]:
    from metamori.runtime.area.run_area import BrokenJournal, Preimage

    committed = area.head.committed_journal
    try:
        return [each for each in area.journal(start)
                if isinstance(each, Preimage) and (each.start < each.end or not each.buffer_start)]
    except BrokenJournal:                  # a checkpoint was written meanwhile, and gave it back
        if area.head.committed_journal == committed:
            raise
        return []
