"""A record is what `dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metamori.tables.record import record


@record
class Ours:
    a: int
    b: tuple[int, ...] = ()


@record
class One:
    a: int


@dataclass(frozen=True, slots=True)
class Theirs:
    a: int
    b: tuple[int, ...] = ()


NUMBERS = st.integers(0, 3)
FIELDS = st.tuples(NUMBERS, st.lists(NUMBERS, max_size=2).map(tuple))


@given(FIELDS, FIELDS)
def test_the_same_answers(left: tuple, right: tuple) -> None:
    ours, theirs = Ours(*left), Theirs(*left)
    assert (ours == Ours(*right)) == (theirs == Theirs(*right)) and (ours != Ours(*right)) == (theirs != Theirs(*right))
    assert hash(ours) == hash(theirs) and repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert replace(ours, a=7) == Ours(7, left[1]) and copy.deepcopy(ours) == ours == pickle.loads(pickle.dumps(ours))
    assert ours != theirs and One(left[0]) != left[0] and (One(left[0]) == One(right[0])) == (left[0] == right[0])


def test_nothing_of_it_changes() -> None:
    ours = Ours(1)
    with pytest.raises(FrozenInstanceError):
        ours.a = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del ours.a
    with pytest.raises((AttributeError, TypeError)):
        ours.c = 2  # type: ignore[attr-defined]
    assert ours.__slots__ == ("a", "b")
