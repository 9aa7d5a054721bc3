"""Pif against a byte model, and the rule that rebuilds a cumulative map from the records of a chain."""

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metamori.tables.aml import AML, AddressMap
from metamori.tables.pif import Pif
from metamori.tables.view import BUFFER, HOME, ZERO, resolve

TOP = 30


def buffer_bytes(amls) -> set[int]:
    return {aml.offset + i for aml in amls for i in range(aml.end - aml.start)}


class PifMachine(RuleBasedStateMachine):
    """The file holds 20 bytes that nobody writes; everything goes to the buffer of run 1, byte after byte."""

    def __init__(self) -> None:
        super().__init__()
        self.pif = Pif(inode=1, dev=2, ino=3, btime_ns=4, filename=b"/f", size=20)
        self.model: list[object] = [(HOME, b) for b in range(20)]
        self.next = 0
        self.rebuilt = AddressMap()
        self.saved: list[tuple] = []

    @rule(start=st.integers(0, TOP), length=st.integers(1, 10), again=st.booleans())
    def write(self, start: int, length: int, again: bool) -> None:
        offset = start if again and not self.saved and not len(self.pif.current) else self.next
        self.next = max(self.next, offset + length)
        owned = buffer_bytes(self.pif.current.find(start, start + length))
        assert buffer_bytes(self.pif.write_range(AML(start, start + length, 1, offset))) == owned
        self.model += [ZERO] * (start - len(self.model))
        self.model[start:start + length] = [(BUFFER, offset + i) for i in range(length)]

    @rule(size=st.integers(0, TOP))
    def truncate(self, size: int) -> None:
        self.pif.truncate(size)
        self.model = self.model[:size] + [ZERO] * (size - len(self.model))

    @rule()
    def checkpoint(self) -> None:
        entry = self.pif.entry()
        closed = self.pif.close_epoch()
        self.rebuilt.cut(entry.cut)
        self.rebuilt.overlay(closed)
        assert self.rebuilt == self.pif.cumulative, "C_k is not (C_parent cut to cut_k) under D_k"
        self.saved.append((entry, self.rebuilt.copy(), list(self.model)))

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def restore(self, data) -> None:
        entry, cumulative, self.model = copy.deepcopy(data.draw(st.sampled_from(self.saved)))
        self.pif.reload(cumulative, entry)
        self.rebuilt = cumulative.copy()
        assert self.pif.size == entry.size and not self.pif.epochs and len(self.pif.current) == 0

    @invariant()
    def agrees(self) -> None:
        self.pif.check()
        assert self.pif.size == len(self.model)
        seen: list[object] = []
        for piece in resolve(self.pif.size, self.pif.home_limit, self.pif.cumulative, []):
            for b in range(piece.start, piece.end):
                if piece.kind == BUFFER:
                    seen.append((BUFFER, piece.offset + b - piece.start))
                else:
                    seen.append((HOME, b) if piece.kind == HOME and b < 20 else ZERO)
        assert seen == self.model


PifMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestPif = PifMachine.TestCase
