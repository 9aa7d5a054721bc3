"""A file that another process cuts off while it is copied: what was not there is not recorded as zeros."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.errors import Damaged
from metamori.runtime.rollback import live_part
from metamori.store.format.layout import Layout
from metamori.store.io.buffers import Buffers, copy_beside
from metamori.store.io.os_io import Door


class CutOff(Door):
    """Just before it is asked where data is."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__()
        self.path, self.size = path, size

    def data_ranges(self, fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        os.truncate(self.path, self.size)
        return super().data_ranges(fd, start, end)

    def clone_range(self, *_: int) -> bool:
        return False


@pytest.mark.parametrize("size", [0, 1000, 5000, 9000])
def test_as_much_as_there_was(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 9000)
    with path.open("rb") as file, (tmp_path / "target").open("w+b") as target:
        end = copy_beside(CutOff(path, size), file.fileno(), target.fileno(), (1000, 8000, 4096))
        assert end == max(1000, size)
        assert os.pread(target.fileno(), end - 1000, 4096) == b"x" * (end - 1000)


@pytest.mark.parametrize("end", [9000, 300_000], ids=["short", "long"])
def test_a_pre_image_is_all_there_or_refused(tmp_path: Path, end: int) -> None:
    path, layout = tmp_path / "file", Layout(tmp_path)
    path.write_bytes(b"x" * end)
    (tmp_path / "buffer").mkdir()
    buffers = Buffers(CutOff(path, 5000), layout)
    with path.open("rb") as file, pytest.raises(Damaged, match=f"became shorter while bytes 5000-{end} of it"):
        buffers.save(1, file.fileno(), [(0, end), (0, 100)])
    with path.open("rb") as file:
        [(place, _)] = buffers.save(1, file.fileno(), [(0, 5000)])
        assert buffers.read(1, place, 5000) == b"x" * 5000 and buffers.save(1, file.fileno(), []) == []
    buffers.close()


def test_a_part_that_goes_back_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 9000)
    monkeypatch.setattr(live_part, "REAL", CutOff(path, 10))
    session: Any = SimpleNamespace(
        area=SimpleNamespace(take_blocks=lambda count: 1, head=SimpleNamespace(run=1)),
        store=SimpleNamespace(buffers=SimpleNamespace(
            writer=lambda run: os.open(tmp_path / "buffer", os.O_RDWR | os.O_CREAT, 0o600),
            size=lambda run: (tmp_path / "buffer").stat().st_size, checksum=lambda run, place, length: 7)))
    with pytest.raises(OSError, match="became shorter"):
        live_part._save(session, os.fsencode(path), [(1000, 9000)])
