"""view.resolve and view.differences against the rule for one byte, byte by byte."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.tables.aml import AML, AddressMap
from metamori.tables.view import BUFFER, HOME, LOST, ZERO, Piece, differences, resolve

TOP = 40


def maps(lowest_run: int):
    aml = st.builds(lambda s, n, run, shift: AML(s, min(TOP, s + n), run, s + shift),
                    st.integers(0, TOP - 1), st.integers(1, 12), st.integers(lowest_run, 2),
                    st.sampled_from([0, 0, 9]))
    return st.lists(aml, max_size=6).map(AddressMap)


files = st.tuples(st.integers(0, TOP), st.one_of(st.integers(0, TOP + 2), st.just(2**63 - 1)), maps(1),
                  st.lists(maps(0), max_size=4))


def where(b, size, home_limit, cumulative, undos):
    """The contract, for one byte."""
    for aml in cumulative.find(b, b + 1):
        return BUFFER, aml.run, aml.offset
    if b >= home_limit:
        return ZERO, 0, 0
    for undo in undos:
        for aml in undo.find(b, b + 1):
            return (BUFFER, aml.run, aml.offset) if aml.run else (LOST, 0, 0)
    return HOME, 0, 0


def byte_at(piece: Piece, b: int):
    return piece.kind, piece.run, piece.offset + (b - piece.start if piece.kind == BUFFER else 0)


@given(files)
@settings(max_examples=300, deadline=None)
def test_resolve_is_the_rule_for_every_byte(file):
    size, *rest = file
    pieces = resolve(size, *rest)
    assert [b for p in pieces for b in range(p.start, p.end)] == list(range(size))
    for piece in pieces:
        for b in range(piece.start, piece.end):
            assert byte_at(piece, b) == where(b, size, *rest)
    for one, two in pairwise(pieces):
        assert byte_at(one, one.end) != byte_at(two, two.start), "two pieces that could be one"


@given(files, st.integers(0, TOP))
@settings(max_examples=200, deadline=None)
def test_a_part_is_resolved_as_the_whole(file, start):
    size, *rest = file
    pieces = resolve(size, *rest, start)
    assert [b for p in pieces for b in range(p.start, p.end)] == list(range(start, size))
    assert all(byte_at(piece, b) == where(b, size, *rest) for piece in pieces for b in range(piece.start, piece.end))


@given(files, files)
@settings(max_examples=300, deadline=None)
def test_two_maps_say_the_same_outside_of_what_is_apart(one, two):
    (_, _, mine, _), (_, _, its, _) = one, two
    apart = {b for start, end in mine.apart(its) for b in range(start, end)}
    assert all(list(mine.find(b, b + 1)) == list(its.find(b, b + 1)) for b in set(range(TOP + 12)) - apart)
    assert not mine.apart(mine.copy())


@given(files, files)
@settings(max_examples=300, deadline=None)
def test_differences_are_the_bytes_at_other_places(one, two):
    have, want = resolve(*one), resolve(*two)
    at_have = {b: byte_at(p, b) for p in have for b in range(p.start, p.end)}
    at_want = {b: byte_at(p, b) for p in want for b in range(p.start, p.end)}
    expected = [b for b in range(max(one[0], two[0])) if at_have.get(b) != at_want.get(b)]
    seen = []
    for start, end, here, there in differences(have, want):
        assert start < end
        for piece, at in ((here, at_have), (there, at_want)):
            if piece is None:
                assert not any(b in at for b in range(start, end))
            else:
                assert (piece.start, piece.end) == (start, end)
                assert all(byte_at(piece, b) == at[b] for b in range(start, end))
        seen.extend(range(start, end))
    assert seen == expected


@given(files)
@settings(max_examples=100, deadline=None)
def test_nothing_differs_from_itself(file):
    assert differences(resolve(*file), resolve(*file)) == []


@given(files)
@settings(max_examples=100, deadline=None)
def test_resolve_leaves_its_arguments_alone(file):
    _, _, cumulative, undos = file
    before = cumulative.copy(), [undo.copy() for undo in undos]
    resolve(*file)
    assert (cumulative, undos) == before
