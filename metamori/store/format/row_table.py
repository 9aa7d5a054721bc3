"""Many rows of u64 as they lie in a file: a sequence of named tuples that makes each one when it is asked for.

A million rows are a million tuples only for whoever looks at all of them; a state of the store looks at the rows of the
files that it is asked about. Equal to any sequence of equal rows, and as immutable as a tuple.
"""

from __future__ import annotations

import gc
import struct
import sys
from _thread import allocate_lock
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Rows = Sequence[Any]
else:
    _Rows = Sequence


class _Held:
    """How many hold the collector off, of all threads, and whether it was on before the first of them."""

    lock, count, was_on = allocate_lock(), 0, False


@contextmanager
def no_collection() -> Iterator[None]:
    """Holds the cyclic collector off: a million new tuples would be searched for cycles again and again."""
    with _Held.lock:
        if not _Held.count:
            _Held.was_on = gc.isenabled()
            gc.disable()
        _Held.count += 1
    try:
        yield
    finally:
        with _Held.lock:
            _Held.count -= 1
            if not _Held.count and _Held.was_on:
                gc.enable()


class Table(_Rows):
    """The rows of `cls`, a NamedTuple of u64 fields, in `body`, which is little endian and whole rows."""

    __slots__ = ("_body", "_cls", "_row")

    def __init__(self, cls: Any, body: bytes) -> None:
        self._cls, self._body = cls, body
        self._row = struct.Struct(f"<{len(cls._fields)}Q")

    def __len__(self) -> int:
        return len(self._body) // self._row.size

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self.all()[at]
        where = range(len(self))[at]
        return self._cls._make(self._row.unpack_from(self._body, where * self._row.size))

    def __iter__(self) -> Iterator[Any]:
        return map(partial(tuple.__new__, self._cls), self._row.iter_unpack(self._body))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return self._cls is other._cls and self._body == other._body
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def all(self) -> tuple[Any, ...]:
        """Every row, made at once."""
        with no_collection():
            return tuple(self)

    def some(self, low: int, high: int) -> Iterable[Any]:
        """The rows [low, high)."""
        body = memoryview(self._body)[low * self._row.size:high * self._row.size]
        return map(partial(tuple.__new__, self._cls), self._row.iter_unpack(body))

    def pairs(self, low: int, high: int, at: int) -> list[tuple[int, int]]:
        """Columns `at` and `at + 1` of the rows [low, high)."""
        if sys.byteorder == "big":
            return [(row[at], row[at + 1]) for row in self.some(low, high)]
        cells, width = memoryview(self._body).cast("Q"), len(self._cls._fields)
        one, other = (cells[low * width + each:high * width:width].tolist() for each in (at, at + 1))
        with no_collection():
            return list(zip(one, other, strict=True))

    def column(self, at: int) -> array[int]:
        cells = array("Q", self._body)
        if sys.byteorder == "big":
            cells.byteswap()
        return cells[at::len(self._cls._fields)]


def runs(rows: Sequence[Any], at: int) -> Iterator[tuple[int, int, int]]:
    """Neighbouring rows with the same value in column `at`: (value, low, high), in order, rows [low, high)."""
    column = rows.column(at) if isinstance(rows, Table) else [row[at] for row in rows]
    low = 0
    for value, group in groupby(column):
        high = low + len(list(group))
        yield value, low, high
        low = high


def part(rows: Sequence[Any], low: int, high: int) -> Iterable[Any]:
    """The rows [low, high) of any sequence of rows."""
    return rows.some(low, high) if isinstance(rows, Table) else rows[low:high]


def pairs(rows: Sequence[Any], low: int, high: int, at: int) -> list[tuple[int, int]]:
    """Columns `at` and `at + 1` of the rows [low, high) of any sequence of rows."""
    return rows.pairs(low, high, at) if isinstance(rows, Table) else [(row[at], row[at + 1]) for row in rows[low:high]]
