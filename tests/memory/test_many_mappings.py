"""Programs with very many mappings: every page as a copy has it; and images of before."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from comeback import Memory, built

from metamori.store.format import files
from metamori.store.io.os_io import REAL
from metamori.store.read import image
from metamori.store.read.store import Store
from metamori.tables.record import replace

pytestmark = pytest.mark.usefixtures("installed")


def run_of(folder: Path, *words: object) -> Memory:
    """In the checked build, whose every image is read back as a whole."""
    case = Memory(folder, [built(folder, "regions.c"), *map(str, words)])
    case.added["METAMORI_CHECKED"] = "1"
    assert case.start().wait(600) == 0, case.errors()
    assert (folder / "out").read_bytes() == case.native.output
    assert "none:" not in case.errors(), case.errors()
    return case


def comes_back(case: Memory, index: int) -> None:
    """It compares each of its pages with the copy, at once and after every later checkpoint."""
    done = case.verb("restart", str(index))
    assert done.returncode == 0 and b"came back" in done.stderr, done
    assert done.stdout == case.native.output


def test_one_mapping_with_many_holes(tmp_path: Path) -> None:
    """More pieces of one mapping than the kernel's walk finds in one go (512): each is in the image once."""
    case = Memory(tmp_path, [built(tmp_path, "holes.c")])
    assert case.start().wait(300) == 0 and case.errors().count("taken") == 4, case.errors()
    for index in (4, 3, 2, 1):
        comes_back(case, index)
    with Store.open(str(case.store)) as store:
        for index in (1, 2, 3, 4):
            path = store.layout.memory(index, store.meta(index).memory[0].process)
            tables = Path(path.decode()).read_bytes()
            saved, existing = struct.unpack_from("<2Q", tables, 24 + 7 * 8)
            found = image.read(REAL, path)
            assert (len(found.saved), len(found.existing)) == (saved, existing), index
            assert existing > 600


def test_ten_thousand_mappings_that_change(tmp_path: Path) -> None:
    case = run_of(tmp_path, 1)
    for index in (10, 5, 1):
        comes_back(case, index)
    assert case.verb("verify").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_more_of_them(tmp_path: Path, seed: int) -> None:
    case = run_of(tmp_path, seed, 500 * seed, 10)
    for index in range(10, 0, -1):
        comes_back(case, index)


def out_of_order(store: Store, index: int) -> None:
    """As images were until the walk over many pages was mended: some pages twice, later ones before earlier."""
    meta = store.meta(index)
    entry = meta.memory[0]
    path = Path(store.layout.memory(index, entry.process).decode())
    found, content = image.read(REAL, str(path).encode()), path.read_bytes()
    assert len(found.existing) > 1000
    existing = [*found.existing[:900], *found.existing[500:]]
    saved, pages = list(found.saved), content[found.data:-4]
    if not entry.base:                     # a complete one has saved what exists
        at = [place for _, _, place in found.places()]
        pages = b"".join(content[at[i]:at[i] + end - start] for part in (range(900), range(500, len(saved)))
                         for i in part for start, end in (saved[i],))
        saved = existing
    body = b"".join(struct.pack("<QQ", *span) for span in (*saved, *existing)) + found.paths
    data = -(-(len(found.tables) + len(body)) // 4096) * 4096
    head = bytearray(found.tables)
    struct.pack_into("<Q", head, 16, data - 24 + len(pages))
    struct.pack_into("<Q", head, 24 + 16, data)
    struct.pack_into("<QQ", head, 24 + 7 * 8, len(saved), len(existing))
    whole = (bytes(head) + body).ljust(data, b"\0") + pages
    path.write_bytes(whole + struct.pack("<I", zlib.crc32(whole)))
    entry = replace(entry, size=len(whole) + 4, crc=zlib.crc32(whole))
    meta_path = next(path.parent.glob(f"{index}.meta.*"))
    meta_path.write_bytes(files.encode_meta(replace(meta, memory=(entry,)), store.layout.id))


def test_early_images_are_read_as_they_were_meant(tmp_path: Path) -> None:
    """By a restart, and by a prune that merges them."""
    case = run_of(tmp_path, 3, 4000, 4)
    with Store.open(str(case.store)) as store:
        for index in (1, 2, 3):
            out_of_order(store, index)
    assert case.verb("verify").returncode == 0
    for index in (3, 1):
        comes_back(case, index)
    newest = max(entry["index"] for entry in case.log()["checkpoints"])
    pruned = case.verb("prune", "--keep-last", str(newest - 2))
    assert pruned.returncode == 0, pruned
    comes_back(case, 3)
