"""Which indexes a prune keeps, against the rules read out loud."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metamori.tables.retention import Rules, choose

times = st.lists(st.integers(0, 10_000), max_size=30).map(
    lambda seconds: [(number + 3, each * 10**9) for number, each in enumerate(sorted(seconds))])


@given(times, st.integers(0, 40))
def test_keep_last(found, count):
    last = found[-count:] if count else []
    assert choose(found, Rules(keep_last=count), ()) == {index for index, _ in last}


@given(times, st.integers(1, 3000))
def test_keep_every(found, seconds):
    kept = choose(found, Rules(keep_every_s=seconds), ())
    when = dict(found)
    assert not found or max(when) in kept
    ordered = sorted(kept)
    for low, high in pairwise(ordered):
        assert when[high] - when[low] >= seconds * 10**9
    for index in when.keys() - kept:       # each of the others is too near to the next kept one
        above = min(each for each in kept if each > index)
        assert when[above] - when[index] < seconds * 10**9


sizes_of = st.dictionaries(st.integers(0, 40), st.integers(1, 100))


@given(times, sizes_of, st.integers(1, 500), st.sets(st.integers(3, 32)))
def test_max_bytes_keeps_the_longest_run_that_fits(found, sizes, limit, always):
    def nbytes(those):
        return sum(sizes.get(each, 1) for each in those)

    always &= {index for index, _ in found}
    kept = choose(found, Rules(max_bytes=limit), always, nbytes)
    indexes = [index for index, _ in found]
    newest = {count: always.union(indexes[len(indexes) - count:]) for count in range(len(indexes) + 1)}
    longest = max((count for count, those in newest.items() if nbytes(those) <= limit), default=0)
    assert kept == always.union(indexes[len(indexes) - longest:])


@given(times, st.integers(1, 9), st.integers(1, 3000), st.sets(st.integers(3, 32)))
def test_what_any_rule_keeps_stays(found, count, seconds, always):
    both = choose(found, Rules(keep_last=count, keep_every_s=seconds), always)
    assert both == (choose(found, Rules(keep_last=count), ()) | choose(found, Rules(keep_every_s=seconds), ()) | always)
