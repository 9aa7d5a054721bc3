"""Whom a socket that listens has to accept first, by what the kernel says of its clients."""

from metamori.runtime.memory import backlog

PARENT, CHILD = [30453934, 30453935, 30453936], [30453617, 30453618]   # of two processors, as a run had them


def in_order(ages: dict[int, int]) -> list[int]:
    return list(backlog._in_order(ages, [*PARENT, *CHILD]))


def test_a_child_on_another_processor_asks_within_the_same_tick() -> None:
    assert in_order(dict.fromkeys([*CHILD, *PARENT], 64)) == [*PARENT, *CHILD]


def test_who_asked_a_tick_before_is_first() -> None:
    assert in_order({**dict.fromkeys(PARENT, 60), **dict.fromkeys(CHILD, 64)}) == [*CHILD, *PARENT]


def test_a_processor_numbers_in_order() -> None:
    """Whatever the descriptors: some are closed between."""
    assert list(backlog._in_order(dict.fromkeys(PARENT, 64), PARENT[::-1])) == PARENT
