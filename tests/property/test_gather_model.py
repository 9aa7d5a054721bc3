"""Gathered ranges, against a byte array: what is copied, saved and signed is what one call for each would give."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.errors import Damaged
from metamori.store.format.layout import Layout
from metamori.store.io import coalesced_io
from metamori.store.io.buffers import Buffers
from metamori.store.io.os_io import Door

BLOCK = 4096
NUMBER = st.integers(0, 40)


class Counting(Door):
    """How often each call was made."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def __getattribute__(self, name: str):  # type: ignore[no-untyped-def]
        if name != "calls" and not name.startswith("_"):
            self.calls[name] = self.calls.get(name, 0) + 1
        return super().__getattribute__(name)


@st.composite
def files(draw: st.DrawFn) -> tuple[int, dict[int, int]]:
    """Size in bytes, and what each block that is no hole is filled with (0: zeros, written)."""
    return draw(st.integers(0, 40 * BLOCK)), draw(st.dictionaries(NUMBER, st.integers(0, 255), max_size=30))


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Disjoint, in any order, whole blocks and parts of them."""
    ends = sorted(draw(st.lists(st.one_of(NUMBER.map(lambda block: block * BLOCK), st.integers(0, 40 * BLOCK)),
                                unique=True, max_size=40)))
    found = [pair for pair in itertools.pairwise(ends) if draw(st.booleans())]
    return draw(st.permutations(found))


def make(path: Path, file: tuple[int, dict[int, int]]) -> bytearray:
    size, blocks = file
    model = bytearray(size)
    with open(path, "wb") as made:
        made.truncate(size)
        for block, fill in blocks.items():
            part = min(BLOCK, size - block * BLOCK)
            if part > 0:
                os.pwrite(made.fileno(), bytes([fill]) * part, block * BLOCK)
                model[block * BLOCK:block * BLOCK + part] = bytes([fill]) * part
    return model


def buffers(folder: Path) -> Buffers:
    store = Buffers(Door(), Layout(os.fsencode(folder)))
    (folder / "buffer").mkdir()
    return store


@settings(max_examples=150)
@given(files(), files(), ranges(), st.data())
def test_copied_as_one_by_one(source: tuple[int, dict[int, int]], target: tuple[int, dict[int, int]],
                              wanted: list[tuple[int, int]], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = buffers(folder)
        have = make(folder / "buffer" / "1", source)
        model = make(folder / "home", target)
        wanted = [(start, end) for start, end in wanted if end <= len(have)]
        shift = data.draw(st.sampled_from([0, BLOCK, 3 * BLOCK, 1, 5000]))
        fd = os.open(folder / "home", os.O_RDWR)
        try:
            store.copy_out(fd, [(1, start, end - start, start + shift) for start, end in wanted])
        finally:
            os.close(fd)
        for start, end in sorted(wanted):
            model.extend(bytes(max(0, end + shift - len(model))))
            model[start + shift:end + shift] = have[start:end]
        assert (folder / "home").read_bytes() == model
        assert store.checksums(1, wanted) == [zlib.crc32(have[start:end]) for start, end in wanted]
        store.close()


@settings(max_examples=100)
@given(files(), files(), ranges())
def test_saved_as_one_by_one(home: tuple[int, dict[int, int]], there: tuple[int, dict[int, int]],
                             wanted: list[tuple[int, int]]) -> None:
    """Of a file that has all of it; else it was cut off meanwhile."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = buffers(folder)
        before = make(folder / "buffer" / "1", there)
        model = make(folder / "home", home)
        fd = os.open(folder / "home", os.O_RDWR)
        try:
            if wanted and max(end for _, end in wanted) > len(model):
                with pytest.raises(Damaged, match="a file became shorter"):
                    store.save(1, fd, wanted)
                before = (folder / "buffer" / "1").read_bytes()
                model.extend(bytes(50 * BLOCK))
                os.ftruncate(fd, len(model))
            places = store.save(1, fd, wanted)
        finally:
            os.close(fd)
        after = (folder / "buffer" / "1").read_bytes()
        assert after.startswith(before)
        taken = [(place, place + end - start) for (start, end), (place, _) in zip(wanted, places, strict=True)]
        assert all(low >= len(before) and low % BLOCK == start % BLOCK
                   for (low, _), (start, _) in zip(taken, wanted, strict=True))
        assert all(one[1] <= other[0] for one, other in zip(sorted(taken), sorted(taken)[1:], strict=False))
        for (start, end), (place, crc) in zip(wanted, places, strict=True):
            assert after[place:place + end - start] == model[start:end] and crc == zlib.crc32(model[start:end])
        store.close()


def test_a_buffer_that_is_too_short_is_damaged(tmp_path: Path) -> None:
    store = buffers(tmp_path)
    make(tmp_path / "buffer" / "1", (3 * BLOCK, {0: 1, 1: 2, 2: 3}))
    with open(tmp_path / "home", "wb") as home, pytest.raises(Damaged, match="ends at byte 12288"):
        store.copy_out(home.fileno(), [(1, 0, BLOCK, 0), (1, 2 * BLOCK, BLOCK + 1, BLOCK)])
    with pytest.raises(Damaged, match="ends at byte 12288"):
        store.checksums(1, [(0, BLOCK), (2 * BLOCK, 3 * BLOCK + 1)])


def test_calls_do_not_grow_with_the_number_of_blocks(tmp_path: Path) -> None:
    """256 blocks that lie side by side in the file and in any order in the buffer are written back in one write."""
    door = Counting()
    store = Buffers(door, Layout(os.fsencode(tmp_path)))
    (tmp_path / "buffer").mkdir()
    make(tmp_path / "buffer" / "1", (256 * BLOCK, {block: 1 + block % 255 for block in range(256)}))
    parts = [(1, block * 77 % 256 * BLOCK, BLOCK, block * BLOCK) for block in range(256)]
    with open(tmp_path / "home", "wb") as home:
        store.copy_out(home.fileno(), parts)
    assert door.calls["pwrite"] == 1 and door.calls["data_ranges"] == 1
    door.calls.clear()
    store.checksums(1, [(start, start + length) for _, start, length, _ in parts])
    assert door.calls["pread"] == 1


def test_windows_hold_no_more_than_they_may() -> None:
    lengths = [coalesced_io.SHORT] * 200
    found = list(coalesced_io.windows(lengths))
    assert [each for window in found for each in lengths[window]] == lengths
    assert all(sum(lengths[window]) <= coalesced_io.WINDOW_BYTES for window in found) and len(found) == 4
    assert list(coalesced_io.windows([])) == [] and list(coalesced_io.windows([coalesced_io.WINDOW_BYTES * 2, 1])) == [
        slice(0, 1), slice(1, 2)]
