"""A read asks where data ends once for each stretch of it: tmpfs finds that page by page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab import Lab

from metamori.store.io.os_io import Door
from metamori.store.read.reader import Reader
from metamori.store.read.store import Store

PIECES = 64


class Asked(Door):
    """How many bytes it went through for an end of data, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.times = self.bytes = 0

    def data_ranges(self, fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        for low, high in super().data_ranges(fd, start, end):
            self.times += 1
            self.bytes += os.lseek(fd, low, os.SEEK_HOLE) - low
            yield low, high


@pytest.mark.parametrize("size", [4 << 10, 128 << 10], ids=["short", "long"])
def test_every_second_piece_elsewhere(lab: Lab, size: int) -> None:
    """Long ones are asked for in the buffer, too."""
    file, total = lab.work / "f", 2 * PIECES * size
    file.write_bytes(b"a" * total)
    driver = lab.start()
    driver.must(["open f rw", "checkpoint", *(f"pwrite 3 {size} {at} 7" for at in range(0, total, 2 * size)),
                 "checkpoint"])
    assert driver.end() == 0
    door = Asked()
    with Store.open(str(lab.store), door=door) as store:
        [inode] = [inode for inode, pif in store.state(1).pifs.items() if pif.filename.endswith(b"/f")]
        with Reader(store, 1, inode) as reader:
            door.times = door.bytes = 0
            assert reader.read() == b"a" * total
    assert door.times <= PIECES // 4                  # it was one for each piece, and more
    assert door.bytes <= 6 * total
