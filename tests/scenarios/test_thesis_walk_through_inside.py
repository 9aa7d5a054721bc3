"""The two walk-throughs of thesis 4.3.7, step by step: AMLs, the cache's bound, the store, the user's files.

Per file 3 MB of cache, everything buffered; a.txt gets 5 MB and b.txt 3 MB in blocks of 1 KB. Unlike the other
scenarios this one looks inside: at the run area of the live run, and at the store's records.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import Lab, Session

MB = 1 << 20
BLOCK = 1024
CACHE = 3 * MB


class Inside:
    """A live run as its runtime sees it."""

    def __init__(self, store: Path) -> None:
        from metamori.runtime.area.run_area import Area
        from metamori.store.read.store import Store

        self.area = Area(str(store))
        self.store = Store.open(str(store))

    def slot(self, path: Path) -> int:
        return next(slot for slot in self.area.pifs() if self.area.pif_path(self.area.pif(slot)) == os.fsencode(path))

    def mapped(self, slot: int) -> list[tuple[int, int]]:
        """File ranges whose bytes are in the buffer (memory or disk), merged."""
        from metamori.runtime.area.run_area import BLOCK as AREA_BLOCK
        from metamori.tables.aml import AML, AddressMap

        amls = AddressMap()
        for block, buffer, count in self.area.ranges(self.area.pif(slot), 0, 0):
            start = block * AREA_BLOCK
            amls.insert(AML(start, start + count * AREA_BLOCK, 1, buffer * AREA_BLOCK))
        return [(aml.start, aml.end) for aml in amls]

    def in_memory(self, slot: int) -> int:
        """Bytes of AMLs in the cache."""
        from metamori.runtime.area.run_area import CHUNK

        return self.area.pif(slot).frames * CHUNK

    def on_disk(self) -> int:
        """Bytes that have reached the disk buffer."""
        return os.stat(self.store.layout.buffer(self.area.head.run)).st_blocks * 512


def fill(session: Session, inside: Inside, slot: int, descriptor: int, size: int, seed: int) -> None:
    """Writes in blocks of 1 KB; the cache is never over its bound on the way."""
    for number in range(size // BLOCK):
        assert session.ask(f"write {descriptor} {BLOCK} {seed}") == str(BLOCK)
        if number % 256 == 255:
            assert inside.in_memory(slot) <= CACHE, number


@pytest.mark.parametrize("mode", ["incremental", "single"])
def test_walk_through(lab: Lab, mode: str) -> None:
    a, b = lab.work / "a.txt", lab.work / "b.txt"
    session = lab.start("--isolate", "--mode", mode, "--cache-size", "3M")
    assert session.ask("open a.txt rw,creat") == "3"
    if mode == "single":
        assert session.ask("open b.txt rw,creat") == "4"
    inside = Inside(lab.store)
    slot_a = inside.slot(a)

    # one AML grows until the memory is used up, is swapped to disk, and a new one grows
    fill(session, inside, slot_a, 3, CACHE, 1)
    assert inside.in_memory(slot_a) == CACHE and inside.on_disk() < MB
    fill(session, inside, slot_a, 3, 5 * MB - CACHE, 1)
    assert inside.mapped(slot_a) == [(0, 5 * MB)]
    assert inside.in_memory(slot_a) <= CACHE and inside.on_disk() >= 2 * MB
    assert a.stat().st_size == 0, "nothing comes home before a commit"
    assert session.ask("checkpoint") == "1"
    inside.store.refresh()
    if mode == "single":
        assert a.stat().st_size == 5 * MB, "committed"
        assert inside.mapped(slot_a) == [] and inside.in_memory(slot_a) == 0
        assert b.stat().st_size == 0
    else:
        assert a.stat().st_size == 0
        assert sum(e.end - e.start for e in inside.store.offsets(1).entries) == 5 * MB
        assert [os.path.basename(p.filename) for p in inside.store.meta(1).pifs] == [b"a.txt"]
        assert session.ask("open b.txt rw,creat") == "4"

    slot_b = inside.slot(b)
    fill(session, inside, slot_b, 4, 3 * MB, 2)
    assert inside.mapped(slot_b) == [(0, 3 * MB)]
    assert session.ask("checkpoint") == "2"
    inside.store.refresh()
    assert [os.path.basename(p.filename) for p in inside.store.meta(2).pifs] == [b"b.txt"]
    assert b.stat().st_size == (3 * MB if mode == "single" else 0)
    assert {e.descriptor for e in inside.store.meta(2).fits} == {3, 4}

    assert session.do(["close 4", "unlink b.txt"]) == ["0", "0"]
    assert not b.exists(), "for the program the file is gone at once"
    assert session.ask("checkpoint") == "3"
    inside.store.refresh()
    unlinked = inside.store.meta(3).pifs[0]
    assert unlinked.was_created == (1 if mode == "single" else 2) and unlinked.was_deleted == 3
    assert {e.descriptor for e in inside.store.meta(3).fits} == {3}

    if mode == "incremental":
        assert session.ask("restore 1") == "0"
        assert not b.exists() and session.ask("fsize 3").startswith(str(5 * MB))
        assert session.ask("restore 2") == "0"
        assert b.exists() and session.ask("fsize 4").startswith(str(3 * MB))
    else:
        assert session.ask("restore 1").startswith("-1 EINVAL")
        assert session.ask("restore 3") == "0"
    assert session.end() == 0
    assert a.stat().st_size == 5 * MB
    assert b.exists() == (mode == "incremental")
