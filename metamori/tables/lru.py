"""What was used last, as much of it as has room: the least recently used goes first (thesis 4.3.2).

Invariants (asserted by `check`): keys run from oldest to youngest; `weight` is the sum of what the values weigh; above
`room` only one is held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic, TypeVar

    Key = TypeVar("Key", bound=Hashable)
    Value = TypeVar("Value")
else:
    Key = Value = None
    Generic = {(Key, Value): object}


def _one(_: object) -> int:
    return 1


def _nothing(_: object) -> None:
    pass


class Recent(Generic[Key, Value]):
    """Values by key, oldest first. weigh: what a value takes of the room, each time the same; 1 by default. let_go:
    called for each value that leaves by itself or by `clear`."""

    __slots__ = ("_held", "_let_go", "_weigh", "room", "weight")

    def __init__(self, room: int, weigh: Callable[[Value], int] = _one,
                 let_go: Callable[[Value], object] = _nothing) -> None:
        self.room, self.weight = room, 0
        self._weigh, self._let_go = weigh, let_go
        self._held: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """None when it is not held; else it is the youngest now (thesis makeNewYoungest)."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: Key, value: Value) -> None:
        """The youngest from now on, in place of what the key had; the oldest go as long as there is no room."""
        before = self._held.pop(key, None)
        self._held[key] = value
        self.weight += self._weigh(value) - (0 if before is None else self._weigh(before))
        while self.weight > self.room and len(self._held) > 1:
            self._drop(*self._held.popitem(last=False))

    def clear(self) -> None:
        while self._held:
            self._drop(*self._held.popitem())

    def values(self) -> Iterator[Value]:
        """Oldest first. Nothing becomes younger by it."""
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def _drop(self, _: Key, value: Value) -> None:
        self.weight -= self._weigh(value)
        self._let_go(value)

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        assert self.weight == sum(map(self._weigh, self._held.values())), (self.weight, self._held)
        assert self.weight <= self.room or len(self._held) == 1, (self.weight, self.room)
