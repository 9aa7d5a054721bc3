"""What the store would be with only some of its indexes: which records merge, which bytes and backing files are needed.

Nothing is touched. A byte of a buffer is needed when a record of a kept index names it, or an undo record that
some kept index looks into: one whose bytes in place there are the index's own, and that no earlier record answers for.
Of objects that no name and no descriptor of any kept index leads to nothing is needed.

A live run looks at its own checkpoints only, those from `first` on. All that the ones before may need is needed then:
their records, backing files and buffers, and of what the run saved every first pre-image of a file that was there
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metamori.store.format.records import Hole, Meta
from metamori.store.io.commit import lstat_or_none
from metamori.store.prune.merge import Folded, Step, UndoGroup
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.aml import AddressMap
from metamori.tables.pif import NO_LIMIT
from metamori.tables.record import field, record

_BLOCK = 4096
_ROW_BYTES = 64


@record
class Live:
    """What a live run needs beside the indexes: its buffer from a byte on, ranges below it, and backing files by
    name."""

    run: int
    from_byte: int
    ranges: tuple[tuple[int, int], ...] = ()
    homes: frozenset[bytes] = field(default_factory=frozenset)


class Shape:
    """`keep` holds the newest index, and head's. Both lists begin at `first`; `below` is left as it is."""

    def __init__(self, store: Store, keep: Iterable[int], live: Live | None = None, first: int = 0) -> None:
        self.store, self.live, self.first = store, live, first
        self.below = [index for index in store.indexes if index < first]
        self.keep = sorted(index for index in keep if index >= first)
        self.drop = [index for index in store.indexes if index >= first and index not in set(self.keep)]
        self.stays = {*self.below, *self.keep}
        own = [store.meta(index) for index in (*self.keep, *self.drop) if index]
        self.own: set[int] | None = None         # objects that only indexes from `first` on can know; None: all
        self._runs: set[int] | None = None       # those whose buffers this is about
        if self.below:
            self.own = {pif.inode for meta in own for pif in meta.pifs if pif.was_created >= first}
            self._runs = {meta.run for meta in own} | ({live.run} if live else set())
        self.parents: dict[int, int] = {}
        self.steps: dict[int, list[int]] = {}    # the pruned ancestors up to the parent, oldest first, and itself
        self.used: set[int] = set()
        self.folded: dict[int, Folded] = {}
        self.marks: dict[int, list[tuple[int, int]]] = {}
        self.entries = 0
        self.undo = self._group_undo()
        self._looked: dict[tuple[int, int, int, int], AddressMap] = {}
        if self.below:
            self._look_into_undo_for_those_below()
        for index in self.keep:
            self._index(index)
        for group in self.undo:
            for source, aml in group.pieces():
                if source.run:
                    self._mark(source.run, aml.offset, aml.offset + aml.end - aml.start)

    # -- indexes ---------------------------------------------------------------------------------

    def step(self, index: int) -> Step:
        return self.store.meta(index), self.store.offsets(index)

    def initial_from(self, index: int) -> list[Meta]:
        """Pruned indexes between the next older kept one and this: what they say of the time before stays known."""
        older = max((each for each in self.stays if each < index), default=-1)
        return [self.store.meta(each) for each in self.drop if older < each < index and each]

    def _index(self, index: int) -> None:
        state = self.store.state(index)
        meta = self.store.meta(index) if index else None
        reachable = state.reachable(meta.fits if meta else ())
        self.used |= reachable
        self._look_into_undo(state, reachable)
        if meta is None:
            return
        chain = self.store.history.chain(index)
        self.parents[index] = next((each for each in chain[1:] if each in self.stays), 0)
        steps = [each for each in chain if each > self.parents[index]]
        self.steps[index] = steps[::-1]
        folded = Folded([self.step(each) for each in self.steps[index]])
        if len(steps) > 1:
            for inode in folded.maps.keys() - reachable:
                del folded.maps[inode]
            self.folded[index] = folded
        for source, aml in folded.pieces():
            self.entries += 1
            self._mark(source.run, aml.offset, aml.offset + aml.end - aml.start)

    # -- undo records ----------------------------------------------------------------------------

    def _group_undo(self) -> list[UndoGroup]:
        """By the highest kept index that they serve; what serves none is left out."""
        groups: list[UndoGroup] = []
        self.undos = [record for record in self.store.undos if not self.below or record.after_index >= self.below[-1]]
        starts = [*self.below[-1:], *self.keep]
        for index, above in zip(starts, [*starts[1:], 1 << 63]):
            served = [record for record in self.undos if index <= record.after_index < above]
            if served:
                groups.append(UndoGroup(index, served))
        return groups

    def _look_into_undo_for_those_below(self) -> None:
        assert self.own is not None
        for inode in {inode for group in self.undo for inode in group.maps} - self.own:
            gaps = [(0, NO_LIMIT)]
            for group in self.undo:
                gaps = group.take(inode, gaps)

    def _look_into_undo(self, state: State, reachable: set[int]) -> None:
        groups = [group for group in self.undo if group.after_index >= state.index]
        for inode in {inode for group in groups for inode in group.maps} & reachable & state.pifs.keys():
            pif = state.pifs[inode]
            limit, redirected = min(pif.size, pif.home_limit), state.maps.get(inode) or _NOTHING
            key = (inode, id(redirected), limit, groups[0].after_index)
            if limit and key not in self._looked:
                self._looked[key] = redirected   # held, so that its id stays its own
                gaps = list(redirected.gaps(0, limit))
                for group in groups:
                    gaps = group.take(inode, gaps)

    # -- bytes -----------------------------------------------------------------------------------

    def runs(self) -> list[int]:
        """The runs whose buffers this is about."""
        return [run for run in self.store.buffers.runs() if self._runs is None or run in self._runs]

    def _mark(self, run: int, start: int, end: int) -> None:
        self.marks.setdefault(run, []).append((start // _BLOCK * _BLOCK, -(-end // _BLOCK) * _BLOCK))

    def needed(self, run: int) -> Iterator[tuple[int, int]]:
        """Ranges of a run's buffer, in whole blocks, in order, apart from each other."""
        ranges = list(self.marks.get(run, ()))
        if self.live is not None and run == self.live.run:
            size = max(self.store.buffers.size(run), self.live.from_byte + 1)
            ranges += [(start // _BLOCK * _BLOCK, -(-end // _BLOCK) * _BLOCK) for start, end in self.live.ranges]
            ranges.append((self.live.from_byte // _BLOCK * _BLOCK, size + _BLOCK))
        last: tuple[int, int] | None = None
        for start, end in sorted(ranges):
            if last is None:
                last = (start, end)
            elif start <= last[1]:
                last = (last[0], max(last[1], end))
            else:
                yield last
                last = (start, end)
        if last is not None:
            yield last

    def holes(self, run: int) -> Iterator[Hole]:
        """The rest of it."""
        at, size = 0, self.store.buffers.size(run)
        for start, end in self.needed(run):
            if at < min(start, size):
                yield Hole(run, at, min(start, size))
            at = end
        if at < size:
            yield Hole(run, at, size)

    def nbytes(self, homes: dict[bytes, set[int]]) -> int:
        """Bytes that the store would take, not less than it will; with `first`, of them the run's own."""
        total = sum(end - start for run in self.runs() for start, end in self.needed(run))
        gone = set(self.lost_homes(homes))
        for name in self.store.door.listdir(self.store.layout.kept_folder):
            if name not in gone and self._is_own(homes.get(name, set())):
                total += allocated(self.store, self.store.layout.kept(name))
        metas = [self.store.meta(index) for index in self.keep if index]
        records = sum(len(meta.pifs) + len(meta.names) for meta in metas)
        total += sum(each.size for meta in metas for each in meta.memory)
        undone = sum(1 for group in self.undo for _ in group.pieces())
        return total + _BLOCK * 2 * len(self.keep) + _ROW_BYTES * (self.entries + undone) + 4 * _ROW_BYTES * records

    def lost_homes(self, homes: dict[bytes, set[int]]) -> list[bytes]:
        """Names of the kept folder whose objects nobody needs. `homes`: the objects that each may be the backing file
        of."""
        in_use = self.live.homes if self.live is not None else frozenset()
        return sorted(name for name, objects in homes.items()
                      if name not in in_use and not objects & self.used and self._is_own(objects))

    def _is_own(self, objects: set[int]) -> bool:
        return self.own is None or objects <= self.own

    def nothing_leads_to(self, inode: int) -> bool:
        """Whether no index that stays knows an object."""
        return inode not in self.used and self._is_own({inode})


_NOTHING = AddressMap()


def allocated(store: Store, path: bytes) -> int:
    """Bytes on the disk that only the store holds; a file that has a name outside costs nothing."""
    found = lstat_or_none(store.door, path)
    return 0 if found is None or found.st_nlink > 1 else found.st_blocks * 512
