"""What may be seen amid lines that several do at once, and what one that was killed may have done of its own.

Each actor has come some calls far. A write under way when its process is killed may have been done up to a page's
end: the kernel looks for a deadly signal between two pages. Nobody else's write comes in its middle. In a run the
position that it was written at, if others share it, may not have moved, or not so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import TYPE_CHECKING

from together import Item, process_of, steps

if TYPE_CHECKING:
    from world import World

Reached = AbstractContextManager[None]
PAGE = 4096
LENGTH_AT = {"write": 2, "writev": 2, "pwrite": 2, "pwritev": 2, "fill_write": 3}  # which word of the call


@dataclass(frozen=True)
class Far:
    """How far one actor has come: whole calls, then perhaps a call of which a part was done."""

    whole: tuple[tuple[str, ...], ...]
    torn: tuple[str, ...] = ()


def _prefixes(lines: Sequence[list[str]], least: int = 0) -> list[Far]:
    calls = [tuple(step) for line in lines for step in steps(line)]
    return [Far(tuple(calls[:n])) for n in range(least, len(calls) + 1)]


def _torn(done: Sequence[list[str]], under_way: list[str]) -> list[Far]:
    before = tuple(tuple(step) for line in done for step in steps(line))
    calls = [tuple(step) for step in steps(under_way)]
    return [Far((*before, *calls[:n]), call) for n, call in enumerate(calls) if call[0] in LENGTH_AT]


def possible(world: World, items: list[Item], tree: Callable[[], str], answers: Sequence[str] = ()) -> frozenset[str]:
    """The trees that a cut may show: each actor some calls far, the one that asked for it exactly so far.

    answers: where somebody was killed, which had done no more than they say."""
    lines: dict[str, list[list[str]]] = {}
    exactly: dict[str, int] = {}
    torn: dict[str, list[Far]] = {}
    for place, (who, line) in enumerate(items):
        mine, answer = lines.setdefault(who, []), answers[place] if answers else ""
        if line[0] == "cut" and answer not in ("?", "-"):
            exactly[who] = len([step for each in mine for step in steps(each)])
        if answer == "?":
            torn[who] = _torn(mine, line)
        if answer != "-":
            mine.append(line)
    ways = {}
    for who in sorted(lines):
        far = _prefixes(lines[who])
        ways[who] = [far[exactly[who]]] if who in exactly else far + torn.get(who, [])
    found = set()
    for reached in _states(world, ways):
        with reached:
            found.add(tree())
    return frozenset(found)


def outcomes(world: World, items: list[Item], answers: Sequence[str], dead: set[str]) -> Iterator[Reached]:
    """When some were killed: the states that may be there now, whole calls first. Contexts."""
    lines: dict[str, list[list[str]]] = {}
    begun: dict[str, list[str]] = {}
    for (who, line), answer in zip(items, answers):
        mine = lines.setdefault(who, [])
        if process_of(who) not in dead or answer not in ("?", "-"):
            mine.append(line)
        elif answer == "?":
            begun[who] = line
    ways = {}
    for who in sorted(lines):
        done = lines[who]
        least = len([step for line in done for step in steps(line)])
        ways[who] = _prefixes([*done, begun[who]], least) + _torn(done, begun[who]) if who in begun else [
            _prefixes(done)[-1]]
    return _states(world, ways)


def in_its_order(items: list[Item], answers: Sequence[str]) -> bool:
    """Each actor has done some, was in at most one, and has not begun the rest."""
    seen: dict[str, str] = {}
    for (who, _), answer in zip(items, answers):
        kind = answer if answer in ("?", "-") and who != "x" else "done"
        before = seen.get(who, "done")
        if before != "done" and kind != "-":
            return False
        seen[who] = kind
    return True


def moments(items: list[Item]) -> int:
    """How many cuts there are at most."""
    count = Counter(who for who, line in items for _ in steps(line))
    return prod(n + 1 for n in count.values())


def _states(world: World, ways: dict[str, list[Far]]) -> Iterator[Reached]:
    for count in range(len(ways) + 1):         # of calls of which a part was done
        for torn in combinations(ways, count):
            choices = [[far for far in ways[who] if bool(far.torn) == (who in torn)] for who in ways]
            for some in product(*choices):
                yield from _orders(world, dict(zip(ways, some)))


def _orders(world: World, far: dict[str, Far]) -> Iterator[Reached]:
    """The order does not matter but for what was torn: it may lie between those that go to the same place."""
    calls = [(who, call) for who in far for call in far[who].whole]
    torn = [who for who in far if far[who].torn]
    if not torn:
        yield world.after(calls)
        return
    first = torn[0]                            # two that were torn at once: the second one stays behind the first
    own = [call for call in calls if call[0] == first]
    others = [call for call in calls if call[0] != first] + [(who, far[who].torn) for who in torn[1:]]
    starts: dict[int, int] = {}    # where it would begin, after some of the others
    call = far[first].torn
    at = LENGTH_AT[call[0]]
    for place in reversed(range(len(others) + 1)):
        with world.after([*own, *others[:place]]):
            starts.setdefault(world.would_write_at(first, call), place)
    for start, place in starts.items():
        before = [*own, *others[:place]]
        length = int(call[at])
        ends = [keep for keep in range(1, length) if (start + keep) % PAGE == 0]
        for keep in ends:
            short = (*call[:at], str(keep), *call[at + 1 :])
            yield world.after([*before, (first, short), *others[place:]])
        if not world.restorable or call[0] not in ("write", "writev"):
            continue
        for keep, reached in product([*ends, length], [0, *ends]):    # docs/limits.md: the position is left behind
            short, back = (*call[:at], str(keep), *call[at + 1 :]), ("lseek", call[1], str(start + reached), "set")
            yield world.after([*before, (first, short), (first, back), *others[place:]])
