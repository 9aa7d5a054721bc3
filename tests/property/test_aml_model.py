"""AddressMap against a byte-array model: file byte -> (run, buffer byte)."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from metamori.tables.aml import AML, AddressMap

TOP = 48
Model = dict[int, tuple[int, int]]


def bytes_of(amls) -> Model:
    return {a.start + i: (a.run, a.offset + i) for a in amls for i in range(a.end - a.start)}


def ranges(shortest: int = 1):
    return st.tuples(st.integers(0, TOP - 1), st.integers(shortest, TOP)).map(
        lambda pair: (pair[0], min(TOP, sum(pair))))


def mappings():
    """AMLs of which many continue each other: the offset is often the file offset plus a small constant."""
    return st.builds(lambda r, run, shift: AML(r[0], r[1], run, r[0] + shift),
                     ranges(), st.integers(1, 2), st.sampled_from([0, 0, 0, 1, TOP]))


class MapMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.map = AddressMap()
        self.model: Model = {}

    @rule(aml=mappings())
    def insert(self, aml: AML) -> None:
        expected = {b: at for b, at in self.model.items() if aml.start <= b < aml.end}
        assert bytes_of(self.map.insert(aml)) == expected
        self.model.update(bytes_of([aml]))

    @rule(amls=st.lists(mappings(), max_size=5), in_order=st.booleans())
    def extend(self, amls: list[AML], in_order: bool) -> None:
        amls = sorted(amls) if in_order else amls
        self.map.extend(amls)
        for aml in amls:
            self.model.update(bytes_of([aml]))

    @rule(amls=st.lists(mappings(), max_size=5))
    def overlay(self, amls: list[AML]) -> None:
        other = AddressMap(amls)
        self.map.overlay(other)
        self.model.update(bytes_of(other))

    @rule(span=ranges(0))
    def remove(self, span: tuple[int, int]) -> None:
        expected = {b: at for b, at in self.model.items() if span[0] <= b < span[1]}
        assert bytes_of(self.map.remove(*span)) == expected
        self.model = {b: at for b, at in self.model.items() if b not in expected}

    @rule(size=st.integers(0, TOP))
    def cut(self, size: int) -> None:
        assert bytes_of(self.map.cut(size)) == {b: at for b, at in self.model.items() if b >= size}
        self.model = {b: at for b, at in self.model.items() if b < size}

    @rule(span=ranges(0))
    def look(self, span: tuple[int, int]) -> None:
        found = list(self.map.find(*span))
        assert all(aml.start < aml.end for aml in found)
        assert bytes_of(found) == {b: at for b, at in self.model.items() if span[0] <= b < span[1]}
        missing = [b for low, high in self.map.gaps(*span) for b in range(low, high)]
        assert missing == [b for b in range(*span) if b not in self.model]
        gaps = list(self.map.gaps(*span))
        assert all(low < high for low, high in gaps)
        assert all(one[1] < two[0] for one, two in pairwise(gaps))

    @rule()
    def copy(self) -> None:
        old = self.map
        self.map = old.copy()
        assert self.map == old
        old.cut(0)

    @invariant()
    def agrees(self) -> None:
        self.map.check()
        assert bytes_of(self.map) == self.model
        assert self.map.nbytes == len(self.model)
        assert self.map == AddressMap(AML(b, b + 1, *at) for b, at in self.model.items())


MapMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
TestAddressMap = MapMachine.TestCase


@given(st.lists(mappings(), max_size=12))
@settings(max_examples=150, deadline=None)
def test_equal_maps_are_equal_bytes_whatever_the_way_there(amls: list[AML]) -> None:
    one = AddressMap(amls)
    two = AddressMap()
    for aml in reversed(amls):
        for low, high in list(two.gaps(aml.start, aml.end)):
            two.insert(aml.clip(low, high))
    assert one == two
    assert len(one) == len(two)
