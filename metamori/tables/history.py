"""The tree of checkpoints: every index has the index that its state grew from as its parent.

Invariants (asserted by `check`): index 0, the state before the first run, is the root and always there;
a parent is known and smaller than its child; indexes only grow and are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterator


class History:
    """Indexes and their parents."""

    __slots__ = ("_children", "_parents", "indexes")

    def __init__(self) -> None:
        self.indexes: list[int] = [0]  # sorted; not to be changed by callers
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {0: []}

    def add(self, index: int, parent: int) -> None:
        """A new checkpoint. ValueError unless it is the newest; KeyError when the parent is not known."""
        if index <= self.newest:
            raise ValueError(f"index {index} is not above {self.newest}")
        self._children[parent].append(index)
        self._children[index] = []
        self._parents[index] = parent
        self.indexes.append(index)

    @property
    def newest(self) -> int:
        """The highest index, 0 when there is no checkpoint."""
        return self.indexes[-1]

    def parent(self, index: int) -> int:
        """KeyError when the index is not known; 0 has no parent."""
        return self._parents[index]

    def chain(self, index: int) -> list[int]:
        """The index, its parent, its parent's parent … 0. KeyError when the index is not known."""
        return list(self.ancestors(index))

    def ancestors(self, index: int) -> Iterator[int]:
        """The same one by one, for whoever stops on the way."""
        yield index
        while index:
            index = self._parents[index]
            yield index

    def children(self, index: int) -> tuple[int, ...]:
        """The indexes that grew from this one, oldest first. KeyError when it is not known."""
        return tuple(self._children[index])

    def __contains__(self, index: object) -> bool:
        return index in self._children

    def __len__(self) -> int:
        return len(self.indexes)

    def check(self) -> None:
        """Assert the invariants; raises AssertionError."""
        assert self.indexes[0] == 0 and list(self.indexes) == sorted(set(self.indexes)), self.indexes
        assert list(self._parents) == list(self.indexes[1:]), self._parents
        assert set(self._children) == set(self.indexes), self._children
        for index, parent in self._parents.items():
            assert parent in self and parent < index, (index, parent)
            assert index in self._children[parent], (index, parent)
        assert sum(map(len, self._children.values())) == len(self._parents)


def spans_text(indexes: list[int], most: int = 0) -> str:
    """0 to 4, 7, 9 to 12. most: only the last so many spans, after an ellipsis."""
    spans: list[list[int]] = []
    for index in indexes:
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    texts = [f"{low} to {high}" if low < high else f"{low}" for low, high in spans]
    return ", ".join(["…", *texts[-most:]] if 0 < most < len(texts) else texts)
