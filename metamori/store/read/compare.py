"""How two indexes differ, by path: names, and the byte ranges whose content is not the same."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator

from metamori.errors import StoreBusy
from metamori.store.format.records import NameEntry
from metamori.store.io.os_io import PIECE_BYTES
from metamori.store.read import invalidated
from metamori.store.read.reader import Reader
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.tables.record import record

GRAIN_BYTES = 4096
_ABSENT = NameEntry(b"", "absent")


@record
class Change:
    """what: A added, D deleted, M modified. ranges: half open, of the longer file; sizes in bytes."""

    path: bytes
    what: str
    kind: str
    ranges: tuple[tuple[int, int], ...] = ()
    size: tuple[int, int] = (0, 0)
    mode: tuple[int, int] = (0, 0)


def compare(store: Store, first: int, second: int, exact: bool = True, fits: Callable[[bytes], bool] | None = None,
            ) -> Iterator[Change]:  # fmt: skip
    """Changes from one index to another, by path. `exact` reads the bytes; else ranges that may differ. fits: of which
    paths only."""
    old, new, is_known = store.state(first), store.state(second), not exact
    for path in sorted(filter(fits, old.names.keys() | new.names.keys())):
        before, after = old.names.get(path, _ABSENT), new.names.get(path, _ABSENT)
        if before.kind == after.kind == "absent":
            continue
        if not is_known and before.kind == after.kind == "file":
            for index in (first, second):  # those of which nothing is read, too
                invalidated.require_none(store, index)
            is_known = True
        change = _change(store, old, new, path, before, after, exact)
        if change is not None:
            yield change


def same_content(store: Store, first: State, second: State, inode: int) -> bool:
    """Whether a file has the same bytes at two indexes; where a live run has some of them, whether it has the same
    places."""
    ranges = _candidates(first, second, inode, inode)
    try:
        return not any(_really_different(store, first, second, inode, inode, ranges))
    except StoreBusy:
        return not ranges


def _change(
    store: Store, old: State, new: State, path: bytes, before: NameEntry, after: NameEntry, exact: bool
) -> Change | None:
    kind = before.kind if after.kind == "absent" else after.kind
    sizes = (_size(old, before), _size(new, after))
    modes = (_mode(old, before), _mode(new, after))
    what = "A" if before.kind == "absent" else "D" if after.kind == "absent" else "M"
    ranges: list[tuple[int, int]] = []
    if before.kind == after.kind == "file":
        ranges = _candidates(old, new, before.inode, after.inode)
        if exact and ranges:
            ranges = list(_really_different(store, old, new, before.inode, after.inode, ranges))
    elif sizes != (0, 0):
        ranges = [(0, max(sizes))]
    same = before.kind == after.kind and before.target == after.target and modes[0] == modes[1]
    if what == "M" and same and not ranges and sizes[0] == sizes[1]:
        return None
    return Change(path, what, kind, tuple(ranges), sizes, modes)


def _size(state: State, entry: NameEntry) -> int:
    return state.pifs[entry.inode].size if entry.kind == "file" else 0


def _mode(state: State, entry: NameEntry) -> int:
    if entry.kind in ("absent", "symlink"):
        return 0
    return stat.S_IMODE(state.pifs[entry.inode].mode if entry.kind == "file" else entry.mode)


def _candidates(old: State, new: State, before: int, after: int) -> list[tuple[int, int]]:
    """Ranges that may lie at different places: only these can differ. All, when they are different files."""
    if before != after:
        size = max(old.pifs[before].size, new.pifs[after].size)
        return [(0, size)] if size else []
    return old.apart(new, before)


def _really_different(
    store: Store, old: State, new: State, before: int, after: int, ranges: list[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Compare the bytes, in grains; neighbouring ones that differ become one range, trimmed at both ends."""
    found: list[tuple[int, int]] = []
    parts = [(at, min(at + PIECE_BYTES, end)) for start, end in ranges for at in range(start, end, PIECE_BYTES)]
    with Reader(store, old.index, before, ranges) as one, Reader(store, new.index, after, ranges) as other:
        for (at, stop), left, right in zip(parts, one.read_all(parts), other.read_all(parts), strict=True):
            for low, high in _grains(left, right, stop - at):
                if found and found[-1][1] == at + low:
                    found[-1] = (found[-1][0], at + high)
                else:
                    found.append((at + low, at + high))
    yield from found


def _grains(one: bytes, other: bytes, length: int) -> Iterator[tuple[int, int]]:
    if one == other:
        return
    for low in range(0, length, GRAIN_BYTES):
        high = min(low + GRAIN_BYTES, length)
        left, right = one[low:high], other[low:high]
        if left == right:
            continue
        both = min(len(left), len(right))
        first = next((i for i in range(both) if left[i] != right[i]), both)
        last = high - low - 1
        while last < both and left[last] == right[last]:
            last -= 1
        yield low + first, low + last + 1
