"""AddressMap: the scenarios of thesis 4.3.3 and 4.3.4 one by one, its example, and its speed."""

import time

import pytest

from metamori.tables.aml import AML, AddressMap

OLD = AML(10, 20, 1, 100)


@pytest.mark.parametrize(("new", "kept", "overridden"), [
    pytest.param((2, 8), [(2, 8), (10, 20)], [], id="1-before"),
    pytest.param((22, 28), [(10, 20), (22, 28)], [], id="1-beyond"),
    pytest.param((2, 10), [(2, 10), (10, 20)], [], id="1-touches-start"),
    pytest.param((20, 28), [(10, 20), (20, 28)], [], id="1-touches-end"),
    pytest.param((5, 15), [(5, 15), (15, 20)], [(10, 15)], id="2-start-before-end-within"),
    pytest.param((5, 20), [(5, 20)], [(10, 20)], id="2-same-end"),
    pytest.param((5, 25), [(5, 25)], [(10, 20)], id="3-covers"),
    pytest.param((10, 20), [(10, 20)], [(10, 20)], id="3-same"),
    pytest.param((12, 15), [(10, 12), (12, 15), (15, 20)], [(12, 15)], id="4-within"),
    pytest.param((10, 15), [(10, 15), (15, 20)], [(10, 15)], id="4-same-start"),
    pytest.param((15, 20), [(10, 15), (15, 20)], [(15, 20)], id="4-same-end"),
    pytest.param((15, 25), [(10, 15), (15, 25)], [(15, 20)], id="5-start-within-end-beyond"),
])
def test_overlap_scenarios(new, kept, overridden):
    table = AddressMap([OLD])
    gone = table.insert(AML(*new, 2, 1000))
    table.check()
    assert [(a.start, a.end) for a in table] == kept
    assert gone == [OLD.clip(*each) for each in overridden]
    for aml in table:
        assert aml == (OLD.clip(aml.start, aml.end) if aml.run == 1 else AML(*new, 2, 1000))


def test_one_new_mapping_over_many():
    table = AddressMap([AML(0, 10, 1, 0), AML(20, 30, 1, 10), AML(40, 50, 1, 20), AML(60, 70, 1, 30)])
    gone = table.insert(AML(5, 65, 2, 0))
    table.check()
    assert list(table) == [AML(0, 5, 1, 0), AML(5, 65, 2, 0), AML(65, 70, 1, 35)]
    assert gone == [AML(5, 10, 1, 5), AML(20, 30, 1, 10), AML(40, 50, 1, 20), AML(60, 65, 1, 30)]


def test_example_of_the_thesis():
    """Bytes 1–20, then 3–11, then 16–25 (closed ranges there), read as 1–30."""
    table = AddressMap([AML(1, 21, 1, 0), AML(3, 12, 2, 0), AML(16, 26, 3, 0)])
    assert [(a.start, a.end, a.run) for a in table.find(1, 31)] == [
        (1, 3, 1), (3, 12, 2), (12, 16, 1), (16, 26, 3)]
    assert list(table.gaps(1, 31)) == [(26, 31)]


@pytest.mark.parametrize(("neighbour", "merged"), [
    pytest.param(AML(20, 30, 1, 110), True, id="continues-in-file-and-buffer"),
    pytest.param(AML(20, 30, 1, 111), False, id="not-in-buffer"),
    pytest.param(AML(20, 30, 2, 110), False, id="other-run"),
    pytest.param(AML(21, 30, 1, 110), False, id="not-in-file"),
])
def test_merging_on_either_side(neighbour, merged):
    for order in ([OLD, neighbour], [neighbour, OLD]):
        table = AddressMap()
        for aml in order:
            table.insert(aml)
        table.check()
        assert list(table) == ([AML(10, 30, 1, 100)] if merged else [OLD, neighbour])


def test_the_missing_piece_joins_both_sides():
    table = AddressMap([AML(0, 10, 1, 0), AML(20, 30, 1, 20)])
    assert table.insert(AML(10, 20, 1, 10)) == []
    assert list(table) == [AML(0, 30, 1, 0)]
    assert table.insert(AML(12, 14, 1, 12)) == [AML(12, 14, 1, 12)]
    assert list(table) == [AML(0, 30, 1, 0)]


@pytest.mark.parametrize("bad", [AML(5, 5, 1, 0), AML(6, 5, 1, 0), AML(-1, 5, 1, 0), AML(0, 5, -1, 0),
                                 AML(0, 5, 1, -1)])
def test_what_is_no_mapping_is_refused(bad):
    table = AddressMap([OLD])
    with pytest.raises(ValueError, match="mapping"):
        table.insert(bad)
    with pytest.raises(ValueError, match="mapping"):
        table.extend([AML(30, 31, 1, 0), bad])
    table.check()


def test_a_million_in_order_load_in_seconds():
    begin = time.process_time()
    table = AddressMap(AML(i * 8192, i * 8192 + 4096, 1, i * 4096) for i in range(1_000_000))
    for i in range(1_000_000, 1_010_000):
        table.insert(AML(i * 8192, i * 8192 + 4096, 1, i * 4096))
    assert time.process_time() - begin < 8
    assert len(table) == 1_010_000
    assert table.nbytes == 1_010_000 * 4096
