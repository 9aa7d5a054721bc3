"""What is said of a store whose records, buffers or images are not what they should be."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Snapshot
from test_move_faults import FailingDoor, no_space

from metamori.errors import ChangedOutside, Damaged, MetamoriError, NoSuchCheckpoint, StoreBusy
from metamori.store.format import files
from metamori.store.format.codec import Choice, FormatError, Name, Reader
from metamori.store.format.records import Intent, MemoryEntry, Meta, NameEntry, NameOp, Pruning
from metamori.store.io.os_io import REAL
from metamori.store.prune import merge, prune
from metamori.store.read import image, reader
from metamori.store.read.checksums import Checked
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import export, name_plan, redo
from metamori.tables.aml import AML, AddressMap
from metamori.tables.record import replace
from metamori.tables.retention import Rules


class Laboratory:
    """A folder, and a store of three checkpoints: redirected bytes at 1 and 2, a file that is removed."""

    def __init__(self, folder: Path) -> None:
        self.files, self.folder = folder / "files", folder / "store"
        self.files.mkdir()
        (self.files / "old").write_bytes(b"o" * 9000)
        (self.files / "gone").write_bytes(b"gone\n")
        models: dict[int, Snapshot] = {}
        with Store.create_or_open(os.fsencode(self.folder)) as store:
            run = Run(store, self.files, models, random.Random(4))
            run.write(self.files / "old", 100, b"CHANGED")
            run.checkpoint()
            run.write(self.files / "old", 4000, b"CHANGED")
            run.unlink(self.files / "gone")
            run.checkpoint()
            run.write(self.files / "old", 8000, b"CHANGED")
            run.checkpoint()

    def store(self, door: Any = REAL) -> Store:
        return Store.open(os.fsencode(self.folder), door=door)

    def record(self, name: str) -> Path:
        return self.folder / "checkpoints" / name

    def problems(self) -> str:
        with self.store() as store:
            return "\n".join(verify(store).problems)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    yield Laboratory(tmp_path)


def test_print(lab: Laboratory) -> None:
    print(sorted(os.listdir(lab.folder / "checkpoints")), sorted(os.listdir(lab.folder)), lab.problems())
    assert 0
