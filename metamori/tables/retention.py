"""Which indexes a prune keeps. What any rule keeps stays; what no rule keeps goes, index 0 like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from metamori.tables.record import record


@record
class Rules:
    """A rule of 0 keeps nothing.

    keep_last: the newest so many. keep_every_s: the newest, and going back from it each next one that is at
    least so many seconds older than the last kept. max_bytes: the newest, as many as fit into so many bytes.
    """

    keep_last: int = 0
    keep_every_s: float = 0.0
    max_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.keep_last or self.keep_every_s or self.max_bytes)


def choose(
    times_ns: Sequence[tuple[int, int]], rules: Rules, always: Iterable[int],
    nbytes: Callable[[set[int]], int] | None = None,
) -> set[int]:
    """The indexes to keep, `always` among them. `times_ns`: (index, ns since 1970), by index.

    `nbytes` says how large the store is with only these indexes; asked only where there is a limit.
    """
    indexes = [index for index, _ in times_ns]
    kept = set(always)
    if rules.keep_last:
        kept.update(indexes[-rules.keep_last:])
    if rules.keep_every_s:
        kept.update(_spaced(times_ns, int(rules.keep_every_s * 1e9)))
    if rules.max_bytes:
        assert nbytes is not None
        kept.update(_fitting(indexes, kept, lambda those: nbytes(those) <= rules.max_bytes))
    return kept


def _spaced(times_ns: Sequence[tuple[int, int]], apart_ns: int) -> list[int]:
    found: list[int] = []
    last_ns = 0
    for index, time_ns in reversed(times_ns):
        if not found or last_ns - time_ns >= apart_ns:
            found.append(index)
            last_ns = time_ns
    return found


def _fitting(indexes: list[int], kept: set[int], fits: Callable[[set[int]], bool]) -> list[int]:
    """The longest run of newest indexes that fits together with `kept`; more indexes never take less room."""
    low, high = 0, len(indexes)            # low newest ones fit (or nothing does), high + 1 do not
    while low < high:
        middle = (low + high + 1) // 2
        if fits(kept.union(indexes[len(indexes) - middle:])):
            low = middle
        else:
            high = middle - 1
    return indexes[len(indexes) - low:]
