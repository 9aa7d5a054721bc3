"""What is said of a run area that leads outside of itself (shim_c/src/area/area_check.c)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from short_of_memory import no_more_memory

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint.cut import Looks
from metamori.runtime.lifecycle import recover

FAR = 1 << 30
SLOT = 1


@pytest.fixture
def area(tmp_path: Path) -> Iterator[Area]:
    """Two files, one with a buffered block and one in the cache; a process with a descriptor."""
    area = Area(str(tmp_path), create=True)
    for number in (1, 2):
        assert lib.mm_pif_new(area.pointer, 1, 100 + number, 0, b"/file%d" % number) == number
    assert lib.mm_table_set(area.pointer, area.pif(SLOT), 0, 5, 1) == 0
    assert lib.mm_frame_take(area.pointer, 2, 0)
    process = lib.mm_process_join(area.pointer, os.getpid(), lib.mm_start_time(os.getpid()), 0)
    assert lib.mm_fd_set(area.pointer, process, 3, 0) == 0
    yield area
    area.close()


def put(what: str, value: int) -> Callable[[Area], None]:
    """A field of the header."""
    return lambda area: setattr(area.head, what, value)


def put_pif(what: str, value: int) -> Callable[[Area], None]:
    return lambda area: setattr(area.pif(SLOT), what, value)


def no_room_at_all(area: Area) -> None:
    area.pif(SLOT).path, area.pif(SLOT).path_capacity = FAR, 0


def comes_round(area: Area) -> None:
    area.pif(1).next_dirty, area.pif(2).next_dirty, area.head.dirty = 2, 1, 1


def scope_in_a_path(area: Area) -> None:
    area.head.scope = area.pif(SLOT).path


def put_process(area: Area) -> None:
    area.process(1).fd_root = FAR


def put_frame(area: Area) -> None:
    lib.mm_frame_at(area.pointer, 1).slot = FAR


def put_chunk(area: Area) -> None:
    with open(os.path.join(area.path, "chunks"), "r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff\0\0")


def behind_the_end(area: Area) -> None:
    with open(os.path.join(area.path, "pifs"), "r+b") as file:
        file.seek(area.head.pif_count * ffi.sizeof("struct mm_pif"))
        file.write(b"x")


def cut(area: Area) -> None:
    os.truncate(os.path.join(area.path, "fits"), 100)


@pytest.mark.parametrize(("damage", "said"), [
    (cut, "fits has 100 bytes, and should have "),
    (lambda area: os.unlink(os.path.join(area.path, "cache")), "cache is missing"),
    (put("strings_tail", FAR), "the header counts more than strings holds"),
    (put_pif("path", FAR), "the path of file 1 has no room"),
    (put_pif("next_hash", 9), "file 1 is in a list that leads nowhere"),
    (no_room_at_all, "the path of file 1 lies outside"),
    (put_pif("root", FAR), "the block table of file 1 leads outside"),
    (comes_round, "a list of the header has no end"),
    (scope_in_a_path, "the rules of the scope lead outside"),
    (put_process, "the descriptors of process 1 lie outside"),
    (put_frame, "frame 1 lies outside"),
    (put_chunk, "a chunk leads to no frame"),
    (put("free_page", 1), "page 1 is free and in use"),
    (behind_the_end, "pifs holds something behind its end"),
    (put("journal_tail", 100), "the journal is broken at byte 8"),
])
def test_what_is_unsound(area: Area, damage: Callable[[Area], None], said: str) -> None:
    assert area.unsound() == ""
    damage(area)
    assert area.unsound().startswith(said)


def test_a_machine_without_memory_says_nothing_of_it(area: Area, tmp_path: Path) -> None:
    """Of tables in a second piece of the file too, which is mapped when it is looked at."""
    with no_more_memory(), pytest.raises(OSError) as caught:
        area.unsound()
    assert caught.value.errno == errno.ENOMEM
    for leaf in range((64 << 20) // 4096):
        assert lib.mm_table_set(area.pointer, area.pif(SLOT), leaf * 512, 5, 1) == 0
    with closing(Area(str(tmp_path))) as other:
        with no_more_memory(32 << 20), pytest.raises(OSError) as caught:
            other.unsound()
        assert caught.value.errno == errno.ENOMEM
        assert other.unsound() == ""


def test_a_number_that_a_kill_left_in_no_list(area: Area) -> None:
    """A completion was killed when a file had its number of now, and was not found by it yet (area/slots.c)."""
    for bucket, first in enumerate(area.head.bucket):
        if first == SLOT:
            area.head.bucket[bucket] = area.pif(SLOT).next_hash
    area.pif(SLOT).dev = 2
    assert not area.find_pif(2, 101)
    recover._identify(area, [[SLOT, 2, 101, 0]])
    assert (area.find_pif(2, 101), area.find_pif(1, 102)) == (SLOT, 2)


def test_what_cannot_be_looked_at_is_not_missing(area: Area) -> None:
    path = os.path.join(area.path, "fits")
    os.rename(path, path + ".away")
    os.symlink(path, path)
    with pytest.raises(OSError) as caught:
        area.unsound()
    assert caught.value.errno == errno.ELOOP


def test_a_journal_that_cannot_be_read(area: Area) -> None:
    area.head.journal_tail = 100
    area.head.committed_journal = 8
    said = pytest.raises(MetamoriError, match="the run area's journal is broken at byte 8")
    with said:
        list(area.journal(8))
    with area.session_lock(), area.frozen(), said:
        Looks(area)


def test_a_flag_that_another_process_sets_meanwhile_stays(area: Area) -> None:
    """Each sees what it has set itself, whatever the other does to its own."""
    def toggles(flag: int) -> bool:
        for _ in range(20000):
            area.flag(flag)
            if not area.head.flags & flag:
                return False
            area.flag(clear=flag)
            if area.head.flags & flag:
                return False
        return True

    child = os.fork()
    if child == 0:
        os._exit(not toggles(lib.MM_MOVES))
    own = toggles(lib.MM_GONE)
    assert (own, os.waitpid(child, 0)[1]) == (True, 0)
