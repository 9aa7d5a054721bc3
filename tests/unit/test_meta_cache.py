"""Records are held by their weight, the least recently asked for goes first, and one always stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metamori.store.format.records import Meta, NameEntry
from metamori.store.read import catalog
from metamori.store.read.store import Store


def meta(index: int, names: int) -> Meta:
    return Meta(index, index - 1, 0, "", "", 1, 1, names=tuple(NameEntry(b"/%d" % n, "absent") for n in range(names)))


def test_held_as_long_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "META_ENTRIES", 28)
    store = Store.create_or_open(os.fspath(tmp_path / "store"))
    for index, names in ((1, 12), (2, 12), (3, 2)):
        store.commit_checkpoint(meta(index, names), durable=False)
        assert store.meta(1).index == 1
    assert 1 in store._metas and 3 in store._metas and 2 not in store._metas   # asked for before 1
    assert len(store.meta(2).names) == 12                                      # read again
    store.commit_checkpoint(meta(4, 100), durable=False)
    assert list(store._metas.values()) == [store.meta(4)]
    store._metas.check()
    store.forget()
    assert not len(store._metas)
