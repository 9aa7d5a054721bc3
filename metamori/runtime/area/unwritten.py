"""Bytes that a live run has saved before it wrote over them in place; no record has them until its next checkpoint."""

from __future__ import annotations

import importlib.util
from contextlib import closing

from metamori.store.format.records import UndoEntry
from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.store.read.undos import Unwritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from metamori.runtime.area.run_area import Area, Preimage


def beside_runs(store: Store) -> Store:
    """The same: whoever reads its indexes reads the right bytes beside a run, too."""
    store.undo_log.unwritten = _Beside(store).look
    return store


class _Beside:
    """Of the run that lives in a store, whichever that is when it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._run, self._start, self._at = 0, 0, 0     # which run; from where on its journal counts; looked at so far

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
