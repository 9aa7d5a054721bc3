"""Address Mapping List: which bytes of a file live at which bytes of a run's disk buffer (thesis 3.6, 4.3.3).

An AddressMap is a set of AMLs, kept by their END in a sorted dict as the thesis keeps them in its B-tree.

Invariants (asserted by `check`):
  * every AML is a non-empty half-open file range [start, end), run >= 0, offset >= 0;
  * AMLs are disjoint;
  * no two neighbours could be one: contiguous in the file, in the same run, contiguous in its buffer.
The last one makes the form canonical: two maps are equal exactly when they say the same of every byte.

All numbers are bytes. A run number 0 names no buffer; callers use it for bytes that are known to be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from sortedcontainers import SortedDict
else:
    from metamori.tables.record import NamedTuple



class AML(NamedTuple):
    """File bytes [start, end) are the bytes [offset, offset + end - start) of the buffer of `run`."""

    start: int
    end: int
    run: int
    offset: int

    def clip(self, start: int, end: int) -> AML:
        """The part of this AML inside [start, end), which must meet it."""
        low = max(self.start, start)
        return AML(low, min(self.end, end), self.run, self.offset + low - self.start)

    def joins(self, after: AML) -> bool:
        """Whether `after` goes on where this one stops, in the file and in the buffer."""
        return (self.end == after.start and self.run == after.run
                and self.offset + self.end - self.start == after.offset)


def _valid(aml: AML) -> None:
    if not (0 <= aml.start < aml.end and aml.run >= 0 and aml.offset >= 0):
        raise ValueError(f"not a mapping of at least one byte: {aml}")


class AddressMap:
    """A file's AMLs in file order. Do not change a map while one of its iterators is in use."""

    __slots__ = ("_by_end", "nbytes")

    def __init__(self, amls: Iterable[AML] = ()) -> None:
        """Insert `amls` one after the other; later ones override. Any number in file order loads in bulk."""
        from sortedcontainers import SortedDict  # brings half of `traceback` along, and many runs map nothing

        self._by_end: SortedDict = SortedDict()
        self.nbytes = 0
        self.extend(amls)

    def insert(self, aml: AML) -> list[AML]:
        """Map aml's range to its buffer bytes; returns the pieces of older AMLs that this overrides.

        The five scenarios of thesis 4.3.3, from their meaning (its listing says "before" where it must say
        "beyond", in the branch for 4 and 5). An existing AML that the new one
          1. does not meet        stays as it is;
          2. covers at its start  keeps its right part;
          3. covers whole         goes;
          4. lies within          keeps a left and a right part;
          5. covers at its end    keeps its left part.
        Only the first AML met can keep a left part and only the last a right part. Then the new AML is
        merged with the neighbours that it continues, as the writing routine of 4.3.4 does.
        """
        _valid(aml)
        by_end = self._by_end
        met, after = self._met(aml.start, aml.end)
        overridden = self._take_out(met, aml.start, aml.end) if met else met
        if met and met[-1].end > aml.end:
            after = by_end[met[-1].end]
        self.nbytes += aml.end - aml.start
        start, end, run, offset = aml
        before = by_end.get(start)
        if before is not None and before.joins(aml):
            del by_end[start]
            start, offset = before.start, before.offset
        if after is not None and aml.joins(after):
            end = after.end
        by_end[end] = AML(start, end, run, offset)
        return overridden

    def extend(self, amls: Iterable[AML]) -> None:
        """Insert many. In file order and beyond what is there: sorted once, about a microsecond each."""
        pending = iter(amls)
        straggler = self._append_all(pending)
        if straggler is not None:
            self.insert(straggler)
        for aml in pending:
            self.insert(aml)

    def overlay(self, other: AddressMap) -> None:
        """Insert all of `other`: where both know a byte, other's mapping holds from now on."""
        self.extend(other)

    def remove(self, start: int, end: int) -> list[AML]:
        """Forget [start, end); returns the pieces that were mapped there."""
        met = self._met(start, end)[0] if start < end else []
        return self._take_out(met, start, end) if met else met

    def cut(self, size: int) -> list[AML]:
        """Forget everything from `size` on, as truncation does; returns the pieces that were mapped there."""
        if not self._by_end or self._by_end.peekitem(-1)[0] <= size:
            return []
        return self.remove(size, self._by_end.peekitem(-1)[0])

    def find(self, start: int, end: int) -> Iterator[AML]:
        """The mapped pieces of [start, end), clipped to it, in file order."""
        by_end = self._by_end
        for key in by_end.irange(start, None, inclusive=(False, True)) if start < end else ():
            aml = by_end[key]
            if aml.start >= end:
                return
            yield aml if start <= aml.start and key <= end else aml.clip(start, end)

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The unmapped pieces of [start, end), in file order."""
        for aml in self.find(start, end):
            if start < aml.start:
                yield start, aml.start
            start = aml.end
        if start < end:
            yield start, end

    def apart(self, other: AddressMap) -> list[tuple[int, int]]:
        """File ranges outside of which both say the same of every byte; in no order, some may meet others. AMLs that
        both hold cost a look each."""
        if self is other:
            return []
        one, two = self._by_end, other._by_end
        return [(aml.start, aml.end) for here, there in ((one, two), (two, one)) for end, aml in dict.items(here)
                if (same := dict.get(there, end)) is not aml and same != aml]

    def copy(self) -> AddressMap:
        new = AddressMap()
        new._by_end.update(self._by_end)
        new.nbytes = self.nbytes
        return new

    def __len__(self) -> int:
        return len(self._by_end)

    def __iter__(self) -> Iterator[AML]:
        return iter(self._by_end.values())

    def __eq__(self, other: object) -> bool:
        return self._by_end == other._by_end if isinstance(other, AddressMap) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AddressMap({list(self)!r})"

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        total, before = 0, None
        for end, aml in self._by_end.items():
            _valid(aml)
            assert end == aml.end, (end, aml)
            if before is not None:
                assert before.end <= aml.start, (before, aml)
                assert not before.joins(aml), (before, aml)
            total, before = total + aml.end - aml.start, aml
        assert total == self.nbytes, (total, self.nbytes)

    def _append_all(self, amls: Iterator[AML]) -> AML | None:
        """Take AMLs as long as each lies beyond all that are there; returns the first that does not."""
        last = self._by_end.peekitem(-1)[1] if self._by_end else None
        tail: dict[int, AML] = {}
        try:
            for aml in amls:
                _valid(aml)
                if last is None or aml.start > last.end:
                    last = aml
                elif aml.start < last.end:
                    return aml
                elif last.joins(aml):
                    if tail.pop(last.end, None) is None:
                        del self._by_end[last.end]
                    last = AML(last.start, aml.end, last.run, last.offset)
                else:
                    last = aml
                tail[aml.end] = last
                self.nbytes += aml.end - aml.start
        finally:
            self._by_end.update(tail)
        return None

    def _met(self, start: int, end: int) -> tuple[list[AML], AML | None]:
        """The AMLs that share a byte with [start, end), and the first one that lies beyond it."""
        by_end = self._by_end
        met: list[AML] = []
        for key in by_end.irange(start, None, inclusive=(False, True)):
            aml = by_end[key]
            if aml.start >= end:
                return met, aml
            met.append(aml)
        return met, None

    def _take_out(self, met: list[AML], start: int, end: int) -> list[AML]:
        """Remove [start, end) from the AMLs `met`, which are all that meet it; returns what was removed."""
        by_end = self._by_end
        first, last = met[0], met[-1]
        for aml in met:
            del by_end[aml.end]
        if first.start < start:
            by_end[start] = first.clip(0, start)
        if last.end > end:
            by_end[last.end] = last.clip(end, last.end)
        taken = met.copy()
        taken[0] = taken[0].clip(start, end)
        taken[-1] = taken[-1].clip(start, end)
        self.nbytes -= sum(aml.end - aml.start for aml in taken)
        return taken


class EmptyMap(AddressMap):
    """Maps nothing, and stays so: made without the import that a map costs."""

    __slots__ = ()

    def __init__(self) -> None:
        self._by_end, self.nbytes = {}, 0

    def find(self, start: int, end: int) -> Iterator[AML]:
        return iter(())
