"""Which bytes of which object are redirected at an index, folded into an AddressMap when somebody asks for the object.

A store has a million ranges, a restore or a comparison looks at a few files of them. So what checkpoints say of an
object is only noted (`add`, `cut`), in their order, and carried out when its map is asked for. What is noted is a chain
of immutable links (older link, step), so that a copy shares it: a state costs its parent's objects, not its ranges.

Invariant: the map of an object is `_done`'s, or nothing, after the steps of `_owed`, oldest first. A map in `_done` is
shared with other states and never changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import compress, islice
from operator import eq, is_not

from metamori.store.format.records import NO_LIMIT, OffsetEntry
from metamori.store.format.row_table import no_collection, pairs, part
from metamori.tables.aml import AML, AddressMap
from metamori.tables.view import NOTHING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    _Key = TypeVar("_Key", bound=Hashable)
    _Step = tuple[Any, ...]  # (size,) to cut, or (rows, low, high, run) to insert
    _Link = tuple[Any, _Step]


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in file order, ranges that meet made one; none is empty."""
    found: list[tuple[int, int]] = []
    low = high = -1
    with no_collection():
        for start, end in sorted(ranges):
            if start > high:
                if low < high:
                    found.append((low, high))
                low, high = start, end
            elif end > high:
                high = end
    if low < high:
        found.append((low, high))
    return found


def not_same(one: Mapping[_Key, Any], other: Mapping[_Key, Any]) -> set[_Key]:
    """Keys under which both do not hold the same object. If one is a copy of the other with more behind, as a state's
    child has them, no key takes a step of Python's."""
    few, more = (one, other) if len(one) <= len(other) else (other, one)
    if all(map(eq, few, more)):
        return {*compress(few, map(is_not, few.values(), more.values())), *islice(more, len(few), None)}
    return {key for key, mine in one.items() if other.get(key) is not mine} | (other.keys() - one.keys())


def _steps(link: _Link | None) -> list[_Step]:
    """Oldest first."""
    found: list[_Step] = []
    while link is not None:
        link, step = link
        found.append(step)
    found.reverse()
    return found


class Maps:
    """Object number -> AddressMap, for those that have ever had redirected bytes."""

    __slots__ = ("_done", "_owed")

    def __init__(self) -> None:
        self._done: dict[int, AddressMap] = {}
        self._owed: dict[int, _Link] = {}

    def copy(self) -> Maps:
        new = Maps()
        new._done, new._owed = dict(self._done), dict(self._owed)
        return new

    def __contains__(self, inode: int) -> bool:
        return inode in self._done or inode in self._owed

    def cut(self, inode: int, size: int) -> None:
        """The object had only `size` bytes for a time: what lay beyond is forgotten."""
        if inode in self:
            self._owed[inode] = (self._owed.get(inode), (size,))

    def add(self, inode: int, rows: Sequence[OffsetEntry], low: int, high: int, run: int) -> None:
        """Rows [low, high) of an offset file, all of this object; `run` is that of rows that name none."""
        self._owed[inode] = (self._owed.get(inode), (rows, low, high, run))

    def same(self, other: Maps, inode: int) -> bool:
        """Whether both surely say the same of an object; False where that is not known without looking."""
        return self._done.get(inode) is other._done.get(inode) and self._owed.get(inode) is other._owed.get(inode)

    def unlike(self, other: Maps) -> set[int]:
        """Objects of which both do not surely say the same."""
        return not_same(self._done, other._done) | not_same(self._owed, other._owed)

    def apart(self, other: Maps, inode: int) -> list[tuple[int, int]]:
        """Byte ranges [start, end) outside of which both say the same of an object, sorted, none meeting another. What
        was spoken of since both were the same, as far as the steps tell, without folding any; else maps are compared.
        """
        if self._done.get(inode) is not other._done.get(inode):
            return merged((self.get(inode) or NOTHING).apart(other.get(inode) or NOTHING))
        mine, its, same = _steps(self._owed.get(inode)), _steps(other._owed.get(inode)), 0
        for one, two in zip(mine, its, strict=False):   # of states made apart they are equal, not the same
            if one is not two and one != two:
                break
            same += 1
        found: list[tuple[int, int]] = []
        for step in (*mine[same:], *its[same:]):
            found += [(step[0], NO_LIMIT)] if len(step) == 1 else pairs(step[0], step[1], step[2], 2)
        return merged(found)

    def part(self, inode: int, start: int, end: int) -> AddressMap | None:
        """What `get` says of [start, end), and maybe more. Nothing is folded for that, if it was not yet."""
        link: _Link | None = self._owed.get(inode)
        known = self._done.get(inode)
        if link is None or start >= end:
            return known
        found = AddressMap(known.find(start, end) if known is not None else ())
        for step in _steps(link):
            if len(step) == 1:
                found.cut(step[0])
                continue
            rows, low, high, run = step
            for at, (first, last) in enumerate(pairs(rows, low, high, 2), low):
                if first < end and last > start:
                    row = rows[at]
                    found.insert(AML(first, last, row.run or run, row.buffer_start).clip(start, end))
        return found

    def get(self, inode: int) -> AddressMap | None:
        """The object's map, not to be changed; None when it never had redirected bytes."""
        link: _Link | None = self._owed.get(inode)
        if link is None:
            return self._done.get(inode)
        known = self._done.get(inode)
        folded = known.copy() if known is not None else AddressMap()
        for step in _steps(link):
            if len(step) == 1:
                folded.cut(step[0])
            else:
                rows, low, high, run = step
                folded.extend(AML(row.start, row.end, row.run or run, row.buffer_start)
                              for row in part(rows, low, high))
        self._done[inode] = folded
        del self._owed[inode]
        return folded
