"""Records are held by their weight, the least recently asked for goes first, and one always stays."""

from __future__ import annotations

from metamori.store.format.records import Meta, NameEntry
from metamori.store.read import meta_cache
from metamori.store.read.meta_cache import Recent


def meta(index: int, names: int) -> Meta:
    return Meta(index, index - 1, 0, "", "", 1, 1, names=tuple(NameEntry(b"/%d" % n, "absent") for n in range(names)))


def test_held_as_long_as_there_is_room() -> None:
    held = Recent()
    half = meta_cache.ENTRIES // 2
    held.put(meta(1, half - 10))
    held.put(meta(2, half - 10))
    assert held.get(1) and held.get(2) and held.get(1)
    held.put(meta(3, 100))               # 2 was asked for before 1
    assert held.get(2) is None and held.get(1) and held.get(3)
    held.put(meta(3, 5))
    held.put(meta(4, half - 10))         # what is put again weighs what it weighs now
    assert held.get(1) and held.get(3) and held.get(4)
    held.put(meta(5, 2 * meta_cache.ENTRIES))
    assert held.get(5) and not any(map(held.get, (1, 3, 4)))
    held.clear()
    held.put(meta(6, half))
    assert held.get(5) is None and held.get(6)
