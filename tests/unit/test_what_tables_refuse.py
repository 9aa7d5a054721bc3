"""Records and tables say what is wrong with what they are given."""

from __future__ import annotations

import pytest

from metamori.store.format import codec
from metamori.tables.aml import AML, AddressMap
from metamori.tables.fit import Fit
from metamori.tables.history import History
from metamori.tables.lru import Recency
from metamori.tables.pif import Pif


def pif(inode: int) -> Pif:
    return Pif(inode=inode, dev=1, ino=2, btime_ns=3, filename=b"/f", size=100)


def test_the_history_grows_upwards() -> None:
    history = History()
    history.add(3, 0)
    with pytest.raises(ValueError, match="index 3 is not above 3"):
        history.add(3, 0)


def test_sizes_below_zero() -> None:
    with pytest.raises(ValueError, match="a budget is at least 0 bytes: -1"):
        Recency(-1)
    with pytest.raises(ValueError, match="a size is at least 0 bytes: -2"):
        Recency(1).touch("a", -2)
    with pytest.raises(ValueError, match="a size is at least 0 bytes: -3"):
        pif(1).truncate(-3)


def test_records_of_another_file() -> None:
    one = pif(1)
    with pytest.raises(ValueError, match="record of file 1 for file 9"):
        pif(9).reload(AddressMap(), one.entry())
    with pytest.raises(ValueError, match="file 1 has 100 bytes, its map more"):
        one.reload(AddressMap([AML(90, 101, 1, 0)]), one.entry())


def test_a_descriptor_that_is_open() -> None:
    with pytest.raises(ValueError, match="descriptor 3 is already open here"):
        Fit(process=1, creation_type="descriptor", filename=b"/f", descriptor=3, attributes=2,
            pif=pif(1)).dup(3)


def test_counts_past_the_end() -> None:
    with pytest.raises(codec.FormatError, match="9 bytes announced, 8 there"):
        codec.Reader(bytes(8), 0, 8).advance(9)
    with pytest.raises(codec.FormatError, match="2 items announced, 0 bytes there"):
        codec.Reader(b"\2" + bytes(7), 0, 8).count(codec._ROWS, 4)
