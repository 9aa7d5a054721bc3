"""Pictures against plain models: lanes over random trees, shares of cells byte by byte, labels that do not meet."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metamori.report.axis import Axis, lanes
from metamori.report.facts import Checkpoint
from metamori.report.heatmap import ROWS, shares


@st.composite
def trees(draw: st.DrawFn) -> list[Checkpoint]:
    """Every index grew from an older one; some were pruned away."""
    found = [Checkpoint(0, None, 0, "", "start", 0, 0, False)]
    index = 0
    for _ in range(draw(st.integers(0, 60))):
        index += draw(st.integers(1, 3))
        near = draw(st.booleans())
        parent = found[-1 if near else draw(st.integers(0, len(found) - 1))].index
        found.append(Checkpoint(index, parent, index, "", "checkpoint", index, 1, False))
    return found


@given(trees())
def test_a_lane_holds_one_branch_at_a_time(tree: list[Checkpoint]) -> None:
    lane = lanes(tree)
    assert lane.keys() == {each.index for each in tree}
    children: dict[int, list[int]] = {}
    for each in tree[1:]:
        assert each.parent is not None
        children.setdefault(each.parent, []).append(each.index)
    branches = []
    for each in tree:
        is_oldest = each.parent is not None and children[each.parent][0] == each.index
        if is_oldest:
            assert lane[each.index] == lane[each.parent]  # type: ignore[index]
            continue
        members = [each.index]
        while members[-1] in children:
            members.append(children[members[-1]][0])
        branches.append((lane[each.index], members[0], members[-1]))
        if each.parent is not None:
            assert lane[each.index] != lane[each.parent]
    for at, (row, first, last) in enumerate(branches):
        for other_row, other_first, other_last in branches[:at]:
            assert row != other_row or last < other_first or other_last < first


@given(st.integers(1, 2000), st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 300)), max_size=6))
def test_the_shares_of_cells_are_those_of_their_bytes(longest: int, pairs: list[tuple[int, int]]) -> None:
    marked: set[int] = set()
    ranges = []
    for start, length in pairs:
        end = min(longest, start + length)
        if start < end and not marked & set(range(start, end)):
            marked |= set(range(start, end))
            ranges.append((start, end))
    found = shares(tuple(ranges), longest)
    assert len(found) == ROWS and all(0 <= share <= 1 for share in found)
    assert abs(sum(found) * longest / ROWS - len(marked)) < 1e-6 * longest + 1e-6
    for byte in marked:
        assert found[min(int(byte / (longest / ROWS)), ROWS - 1)] > 0


@given(trees(), st.floats(1, 100))
def test_labels_have_their_room(tree: list[Checkpoint], room: float) -> None:
    axis = Axis(tree)
    chosen = axis.labelled(room)
    assert chosen[-1] == tree[-1].index
    places = [axis.x(index) for index in chosen]
    assert all(after - before >= room - 1e-6 for before, after in pairwise(places))
    assert [index for column in axis.columns(7) for index in column] == axis.indexes
