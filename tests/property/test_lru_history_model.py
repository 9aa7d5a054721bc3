"""Recent against a plain list, History against a plain dict of parents."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from metamori.tables.history import History
from metamori.tables.lru import Recent

keys = st.integers(0, 8)
ROOM = 100


class RecentMachine(RuleBasedStateMachine):
    """A value is (number, weight): no two are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[tuple[int, int]] = []
        self.table: Recent[int, tuple[int, int]] = Recent(ROOM, lambda value: value[1], self.gone.append)
        self.model: list[tuple[int, tuple[int, int]]] = []
        self.count = 0

    @rule(key=keys, weight=st.integers(0, 130))
    def put(self, key: int, weight: int) -> None:
        self.count += 1
        self.table.put(key, (self.count, weight))
        self.model = [pair for pair in self.model if pair[0] != key] + [(key, (self.count, weight))]
        expected = []
        while sum(value[1] for _, value in self.model) > ROOM and len(self.model) > 1:
            expected.append(self.model.pop(0)[1])
        assert self.gone == expected
        self.gone.clear()

    @rule(key=keys)
    def get(self, key: int) -> None:
        found = dict(self.model).get(key)
        assert self.table.get(key) == found
        if found is not None:
            self.model = [pair for pair in self.model if pair[0] != key] + [(key, found)]

    @rule()
    def clear(self) -> None:
        self.table.clear()
        assert sorted(self.gone) == sorted(value for _, value in self.model)
        self.gone.clear()
        self.model = []

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert self.table.weight == sum(value[1] for _, value in self.model)
        assert list(self.table.values()) == [value for _, value in self.model]
        assert len(self.table) == len(self.model) and all(key in self.table for key, _ in self.model)


class HistoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = History()
        self.parents: dict[int, int] = {}

    @rule(data=st.data(), skip=st.integers(1, 3))
    def add(self, data, skip: int) -> None:
        parent = data.draw(st.sampled_from(list(self.table.indexes)))
        index = self.table.newest + skip
        self.table.add(index, parent)
        self.parents[index] = parent

    @rule(data=st.data())
    def add_again(self, data) -> None:
        index = data.draw(st.sampled_from(list(self.table.indexes)))
        with pytest.raises(ValueError):
            self.table.add(index, 0)

    @rule()
    def add_to_nothing(self) -> None:
        with pytest.raises(KeyError):
            self.table.add(self.table.newest + 1, self.table.newest + 1)

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert list(self.table.indexes) == [0, *self.parents]
        assert self.table.newest == max([0, *self.parents])
        assert len(self.table) == len(self.parents) + 1
        for index in self.table.indexes:
            chain, at = [index], index
            while at:
                at = self.parents[at]
                chain.append(at)
            assert self.table.chain(index) == chain
            assert self.table.children(index) == tuple(i for i, p in self.parents.items() if p == index)
            assert index in self.table
        for index, parent in self.parents.items():
            assert self.table.parent(index) == parent
        for unknown in (-1, self.table.newest + 1):
            assert unknown not in self.table
            with pytest.raises(KeyError):
                self.table.chain(unknown)


RecentMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
HistoryMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestRecent = RecentMachine.TestCase
TestHistory = HistoryMachine.TestCase
