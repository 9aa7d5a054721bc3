"""The axis that all pictures share: checkpoints from left to right, and the lane of each branch.

Invariants (tests/property/test_report_model.py): two checkpoints that have the same lane are of one branch, or
their spans do not meet; an oldest child is in its parent's lane, any other one is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from metamori.report.facts import Checkpoint

WIDTH, LEFT, RIGHT = 960, 170, 96
_SPACING_MAX = 96.0
_STRICT_LANES = 24


def lanes(checkpoints: Sequence[Checkpoint]) -> dict[int, int]:
    """Lane of every index. The oldest child goes on in its parent's lane, each younger one opens another.

    A lane is used again by a branch whose parent lies to the right of all that is in it; when there are many lanes,
    by one that only itself lies there.
    """
    place = {each.index: at for at, each in enumerate(checkpoints)}
    children: dict[int, list[int]] = {}
    for each in checkpoints:
        if each.parent is not None:
            children.setdefault(each.parent, []).append(each.index)
    found: dict[int, int] = {}
    ends: list[int] = []                   # the last place that a lane is taken to
    for each in checkpoints:
        if each.index in found:
            continue
        tip, members = each.index, [each.index]
        while tip in children:
            tip = children[tip][0]
            members.append(tip)
        start = place[each.index if each.parent is None else each.parent]
        lane = next((at for at, end in enumerate(ends) if end < start), len(ends))
        if lane >= _STRICT_LANES:
            own = found.get(-1 if each.parent is None else each.parent)
            lane = next((at for at, end in enumerate(ends) if end < place[each.index] and at != own), len(ends))
        ends += [-1] * (lane + 1 - len(ends))
        ends[lane] = place[tip]
        found.update(dict.fromkeys(members, lane))
    return found


class Axis:
    """Where a checkpoint is, in user units of a picture WIDTH wide."""

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        self.indexes = [each.index for each in checkpoints]
        self.spacing = min(_SPACING_MAX, (WIDTH - LEFT - RIGHT) / max(1, len(self.indexes)))
        self._place = {index: at for at, index in enumerate(self.indexes)}

    def x(self, index: int) -> float:
        """The middle of a checkpoint's column."""
        return LEFT + (self._place[index] + 0.5) * self.spacing

    def columns(self, at_most: int = 220) -> list[list[int]]:
        """The indexes in order, several to a column where there are too many to be seen one by one."""
        each = -(-len(self.indexes) // at_most)
        return [self.indexes[at:at + each] for at in range(0, len(self.indexes), each)]

    def span(self, column: list[int]) -> tuple[float, float]:
        """Left edge and width of a column."""
        return self.x(column[0]) - self.spacing / 2, self.spacing * len(column)

    def labelled(self, room: float) -> list[int]:
        """Every nth index, n a round number, so that each label has `room` units; the last one always."""
        step = next(n for power in (1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7) for n in (power, 2 * power, 5 * power)
                    if n * self.spacing >= room or n > len(self.indexes))
        chosen = self.indexes[::step]
        if chosen[-1] != self.indexes[-1]:
            if self.x(self.indexes[-1]) - self.x(chosen[-1]) < room:
                chosen.pop()
            chosen.append(self.indexes[-1])
        return chosen
