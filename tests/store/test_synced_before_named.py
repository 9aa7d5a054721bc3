"""No record of a prune has its name before its bytes are on the disk, whatever --durability says."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_move_property import make_history

from metamori.store.io.os_io import Door
from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.tables.retention import Rules


class Watching(Door):
    """Which files have been synced since they were written to, and what got a name."""

    def __init__(self) -> None:
        self.paths: dict[int, bytes] = {}
        self.synced: set[bytes] = set()
        self.named: list[tuple[bytes, bool]] = []

    def open(self, path: bytes, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self.paths[fd] = path
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)
        self.synced.discard(self.paths[fd])

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self.synced.add(self.paths[fd])

    def rename(self, source: bytes, target: bytes) -> None:
        self.named.append((os.path.basename(target), source in self.synced))
        super().rename(source, target)


@pytest.mark.parametrize("durable", [True, False])
def test_of_a_prune(tmp_path: Path, durable: bool) -> None:
    store, _ = make_history(tmp_path, random.Random(3), runs=2, steps=6)
    store.close()
    door = Watching()
    with Store.open(os.fsencode(tmp_path / "store"), write=True, door=door) as store:
        prune.prune(store, Rules(keep_last=2), durable=durable)
    names = [name for name, _ in door.named]
    assert {b"prune", b"counters"} <= set(names) and any(b".meta." in name for name in names)
    assert [name for name, synced in door.named if not synced] == []
    assert durable == any(os.path.isdir(path) for path in door.synced)
