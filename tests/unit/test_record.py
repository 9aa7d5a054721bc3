"""A record is what `dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from dataclasses import field as theirs_field
from typing import Any
from typing import NamedTuple as TheirTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metamori.tables.record import NamedTuple, field, mutable, names_of, record
from metamori.tables.record import replace as ours_replace


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


@mutable
class OurState:
    a: int
    b: list[int] = field(default_factory=list)
    c: str = field(default_factory=str, compare=False)
    d: int = 5

    def __post_init__(self) -> None:
        self.d += self.a


@dataclass(slots=True)
class TheirState:
    a: int
    b: list[int] = theirs_field(default_factory=list)
    c: str = theirs_field(default_factory=str, compare=False)
    d: int = 5

    def __post_init__(self) -> None:
        self.d += self.a


GIVEN = st.fixed_dictionaries({"a": NUMBERS}, optional={"b": st.lists(NUMBERS, max_size=2), "c": st.text(max_size=1),
                                                        "d": NUMBERS})


@given(GIVEN, GIVEN)
def test_one_that_changes_gives_the_same_answers(left: dict, right: dict) -> None:
    ours, theirs = OurState(**left), TheirState(**left)
    assert repr(ours) == repr(theirs).replace("Their", "Our") and asdict(ours) == asdict(theirs)
    assert (ours == OurState(**right)) == (theirs == TheirState(**right))
    assert ours.b is not OurState(1).b and OurState.__hash__ is TheirState.__hash__ is None
    ours.a = 9
    assert copy.deepcopy(ours) == ours == pickle.loads(pickle.dumps(ours)) and ours != OurState(**left)
    one, other = ([(each.name, each.compare) for each in fields(both)] for both in (ours, theirs))
    assert one == other


@pytest.mark.parametrize("before", [0, 100])
def test_what_is_wrong_is_said_as_by_any_function(before: int) -> None:
    """Also by the first records of a class, whose `__init__` is not compiled yet."""
    @record
    class Fresh:
        a: int
        b: tuple[int, ...] = ()

    assert all(Fresh(n, b=(n,)) == Fresh(b=(n,), a=n) != Fresh(n) for n in range(before))
    for wrong in (lambda: Fresh(), lambda: Fresh(1, (), 3), lambda: Fresh(1, z=2), lambda: Fresh(1, a=1),
                  lambda: Fresh(b=()), lambda: ours_replace(Fresh(1), z=2)):
        with pytest.raises(TypeError):
            wrong()
    assert ours_replace(Fresh(1), b=(2,)) == Fresh(1, (2,)) and names_of(Fresh) == ("a", "b")


class OurTuple(NamedTuple):
    """Its own words."""

    a: int
    b: str = "none"

    @property
    def twice(self) -> int:
        return 2 * self.a


class TheirTwin(TheirTuple):
    """Its own words."""

    a: int
    b: str = "none"

    @property
    def twice(self) -> int:
        return 2 * self.a


@pytest.mark.parametrize("kind", [OurTuple, TheirTwin])
def test_tuples_are_those_of_typing(kind: Any) -> None:
    assert kind(1) == kind(a=1) == kind(1, "none") == (1, "none") and hash(kind(1)) == hash((1, "none"))
    made = kind(1, b="two")
    assert (made.a, made.b, made.twice) == (1, "two", 2) and (*made,) == (1, "two") and isinstance(made, tuple)
    assert repr(made) == f"{kind.__name__}(a=1, b='two')" and made._asdict() == {"a": 1, "b": "two"}
    assert made._replace(a=3) == kind(3, "two") and kind._make([1, "two"]) == made
    assert {type(made._replace(a=3)), type(kind._make([1, "two"])), type(made)} == {kind}
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made)) and type(copy.copy(made)) is kind
    assert kind._fields == kind.__match_args__ == ("a", "b") and kind._field_defaults == {"b": "none"}
    assert kind.__doc__ == "Its own words." and kind.__name__ == kind.__qualname__ and kind.__module__ == __name__
    for wrong in (lambda: kind(), lambda: kind(1, "two", 3), lambda: kind(1, c=2), lambda: kind(1, a=2),
                  lambda: kind._make([1]), lambda: kind._make([1, "two", 3])):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises((TypeError, ValueError)):
        made._replace(c=1)
    with pytest.raises(AttributeError):
        made.a = 2
    with pytest.raises(AttributeError):
        made.c = 2


def test_a_tuple_that_was_filled_wrong_first_is_filled_right_next() -> None:
    class Late(NamedTuple):
        a: int

    with pytest.raises(TypeError):
        Late()  # type: ignore[call-arg]
    assert Late(5).a == 5
