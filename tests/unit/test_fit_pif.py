"""FIT and PIF entries: descriptors come and go, records go out and come back."""

import pytest

from metamori.store.format.records import FitEntry, PifEntry
from metamori.tables.aml import AML, AddressMap
from metamori.tables.fit import Fit
from metamori.tables.pif import NO_LIMIT, Pif


@pytest.fixture
def pif() -> Pif:
    return Pif(inode=9, dev=1, ino=2, btime_ns=3, filename=b"/f", size=100)


@pytest.fixture
def fit(pif: Pif) -> Fit:
    return Fit(process=1, creation_type="descriptor", filename=b"/f", descriptor=3, attributes=2, pif=pif)


def test_closed_only_when_the_last_descriptor_goes(fit: Fit):
    fit.dup(7)
    fit.dup(5)
    assert not fit.close(3, 2)
    assert (fit.descriptor, fit.dups, fit.was_closed) == (5, {7}, 0)
    fit.check()
    assert not fit.close(7, 2)
    assert fit.close(5, 4)
    assert fit.was_closed == 4
    fit.check()
    with pytest.raises(KeyError):
        fit.close(5, 4)


def test_a_descriptor_is_open_once(fit: Fit):
    for taken in (3, 3):
        with pytest.raises(ValueError, match="already"):
            fit.dup(taken)
    with pytest.raises(KeyError):
        fit.close(4, 1)


def test_a_fit_comes_back_from_its_record(fit: Fit, pif: Pif):
    fit.dup(8)
    fit.dup(4)
    fit.seek_pointer = 55
    entry = fit.entry()
    assert isinstance(entry, FitEntry)
    assert (entry.inode, entry.dev, entry.ino, entry.dup_list) == (9, 1, 2, (4, 8))
    assert Fit.from_entry(entry, pif) == fit
    assert Fit.from_entry(entry, None).entry().inode == 0


def test_a_stream_keeps_its_pushed_back_characters(pif: Pif):
    fit = Fit(1, "stream", b"/f", 3, 2, stream=0x1000, stream_attributes=b"r+", ungetc=b"ab", pif=pif)
    fit.check()
    assert Fit.from_entry(fit.entry(), pif) == fit
    fit.creation_type = "descriptor"
    with pytest.raises(AssertionError):
        fit.check()


def test_truncation_hides_the_home_unless_it_reached_it(pif: Pif):
    pif.truncate(60, at_home=True)
    assert (pif.size, pif.cut, pif.home_limit) == (60, 60, NO_LIMIT)
    pif.truncate(40)
    pif.truncate(80)
    assert (pif.size, pif.cut, pif.home_limit) == (80, 40, 40)
    with pytest.raises(ValueError):
        pif.truncate(-1)


def test_overwriting_the_interval_frees_and_overwriting_older_ones_does_not(pif: Pif):
    assert pif.write_range(AML(0, 10, 1, 0)) == []
    assert pif.write_range(AML(4, 6, 1, 10)) == [AML(4, 6, 1, 4)]
    closed = pif.close_epoch()
    assert pif.epochs == [closed]
    assert pif.write_range(AML(0, 10, 1, 12)) == []
    assert list(pif.cumulative) == [AML(0, 10, 1, 12)]
    pif.check()


def test_reload_refuses_what_is_not_the_file(pif: Pif):
    entry = pif.entry()
    assert isinstance(entry, PifEntry)
    with pytest.raises(ValueError, match="bytes"):
        pif.reload(AddressMap([AML(90, 101, 1, 0)]), entry)
    other = Pif(inode=8, dev=1, ino=2, btime_ns=3, filename=b"/g", size=100)
    with pytest.raises(ValueError, match="file 9"):
        other.reload(AddressMap(), entry)


def test_check_notices_a_map_that_is_not_in_the_cumulative_one(pif: Pif):
    pif.write_range(AML(0, 10, 1, 0))
    pif.cumulative.remove(2, 4)
    with pytest.raises(AssertionError):
        pif.check()
