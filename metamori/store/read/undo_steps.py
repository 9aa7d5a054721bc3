"""Steps of a history that a person means by undo and redo: those in which a file changed.

Checkpoints between which nothing changed are one state, and no step leads from one to the other.
"""

from __future__ import annotations

from metamori.errors import NoSuchCheckpoint, StoreBusy
from metamori.store.read.compare import compare
from metamori.store.read.store import Store


class Steps:
    """Of one store; what was compared once is known."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._same: dict[int, bool] = {0: False}

    def back(self, index: int, count: int) -> int:
        """The state before the last `count` changes. NoSuchCheckpoint where the history does not go back so far."""
        at, left = index, count
        while left:
            at = self._top(at)
            if at == 0:
                done = count - left
                raise NoSuchCheckpoint("there is nothing to undo" if not done else
                                       f"there {'is' if done == 1 else 'are'} only {done} to undo")
            at, left = self._store.history.parent(at), left - 1
        return at

    def forward(self, index: int, count: int) -> int:
        """The state after the next `count` changes, of those that were made last where there are several."""
        at = index
        for done in range(count):
            following = self._following(self._top(at))
            if following is None:
                raise NoSuchCheckpoint("there is nothing to redo" if not done else
                                       f"there {'is' if done == 1 else 'are'} only {done} to redo")
            at = following
        return at

    def _top(self, index: int) -> int:
        """The oldest checkpoint of the same state."""
        while self._is_same(index):
            index = self._store.history.parent(index)
        return index

    def _following(self, top: int) -> int | None:
        """Where a change led to from the state of `top`: of several, whatever has the newest checkpoint behind it."""
        found: list[int] = []
        left = [top]
        while left:
            for child in self._store.history.children(left.pop()):
                (left if self._is_same(child) else found).append(child)
        history = self._store.history
        return next((each for index in reversed(history.indexes) for each in history.ancestors(index) if each in found),
                    None) if found else None

    def _is_same(self, index: int) -> bool:
        """Whether nothing is different from the parent."""
        if index not in self._same:
            self._same[index] = not self._differ(self._store.history.parent(index), index)
        return self._same[index]

    def _differ(self, parent: int, index: int) -> bool:
        if parent not in self._store.indexes:
            return True                    # index 0, pruned
        try:
            return any(compare(self._store, parent, index))
        except StoreBusy:                  # a live run has the only copy of some bytes: their places are compared
            return any(compare(self._store, parent, index, exact=False))
