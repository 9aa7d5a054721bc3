"""Maps that fold late are those that fold at once; a table of rows is the tuple of its rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise, zip_longest

from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.store.format.records import NO_LIMIT, Meta, OffsetEntry, Offsets, PifEntry
from metamori.store.format.row_table import Table, part, runs
from metamori.store.read.maps import Maps
from metamori.store.read.state import State
from metamori.tables.aml import AML, AddressMap
from metamori.tables.view import Difference, Piece, differences, resolve

ROWS = st.lists(st.builds(lambda inode, start, length, buffer, run: OffsetEntry(
    inode, 1, start, start + length, buffer, buffer + length, 0, run), st.integers(1, 3), st.integers(0, 40),
    st.integers(1, 12), st.integers(0, 100), st.integers(0, 2)), max_size=8)
STEPS = st.lists(st.one_of(st.tuples(st.just("add"), ROWS, st.booleans()),
                           st.tuples(st.just("cut"), st.integers(1, 3), st.integers(0, 50)),
                           st.tuples(st.just("copy"), st.integers(0, 9)),
                           st.tuples(st.just("look"), st.integers(1, 3))),
                 max_size=30)


def table(rows: list[OffsetEntry]) -> Table:
    return Table(OffsetEntry, b"".join(struct.pack("<8Q", *row) for row in rows))


def whereabouts(state: State, saved: AddressMap) -> list[object]:
    """Of each byte of file 2, looked for in a copy: the state itself stays unfolded."""
    pif = state.pifs[2]
    pieces = resolve(pif.size, pif.home_limit, state.maps.copy().get(2) or AddressMap(), (saved,))
    return [piece.clip(at, at + 1) for piece in pieces for at in range(piece.start, piece.end)]


def bytes_of(found: Iterable[Difference]) -> list[object]:
    return [(at, *(each and each.clip(at, at + 1) for each in (here, there)))
            for start, end, here, there in found for at in range(start, end)]


def bytes_in(pieces: Iterable[Piece]) -> list[Piece]:
    return [piece.clip(at, at + 1) for piece in pieces for at in range(piece.start, piece.end)]


FILES = st.lists(st.tuples(ROWS, st.integers(1, 50), st.integers(0, 50), st.sampled_from([NO_LIMIT, 30])), min_size=1,
                 max_size=6)


@settings(deadline=None)
@given(FILES, st.booleans(), st.sets(st.integers(0, 26)), st.booleans(), st.booleans())
def test_what_was_spoken_of_is_all_that_differs(files: list[tuple], is_saved: bool, looked_at: set[int],
                                                backwards: bool, made_apart: bool) -> None:
    """A file of two states, whichever of them was folded, and when: outside of the ranges every byte is at the same
    place, or at none."""
    saved, nothing = AddressMap([AML(5, 25, 3, 5)]), AddressMap()
    states, said = [State(0, lambda inode, index: saved if is_saved and index < 2 else nothing)], []
    for index, (rows, size, cut, home_limit) in enumerate(files, 1):
        entries = tuple(row for row in rows if row.inode == 2)
        pif = PifEntry(2, 1, 2, 0, 1, b"/f", 0, 0, size, home_limit, min(cut, size), 0o100644, 0, 0, 0, b"")
        meta = Meta(index, index - 1, index, "", "", 7, 1, pifs=(pif,))
        said.append((meta, Offsets(index, 1, 7, entries if index > 1 else table(list(entries)))))
        states.append(states[-1].successor(said[-1:]))
        if index in looked_at:
            states[index].pieces(2)
        if index + 20 in looked_at and index > 1:
            states[index - 1].pieces(2)
    if made_apart:                         # the same state, read from the disk once more
        states[1] = states[0].successor([said[0]])
    earlier, later = (states[-1], states[1]) if backwards else (states[1], states[-1])
    longer = max(earlier.pifs[2].size, later.pifs[2].size)
    whole = differences(earlier.pieces(2), later.pieces(2)) if is_saved else None   # folds both
    assert 2 in earlier.maps.unlike(later.maps) or whereabouts(earlier, nothing) == whereabouts(later, nothing) \
        or earlier.pifs[2] != later.pifs[2]
    ranges = earlier.apart(later, 2)
    assert not ranges or ranges[-1][1] <= longer
    if whole is not None:
        assert bytes_of(earlier.differences(later, 2)) == bytes_of(whole)
    for state in (earlier, later):         # few and many are found on two ways
        where = [(low, low + 2) for low in range(0, 60, 3)]
        expected = [bytes_in(state.pieces(2, low, high)) for low, high in where]
        assert list(map(bytes_in, state.parts(2, where))) == expected
        assert list(map(bytes_in, state.parts(2, where[3:5]))) == expected[3:5]
    assert all(start < end for start, end in ranges)
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))
    one, two = (whereabouts(state, saved if is_saved and state.index < 2 else nothing) for state in (earlier, later))
    for at, (here, there) in enumerate(zip_longest(one, two)):
        assert here == there or any(start <= at < end for start, end in ranges), (at, ranges)


@given(STEPS)
def test_folding_late_is_folding_at_once(steps: list[tuple]) -> None:
    pairs: list[tuple[Maps, dict[int, AddressMap]]] = [(Maps(), {})]  # every copy ever made, and its model
    late, model = pairs[0]
    for what, *given_ in steps:
        if what == "add":
            rows, packed = given_
            entries = table(rows) if packed else tuple(rows)
            for inode, low, high in runs(entries, 0):
                late.add(inode, entries, low, high, 7)
            for row in rows:
                aml = AML(row.start, row.end, row.run or 7, row.buffer_start)
                model.setdefault(row.inode, AddressMap()).insert(aml)
        elif what == "cut":
            inode, size = given_
            late.cut(inode, size)
            if inode in model:
                model[inode].cut(size)
        elif what == "look":
            assert late.get(given_[0]) == model.get(given_[0])
        else:                              # go on with a copy of any of them; the others must stay as they are
            late, model = pairs[given_[0] % len(pairs)]
            late, model = late.copy(), {inode: each.copy() for inode, each in model.items()}
            pairs.append((late, model))
    for late, model in pairs:
        for other, other_model in pairs:
            assert not late.same(other, 1) or model.get(1) == other_model.get(1)
        for inode in (1, 2, 3):
            for start in range(0, 48, 6):
                part, known = late.part(inode, start, start + 8), model.get(inode)
                assert list((part or AddressMap()).find(start, start + 8)) == list(
                    (known or AddressMap()).find(start, start + 8))
            assert (inode in late) == (inode in model)
            assert late.get(inode) == model.get(inode)


@given(ROWS, st.integers(-9, 9), st.integers(-9, 9))
def test_a_table_is_the_tuple_of_its_rows(rows: list[OffsetEntry], low: int, high: int) -> None:
    packed, plain = table(rows), tuple(rows)
    assert packed == plain and plain == packed and hash(packed) == hash(plain)
    assert packed == table(rows) and (not rows or packed != table(rows[1:]))
    assert list(packed) == list(plain) and list(reversed(packed)) == list(reversed(plain)) and len(packed) == len(plain)
    assert packed[low:high] == plain[low:high]
    assert all(packed[at] == plain[at] for at in range(-len(plain), len(plain)))
    assert list(runs(packed, 0)) == list(runs(plain, 0))
    assert [row for _, first, last in runs(packed, 0) for row in part(packed, first, last)] == list(plain)
