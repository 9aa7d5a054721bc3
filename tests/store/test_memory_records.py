"""Of which of a job's indexes the memory was recorded (store/restore/memory_records.py)."""

from __future__ import annotations

import os
from pathlib import Path

from metamori.store.io import commit
from metamori.store.read.store import Store
from metamori.store.restore import memory_records


def test_a_line_that_is_torn_spoils_no_other(tmp_path: Path) -> None:
    """A power cut, or a full disk."""
    store = Store.create_or_open(str(tmp_path / "store"))
    memory_records.begin(store)
    memory_records.note(store.path, 1)
    memory_records.note(store.path, 2)
    whole = commit.read_file(store.door, store.layout.levels)
    os.truncate(store.layout.levels, len(whole) - 3)
    memory_records.note(store.path, 3)
    assert [memory_records.is_missing(store, index, "level 3") for index in (1, 2, 3, 4)] == [False, True, False, True]
    store.close()
