"""What head notes of names, and of the folders around them."""

from __future__ import annotations

from metamori.store.format.records import Identity
from metamori.store.io.os_io import REAL
from metamori.store.read.head import NamesNow


def test_as_deep_as_a_path_can_be() -> None:
    names, path = NamesNow(REAL, [b"/"]), b"/nowhere" + b"/a" * 2000 + b"/f"
    assert [*names.look([path])] == [(Identity(path, 0, 0, 0, 0, 0),) * 2]
    assert (names.replaced, names.inner) == ([], [])
