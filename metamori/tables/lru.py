"""Which buffered ranges to let go first: the least recently used (thesis 4.3.2).

Invariants (asserted by `check`): keys run from oldest to youngest; `nbytes` is the sum of their sizes.
The table only orders keys; moving the bytes is its caller's work, followed by `forget`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class Recency:
    """Keys with their sizes in bytes, oldest first, against a budget in bytes."""

    __slots__ = ("_sizes", "budget", "nbytes")

    def __init__(self, budget: int) -> None:
        if budget < 0:
            raise ValueError(f"a budget is at least 0 bytes: {budget}")
        self.budget = budget
        self.nbytes = 0
        self._sizes: OrderedDict[Hashable, int] = OrderedDict()

    def touch(self, key: Hashable, nbytes: int) -> None:
        """`key` was used and has `nbytes` bytes now: it is the youngest (thesis makeNewYoungest)."""
        if nbytes < 0:
            raise ValueError(f"a size is at least 0 bytes: {nbytes}")
        self.nbytes += nbytes - self._sizes.get(key, 0)
        self._sizes[key] = nbytes
        self._sizes.move_to_end(key)

    def forget(self, key: Hashable) -> None:
        """`key` is no longer in memory; a key that was not known is no error."""
        self.nbytes -= self._sizes.pop(key, 0)

    def over(self) -> int:
        """Bytes over the budget, 0 when within it."""
        return max(0, self.nbytes - self.budget)

    def oldest(self, nbytes: int) -> list[Hashable]:
        """The fewest oldest keys that free `nbytes` bytes, all keys if there is not so much."""
        keys: list[Hashable] = []
        for key, size in self._sizes.items():
            if nbytes <= 0:
                break
            keys.append(key)
            nbytes -= size
        return keys

    def clear(self) -> None:
        self._sizes.clear()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._sizes

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        assert self.nbytes == sum(self._sizes.values()), (self.nbytes, self._sizes)
        assert all(size >= 0 for size in self._sizes.values()), self._sizes
