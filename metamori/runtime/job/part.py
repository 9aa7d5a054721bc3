"""What one run of a job has recorded since the last fold, as one record in its own numbers; fold.py joins them."""

from __future__ import annotations

from metamori.runtime.checkpoint.job_stamps import Stamps, moved
from metamori.runtime.job.clock import Timeline
from metamori.runtime.job.order import Noted
from metamori.runtime.job.places import Place
from metamori.store.format.records import Offsets, UndoEntry
from metamori.store.prune.merge import meta_of, with_initial
from metamori.store.read.store import Store
from metamori.tables.record import mutable, replace

When = tuple[bool, int, int]


@mutable
class Part:
    """What a run has recorded after `since`, up to and with `upto`. place: its machine, by whose clock. live: it was
    frozen with the others when it recorded `upto`."""

    name: bytes
    store: Store
    stamps: Stamps
    place: Place
    since: int
    upto: int
    live: bool = True

    def has_places(self) -> bool:
        """Of all its records; else clocks say which was first."""
        self.stamps.refresh()
        return all(index in self.stamps.places for index in range(self.since + 1, self.upto + 1))

    def when(self, index: int, by_place: bool) -> tuple[int, int]:
        """Clocks say it also of those that have one place (job_stamps.take_place)."""
        return self.stamps.places[index] if by_place else 0, self.store.meta(index).time_ns


class Said:
    """A part's records as one; its own numbers. Only of what is on disks of its machine, or only of all else."""

    def __init__(self, part: Part, timeline: Timeline | None, own: bool, by_place: bool) -> None:
        """timeline: of its machine, where there is more than one. by_place: all records of all parts have one."""
        self.part, self._timeline = part, timeline
        metas = [part.store.meta(index) for index in range(part.since + 1, part.upto + 1)]
        offsets = [part.store.offsets(index) for index in range(part.since + 1, part.upto + 1)]
        self.meta = with_initial(meta_of(metas, part.since, False, Offsets(part.upto, 0, 0)), metas[:-1])
        self.bytes_added = sum(meta.bytes_added for meta in metas)
        self.offsets = [entry._replace(run=entry.run or each.run) for each in offsets for entry in each.entries]
        self.pifs = part.store.state(part.upto).pifs
        self._looked: dict[bytes | int, When] = {}
        for meta in metas:
            when = part.live and meta.index == part.upto, *part.when(meta.index, by_place)
            self._looked |= dict.fromkeys([each.inode for each in meta.pifs], when)
            self._looked |= dict.fromkeys([each.path for each in meta.names], when)
        self.nowhere: set[bytes] = set()
        # an undo of another number is of a try to complete the run that was killed itself: the next one numbered anew
        known = {*self.pifs, *(pif.inode for pif in (*self.meta.pifs, *self.meta.initial_pifs))}
        known -= self._leave_out(own) if part.place.own or own else set()
        self.created = {pif.inode for pif in self.meta.pifs} - {pif.inode for pif in self.meta.initial_pifs} \
            - part.store.state(part.since).pifs.keys()
        self.moved = [each for index in range(part.since + 1, part.upto + 1) for each in moved(part.store, index)
                      if part.place.is_own(each[0]) == own]
        self.undos: list[tuple[int | None, UndoEntry]] = []        # with its stamp
        for undo in part.store.undo_log.between(part.since, part.upto):
            self.undos += [(part.stamps.preimage(entry.buffer_start), each)
                           for entry in undo.entries if entry.inode in known for each in self._own(entry)]
        self._lines: dict[tuple[int, int], int] = {}

    def _leave_out(self, own: bool) -> set[int]:
        """Nothing is said any more of what is there if not `own`, or not there if so; numbers of these files. Of what
        may be either nobody says anything."""
        place, meta = self.part.place, self.meta
        others = {pif.inode for pif in (*self.pifs.values(), *meta.pifs, *meta.initial_pifs)
                  if place.is_own(pif.filename) != own}
        tops = (place.top(path) for path in (*(each.path for each in (*meta.names, *meta.initial_names)),
                                             *(each.filename for each in (*meta.pifs, *meta.initial_pifs))))
        if any(told is None for _, told, _ in place.own):
            self.nowhere = {top for top, told in tops if told is None}
        self.meta = replace(
            meta, names=tuple(each for each in meta.names if place.is_own(each.path) == own),
            initial_names=tuple(each for each in meta.initial_names if place.is_own(each.path) == own),
            pifs=tuple(each for each in meta.pifs if each.inode not in others),
            initial_pifs=tuple(each for each in meta.initial_pifs if each.inode not in others),
            fits=tuple(each for each in meta.fits if each.inode not in others))
        self.offsets = [each for each in self.offsets if each.inode not in others]
        return others

    def _own(self, entry: UndoEntry) -> list[UndoEntry]:
        """What this run has written over, of what it saved: of other bytes it does not know how old they are."""
        ranges = self.part.stamps.written(entry.buffer_start, entry.buffer_start + entry.end - entry.start)
        if not entry.run or ranges == [(entry.buffer_start, entry.buffer_start + entry.end - entry.start)]:
            return [entry]
        crcs = self.part.store.buffers.checksums(entry.run, ranges)
        by = entry.start - entry.buffer_start
        return [UndoEntry(entry.inode, low + by, high + by, entry.run, low, crc)
                for (low, high), crc in zip(ranges, crcs, strict=True)]

    def stamps(self) -> set[tuple[int, int]]:
        """Of all that its records say."""
        names = (self.part.stamps.first_named(entry.path, self.part.since) for entry in self.meta.initial_names)
        return {(self.meta.run, stamp) for stamp in (*names, *(stamp for stamp, _ in self.undos)) if stamp is not None}

    def looked(self, at: bytes | int) -> When:
        """When the run looked at a name, or file, for the last time; first, whether that was at the instant. A record
        of which the job made no index, since who counts was killed, is of an earlier time."""
        return self._looked.get(at, (False, 0, 0))

    def in_order(self, lines: dict[tuple[int, int], int]) -> None:
        self._lines = lines

    def noted(self, stamp: int | None) -> Noted | None:
        if stamp is None:
            return None
        at, doubt = self._timeline.at(stamp) if self._timeline else (stamp, 0)
        return Noted(at, doubt, self.part.place.boot, self._lines.get((self.meta.run, stamp), -1))

    def named_at(self, path: bytes) -> Noted | None:
        """When the run first noted a name."""
        return self.noted(self.part.stamps.first_named(path, self.part.since))

    def first_looks(self) -> dict[int, Noted]:
        """When the run looked at a file, by a name of it that it noted: it may have found another file by that name
        later, and looks at that one without a note."""
        found: dict[int, Noted] = {}
        for entry in self.meta.initial_names:
            at = self.named_at(entry.path) if entry.kind == "file" else None
            if at and (entry.inode not in found or at.at < found[entry.inode].at):
                found[entry.inode] = at
        return found
