"""Merging images: what a chain says of every page is what the merged image says, against a dictionary of pages."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metamori.store.io.os_io import REAL
from metamori.store.read import image

PAGES = 12
_FIXED = 16 * 8 + 65 * 32 + 3 * 32


def spans(pages: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for page in sorted(pages):
        if found and found[-1][1] == page * 4096:
            found[-1] = (found[-1][0], (page + 1) * 4096)
        else:
            found.append((page * 4096, (page + 1) * 4096))
    return found


def write(path: Path, index: int, base: int, saved: dict[int, int], existing: set[int], version: int = 2) -> None:
    """An image by the specification (shim_c/src/memory/image.h): page p filled with one byte."""
    kept, there = spans(set(saved)), spans(existing)
    paths = b"\0/lib/x\0"
    thread = b"\5" * (264 if version == 2 else 136)
    tables = 24 + _FIXED + 8 + len(thread) + (len(kept) + len(there)) * 16 + len(paths)
    data = -(-tables // 4096) * 4096
    counts = struct.pack("<10Q", index, base, data, 8, 1, 0, 0, len(kept), len(there), len(paths))
    head = counts.ljust(_FIXED, b"\7") + b"program!" + thread
    head += b"".join(struct.pack("<QQ", *each) for each in kept + there) + paths
    body = b"".join(bytes([saved[page]]) * 4096 for page in sorted(saved))
    whole = struct.pack("<8sIIQ", b"mtmrMEMO", version, 0x01020304, data - 24 + len(body)) + head
    whole = whole.ljust(data, b"\0") + body
    path.write_bytes(whole + struct.pack("<I", zlib.crc32(whole)))


def read(path: Path) -> dict[int, int]:
    found = image.read(REAL, str(path).encode())
    content = path.read_bytes()
    pages = {}
    for start, end, place in found.places():
        for page in range(start // 4096, end // 4096):
            piece = content[place + page * 4096 - start:place + (page + 1) * 4096 - start]
            assert len(set(piece)) == 1 and len(piece) == 4096
            pages[page] = piece[0]
    return pages


def test_what_a_program_could_not_come_back_from_is_named(tmp_path: Path) -> None:
    def made(name: str, saved: set[int], existing: set[int]) -> image.Image:
        write(tmp_path / name, 2, 1, dict.fromkeys(saved, 1), existing)
        return image.read(REAL, str(tmp_path / name).encode())

    below = made("below", {1, 2, 3}, {1, 2, 3, 4})
    whole = made("whole", {2, 7}, {1, 2, 4, 7})
    size = (tmp_path / "whole").stat().st_size
    assert image.lacks(whole, below, size) == ""
    assert image.lacks(whole, None, size) == "nothing has the page at 0x1000"
    assert image.lacks(made("more", {2, 7}, {2, 5, 7}), below, size) == "nothing has the page at 0x5000"
    last = made("last", {2}, {2, 3, 8})
    assert image.lacks(last, below, (tmp_path / "last").stat().st_size) == "nothing has the page at 0x8000"
    assert image.lacks(whole, below, size - 4096) == "its pages do not fit into it"


STEP = st.tuples(st.sets(st.integers(0, PAGES - 1)), st.sets(st.integers(0, PAGES - 1)))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=5), st.booleans(), st.sampled_from((1, 2)))
def test_a_merged_image_says_what_its_chain_says(
    tmp_path_factory, steps: list, complete: bool, version: int,
) -> None:
    folder = tmp_path_factory.mktemp("images")
    model: dict[int, int] = {}             # what is in memory, page by page
    wanted: dict[int, int] = {}            # of it, what these images have
    paths = []
    for number, (changed, dropped) in enumerate(steps):
        value = number + 1
        for page in dropped:               # discarded: reads as zeros until it is written again
            model.pop(page, None)
            wanted.pop(page, None)
        saved = dict.fromkeys(changed, value)
        model.update(saved)
        wanted.update(saved)
        path = folder / str(number)
        write(path, number + 2, 0 if complete and number == 0 else number + 1, saved, set(model), version)
        paths.append(path)
    images = [image.read(REAL, str(path).encode()) for path in paths]
    base = 0 if complete else 1
    size, crc = image.merge(REAL, images, base, str(folder / "merged").encode())
    merged = folder / "merged"
    assert read(merged) == wanted
    found = image.read(REAL, str(merged).encode())
    assert (found.base, found.index, found.existing, found.paths) == (
        base, len(steps) + 1, images[-1].existing, images[-1].paths)
    assert size == merged.stat().st_size
    assert struct.unpack("<I", merged.read_bytes()[-4:])[0] == crc == zlib.crc32(merged.read_bytes()[:-4])
