"""Groups, rings and heads, against what the manual says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metamori.errors import Usage
from metamori.levels.setup.settings import Settings
from metamori.levels.setup.topology import arrange


@given(st.integers(1, 4), st.integers(2, 5), st.integers(1, 3))
def test_members_of_a_group_never_share_a_node(node_size, group_size, sectors):
    made = Settings(node_size=node_size, group_size=group_size)
    found = arrange(["h"] * (node_size * group_size * sectors), made)
    everybody = sorted(found.workers + found.head_ranks)
    assert everybody == list(range(node_size * group_size * sectors))
    for rank in everybody:
        group = found.group(rank)
        assert len(group) == group_size and len({found.node_of(each) for each in group}) == group_size
        assert group[found.place(rank)[2]] == rank
        assert all((each in found.head_ranks) == (rank in found.head_ranks) for each in group)


def test_hosts_are_checked_without_local_test():
    made = Settings(node_size=2, group_size=2, local_test=0)
    found = arrange(["b", "a", "b", "a"], made)
    assert found.names == ("b", "a") and found.nodes == ((0, 2), (1, 3))
    with pytest.raises(Usage, match="node b has 3"):
        arrange(["b", "b", "b", "a"], made)


def test_a_replaced_node_takes_the_place_of_the_lost_one():
    made = Settings(node_size=1, group_size=4, local_test=0)
    assert arrange(["d", "new", "a", "c"], made, ("a", "b", "c", "d")).names == ("a", "new", "c", "d")


@pytest.mark.parametrize("count, node, group, said", [(3, 2, 2, "node_size = 2"), (6, 1, 4, "multiple of 4")])
def test_numbers_that_do_not_fit(count, node, group, said):
    with pytest.raises(Usage, match=said):
        arrange(["h"] * count, Settings(node_size=node, group_size=group))
