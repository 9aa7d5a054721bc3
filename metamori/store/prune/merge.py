"""Merging pruned indexes into the kept ones that grew from them, and their undo records into those that are needed.

Of a chain parent -> a -> b -> k of which only parent and k are kept, k's records become what a, b and k say
together: names and files of the last that speaks of them, `cut` the smallest, ranges folded one over the other.
Pieces keep the checksum that their record gave; where only a part of a range is left, the whole is checked
before the part gets a checksum of its own, so that damage is never signed. What a record says again, unsigned, is
signed by those that said it first, while these are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from metamori.errors import Damaged
from metamori.store.format.records import Meta, NameEntry, OffsetEntry, Offsets, PifEntry, Undo, UndoEntry
from metamori.store.io.buffers import Buffers
from metamori.store.read.checksums import Checked
from metamori.tables.aml import AML, AddressMap
from metamori.tables.record import replace

Step = tuple[Meta, Offsets]
Range = tuple[int, int, int]               # start, end, crc


class Checksums:
    """Checksums of parts of recorded ranges. Raises Damaged where the whole is not what its record says.

    signed: what all records that there are have signed, asked for once it is needed.
    """

    def __init__(self, buffers: Buffers, signed: Callable[[], Checked]) -> None:
        self._buffers, self._signed = buffers, signed
        self._others: Checked | None = None
        self._good: set[tuple[int, int, int]] = set()

    def of(self, run: int, whole: Range, start: int, end: int) -> Iterator[Range]:
        """[start, end) of a run's buffer with its checksum; `whole` is (start, end, crc) of the range that holds it.
        One that its record has not signed comes in the parts that others have: they may go now. 0: nobody has."""
        if whole[2]:
            yield start, end, self._part(run, whole, start, end)
            return
        self._others = self._others or self._signed()
        for other in sorted(self._others.over(run, start, end)):
            low, high = max(start, other[0]), min(end, other[1])
            if low < high:                 # else another one has signed that
                if start < low:
                    yield start, low, 0
                yield low, high, self._part(run, other, low, high)
                start = high
        if start < end:
            yield start, end, 0

    def _part(self, run: int, whole: Range, start: int, end: int) -> int:
        low, high, crc = whole
        if (start, end) == (low, high):
            return crc
        if (run, low, high) not in self._good:
            if self._buffers.checksum(run, low, high - low) != crc:
                raise Damaged(f"checksum mismatch at bytes {low}-{high} of buffer {run}; nothing was pruned")
            self._good.add((run, low, high))
        return self._buffers.checksum(run, start, end - start)


class Folded:
    """The ranges of some steps, one over the other: by file, with the entry that each piece is of."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.sources: list[OffsetEntry] = []
        self.maps: dict[int, AddressMap] = {}
        for meta, offsets in steps:
            for pif in meta.pifs:
                if pif.inode in self.maps:
                    self.maps[pif.inode].cut(pif.cut)
            for entry in offsets.entries:
                entry = entry._replace(run=entry.run or offsets.run)
                self.maps.setdefault(entry.inode, AddressMap()).insert(
                    AML(entry.start, entry.end, len(self.sources), entry.buffer_start))
                self.sources.append(entry)

    def pieces(self) -> Iterator[tuple[OffsetEntry, AML]]:
        for inode in sorted(self.maps):
            for aml in self.maps[inode]:
                yield self.sources[aml.run], aml


def signed_anew(group: Folded | UndoGroup) -> int:
    """Bytes that are read where only parts of recorded ranges are left: each such range, and its parts."""
    whole: dict[int, int] = {}
    parts = 0
    for source, aml in group.pieces():
        if source.run and source.crc and (aml.start, aml.end) != (source.start, source.end):
            whole[id(source)] = source.end - source.start
            parts += aml.end - aml.start
    return sum(whole.values()) + parts


def offsets_of(folded: Folded, index: int, process: int, run: int, sums: Checksums) -> Offsets:
    """An offset file that says what the folded ones said."""
    entries: list[OffsetEntry] = []
    for source, aml in folded.pieces():
        low, high, to_file = aml.offset, aml.offset + aml.end - aml.start, aml.start - aml.offset
        whole = (source.buffer_start, source.buffer_end, source.crc)
        entries += [OffsetEntry(source.inode, source.process, start + to_file, end + to_file, start, end, crc,
                                source.run if source.run != run else 0)
                    for start, end, crc in sums.of(source.run, whole, low, high)]
    return Offsets(index, process, run, tuple(entries))


def meta_of(metas: Sequence[Meta], parent: int, rootless: bool, offsets: Offsets) -> Meta:
    """What the metas say one after the other; they are those of the pruned indexes, then that of the kept one."""
    names: dict[bytes, NameEntry] = {}
    pifs: dict[int, PifEntry] = {}
    for meta in metas:
        names.update({entry.path: entry for entry in meta.names})
        for pif in meta.pifs:
            before = pifs.get(pif.inode)
            pifs[pif.inode] = replace(pif, cut=min(pif.cut, before.cut)) if before else pif
    return replace(
        metas[-1], parent=parent, names=tuple(names.values()), pifs=tuple(pifs.values()), rootless=rootless,
        launch=next((meta.launch for meta in reversed(metas) if meta.launch), ()),
        offset_entries=len(offsets.entries), merged=sum(meta.merged + 1 for meta in metas) - 1,
        bytes_added=sum(entry.end - entry.start for entry in offsets.entries))


def with_initial(meta: Meta, before: Iterable[Meta]) -> Meta:
    """`meta` with what pruned indexes, oldest first, were the first to say of the time before the runs."""
    names: dict[bytes, NameEntry] = {}
    pifs: dict[int, PifEntry] = {}
    for each in (*before, meta):
        for entry in each.initial_names:
            names.setdefault(entry.path, entry)
        for pif in each.initial_pifs:
            pifs.setdefault(pif.inode, pif)
    return replace(meta, initial_names=tuple(names.values()), initial_pifs=tuple(pifs.values()))


class UndoGroup:
    """Undo records between which no index is kept: they say the same to every kept one, so the first counts."""

    def __init__(self, after_index: int, records: list[Undo]) -> None:
        self.after_index = after_index       # the highest kept index that they serve
        self.records = records
        self.sources = [entry for record in records for entry in record.entries]
        self.maps: dict[int, AddressMap] = {}
        for number in range(len(self.sources) - 1, -1, -1):
            entry = self.sources[number]
            self.maps.setdefault(entry.inode, AddressMap()).insert(
                AML(entry.start, entry.end, number, entry.buffer_start if entry.run else entry.start))
        self.needed: dict[int, AddressMap] = {}

    def take(self, inode: int, gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """These bytes of a file are needed where the group has them; returns where it has not."""
        known = self.maps.get(inode)
        if known is None:
            return gaps
        left: list[tuple[int, int]] = []
        for start, end in gaps:
            for aml in known.find(start, end):
                self.needed.setdefault(inode, AddressMap()).insert(aml)
            left += known.gaps(start, end)
        return left

    def pieces(self) -> Iterator[tuple[UndoEntry, AML]]:
        for inode in sorted(self.needed):
            for aml in self.needed[inode]:
                yield self.sources[aml.run], aml

    def is_as_before(self, entries: Iterable[UndoEntry]) -> bool:
        """Whether its one record holds just what is needed."""
        return len(self.records) == 1 and sorted(entries) == sorted(self.sources)

    def entries(self, sums: Checksums) -> tuple[UndoEntry, ...]:
        entries: list[UndoEntry] = []
        for source, aml in self.pieces():
            if not source.run:
                entries.append(UndoEntry(source.inode, aml.start, aml.end, 0, 0, source.crc))
                continue
            whole = (source.buffer_start, source.buffer_start + source.end - source.start, source.crc)
            low, high, to_file = aml.offset, aml.offset + aml.end - aml.start, aml.start - aml.offset
            entries += [UndoEntry(source.inode, start + to_file, end + to_file, source.run, start, crc)
                        for start, end, crc in sums.of(source.run, whole, low, high)]
        return tuple(entries)
