"""The cyclic collector is off while anybody holds it off, and afterwards as it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from metamori.store.format import row_table
from metamori.store.format.row_table import no_collection

LONG_S = 20


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_one_comes_as_the_other_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two threads of one process, the member of a job and the one that counts: the second, should it ask whether the
    collector is on, hears so only once the first has left."""
    came, left, over = threading.Event(), threading.Event(), threading.Event()

    def second() -> None:
        with no_collection():
            came.set()
            assert over.wait(LONG_S)

    other = threading.Thread(target=second)

    def isenabled() -> bool:
        found = gc.isenabled()
        if threading.current_thread() is other:
            came.set()
            assert left.wait(LONG_S)
        return found

    monkeypatch.setattr(row_table, "gc", SimpleNamespace(isenabled=isenabled, disable=gc.disable, enable=gc.enable))
    with no_collection():
        other.start()
        assert came.wait(LONG_S)
    is_on_amid = gc.isenabled()
    left.set()
    over.set()
    other.join()
    assert gc.isenabled() and not is_on_amid


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    with no_collection(), no_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()
