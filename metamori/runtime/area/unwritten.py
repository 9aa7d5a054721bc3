"""What no record says until a live run's next checkpoint: bytes that it has saved before it wrote over them in place,
and which files somebody else has changed before it came to them."""

from __future__ import annotations

import importlib.util
import stat
from collections.abc import Collection
from contextlib import closing

from metamori.store.format.records import UndoEntry
from metamori.store.io import commit
from metamori.store.io.commit import lstat_or_none
from metamori.store.read.copies import last_copies
from metamori.store.read.state import State, parents
from metamori.store.read.store import Store
from metamori.store.read.undos import Unwritten
from metamori.tables.pif import nearest_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.area.run_area import Area, Preimage


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
        from metamori.runtime.area.run_area import Touch

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
        for slot in area.pifs():
            p = area.pif(slot)
            inode = p.object or store.find_object(p.dev, p.ino, p.btime_ns)
            if inode in found and (p.object or is_known(inode, p.old_size, p.old_mtime_ns)):
                found.remove(inode)
        touched: dict[bytes, Touch] = {}
        for each in area.journal(area.head.committed_journal):
            if isinstance(each, Touch):
                touched.setdefault(each.path, each)

        def is_used(inode: int, path: bytes) -> bool:
            was = touched.get(path)
            if was is None:
                return not touched.keys().isdisjoint(parents(path))
            return stat.S_ISREG(was.mode) and is_known(inode, was.size, nearest_ns(was.mtime_ns))

        return {inode for inode in found if not any(is_used(inode, path) for path in now.paths(inode))}, now

    def _area(self) -> Area | None:
        here = commit.exists(self._store.door, self._store.layout.run_area)
        if not here or importlib.util.find_spec("metamori._area") is None:
            return None
        from metamori.runtime.area.run_area import Area

        try:
            return Area(self._store.path)
        except OSError:                    # it is over
            return None

    def _entry(self, area: Area, saved: Preimage) -> UndoEntry:
        p = area.pif(saved.slot)
        inode = p.object or self._store.find_object(p.dev, p.ino, p.btime_ns)
        return UndoEntry(inode, saved.start, saved.end, area.head.run, saved.buffer_start)


def _saved(area: Area, start: int) -> list[Preimage]:
    from metamori.runtime.area.run_area import BrokenJournal, Preimage

    committed = area.head.committed_journal
    try:
        return [each for each in area.journal(start) if isinstance(each, Preimage) and each.start < each.end]
    except BrokenJournal:                  # a checkpoint was written meanwhile, and gave it back
        if area.head.committed_journal == committed:
            raise
        return []
