"""Records and tables say what is wrong with what they are given."""

from __future__ import annotations

import pytest

from metamori.store.format import codec
from metamori.tables.history import History


def test_the_history_grows_upwards() -> None:
    history = History()
    history.add(3, 0)
    with pytest.raises(ValueError, match="index 3 is not above 3"):
        history.add(3, 0)


def test_counts_past_the_end() -> None:
    with pytest.raises(codec.FormatError, match="9 bytes announced, 8 there"):
        codec.Reader(bytes(8), 0, 8).advance(9)
    with pytest.raises(codec.FormatError, match="2 items announced, 0 bytes there"):
        codec.Reader(b"\2" + bytes(7), 0, 8).count(codec._ROWS, 4)
