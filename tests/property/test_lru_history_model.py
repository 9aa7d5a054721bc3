"""Recency against a plain list, History against a plain dict of parents."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from metamori.tables.history import History
from metamori.tables.lru import Recency

keys = st.integers(0, 8)


class RecencyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Recency(100)
        self.model: list[tuple[int, int]] = []

    @rule(key=keys, nbytes=st.integers(0, 60))
    def touch(self, key: int, nbytes: int) -> None:
        self.table.touch(key, nbytes)
        self.model = [pair for pair in self.model if pair[0] != key] + [(key, nbytes)]

    @rule(key=keys)
    def forget(self, key: int) -> None:
        self.table.forget(key)
        self.model = [pair for pair in self.model if pair[0] != key]

    @rule(nbytes=st.integers(-5, 300))
    def oldest(self, nbytes: int) -> None:
        count = next((n for n in range(len(self.model) + 1) if sum(s for _, s in self.model[:n]) >= nbytes),
                     len(self.model))
        assert self.table.oldest(nbytes) == [key for key, _ in self.model[:count]]

    @rule()
    def swap_to_budget(self) -> None:
        for key in self.table.oldest(self.table.over()):
            self.forget(key)
        assert self.table.over() == 0

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model = []

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert self.table.nbytes == sum(size for _, size in self.model)
        assert self.table.over() == max(0, self.table.nbytes - 100)
        assert len(self.table) == len(self.model)
        assert all(key in self.table for key, _ in self.model)
        assert self.table.oldest(10**9) == [key for key, _ in self.model]


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


RecencyMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
HistoryMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestRecency = RecencyMachine.TestCase
TestHistory = HistoryMachine.TestCase
