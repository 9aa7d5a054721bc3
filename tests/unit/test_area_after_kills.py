"""What a kill between two stores leaves in the run area's lists (area/slots.c): no call finds such a moment."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from metamori._area import ffi, lib
from metamori.runtime.area.run_area import BLOCK, Area

LONGEST = 10                                   # of lists that have three members
MANY = 60                                      # pages
PAGES = 4                                      # the region of that name (area_internal.h)


@pytest.fixture
def area(tmp_path: Path) -> Iterator[Area]:
    area = Area(str(tmp_path), create=True)
    yield area
    area.close()


@pytest.fixture
def slots(area: Area) -> list[int]:
    return [lib.mm_pif_new(area.pointer, 1, 100 + i, 0, b"/file%d" % i) for i in range(3)]


def dirty(area: Area) -> list[int]:
    found, slot = [], area.head.dirty
    while slot and len(found) < LONGEST:
        found.append(slot)
        slot = area.pif(slot).next_dirty
    return found


def mapped(area: Area) -> list[int]:
    return list(islice(area.mapped(), LONGEST))


def test_a_file_put_on_the_list_of_changed_ones_and_not_marked(area: Area, slots: list[int]) -> None:
    """The next touch put it there a second time, behind itself: the checkpoint never came to the end of the list."""
    lib.mm_pif_touched(area.pointer, slots[0])
    area.pif(slots[1]).next_dirty = area.head.dirty
    area.head.dirty = slots[1]
    lib.mm_pif_touched(area.pointer, slots[2])
    lib.mm_pif_touched(area.pointer, slots[1])
    assert dirty(area) == [slots[2], slots[1], slots[0]]


@pytest.mark.parametrize("others", [0, 1])
def test_a_file_put_on_the_list_of_mapped_ones_and_not_flagged(area: Area, slots: list[int], others: int) -> None:
    lib.mm_pif_mapped(area.pointer, slots[0])
    area.pif(slots[1]).listed = 1
    area.pif(slots[1]).next_mapped = area.head.mapped
    area.head.mapped = slots[1]
    for slot in [*slots[2:2 + others], slots[1]]:
        lib.mm_pif_mapped(area.pointer, slot)
    assert mapped(area) == [*slots[2:2 + others], slots[1], slots[0]]
    assert all(area.pif(slot).flags & lib.MM_MAPPED for slot in mapped(area))


def test_mapped_ones_are_let_go_one_at_a_time(area: Area, slots: list[int]) -> None:
    for slot in slots:
        lib.mm_pif_mapped(area.pointer, slot)
    area.pif(slots[1]).flags &= ~lib.MM_MAPPED
    with area.session_lock(), area.frozen():
        area.relink_mapped()
    assert mapped(area) == [slots[2], slots[0]]
    area.pif(slots[2]).flags &= ~lib.MM_MAPPED
    with area.session_lock(), area.frozen():
        area.relink_mapped()
    assert mapped(area) == [slots[0]]


def test_words_that_nobody_finishes(area: Area) -> None:
    """Who was killed while he wrote some kept one of eight places."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    words, text = area.head.words, ffi.new("char[]", lib.MM_WORDS_BYTES)
    words[0].state, words[1].state = ended.pid, os.getpid()
    assert not lib.mm_words_said(area.pointer, text)
    assert (words[0].state, words[1].state) == (0, os.getpid())


def dies_with_descriptors(area: Area) -> None:
    """A process that is no more, with a table of descriptors of many pages, as far as there is room for one."""
    first = area.head.next_page
    if (first + MANY) * BLOCK > area.head.reserved[PAGES]:
        return
    area.head.next_page += MANY
    with open(f"{area.path}/pages", "r+b") as pages:
        pages.seek(first * BLOCK)
        pages.write(struct.pack(f"={MANY - 1}I", *range(first + 1, first + MANY)))
    area.process(lib.mm_process_join(area.pointer, 1 << 22, 1, 0)).fd_root = first


def test_a_dead_process_is_taken_away_once(area: Area, slots: list[int]) -> None:
    """By several that find it dead at the same moment: a page that is given back twice is given to two."""
    for _ in range(60):
        for slot in slots:
            area.table_set(area.pif(slot), 0, slot + 100, 1)
        assert [lib.mm_table_get(area.pointer, area.pif(slot), 0) for slot in slots] == [slot + 100 for slot in slots]
        for slot in slots:
            area.pif(slot).root = 0            # their pages are lost: the next ones are others
        dies_with_descriptors(area)
        threads = [threading.Thread(target=lib.mm_release_dead, args=(area.pointer,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not list(area.processes())
