"""A checkpoint with memory lets go of those that stay parked between its tries, also where a try does not begin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from metamori.runtime.area.run_area import NotAtRest
from metamori.runtime.memory import tree
from metamori.runtime.memory.proc_inspect import NotBegun


def test_a_call_that_keeps_the_second_freeze(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go, freezes = [], []

    class OneIsKept(tree.Images):
        def hold(self, kept: frozenset[tuple[int, int]] = frozenset(), waits: bool = True) -> None:
            self.kept = frozenset({(3, 1234)})
            raise NotBegun

    def freeze() -> None:
        freezes.append(1)
        if len(freezes) == 2:
            raise NotAtRest

    head = SimpleNamespace(tree=SimpleNamespace(back=0, processes=0, lost=0))
    area = SimpleNamespace(freeze=freeze, thaw=lambda: None, pointer=None, head=head,
                           process=lambda slot: SimpleNamespace(pid=1234))
    monkeypatch.setattr(tree, "Images", OneIsKept)
    monkeypatch.setattr(tree, "lib", SimpleNamespace(mm_memory_go=lambda area, slots, count: let_go.extend(slots)))
    with pytest.raises(NotAtRest):
        tree.held(SimpleNamespace(), area, 1, False, "refuse")
    assert let_go == [3]
