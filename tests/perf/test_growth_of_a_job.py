"""A checkpoint of a job costs what its runs have done since the last one, however old the job is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.runtime.checkpoint import job_stamps
from metamori.runtime.checkpoint.job_stamps import Stamps
from metamori.store.format.records import UndoEntry
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store

LINES = 1000


class Counting(Door):
    """The bytes that were read."""

    count = 0

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        self.count += len(data)
        return data


def cut(index: int) -> Any:
    """What a run notes at a checkpoint, as far as it is told here."""
    at = index * LINES
    return SimpleNamespace(
        preimages=[SimpleNamespace(buffer_start=each << 12, stamp_ns=each) for each in range(at, at + LINES)],
        touches={b"/file.%d" % each: SimpleNamespace(stamp_ns=each) for each in range(at, at + LINES)},
        partly_written=[(each, 1, 2) for each in range(at, at + LINES, 2)], moved=[])


def test_what_was_noted_is_read_once_and_forgotten_with_its_checkpoint(tmp_path: Path) -> None:
    door = Counting()
    store = Store.create_or_open(str(tmp_path / "store"), door)
    stamps, counts = Stamps(store), []
    for index in range(1, 21):
        job_stamps.note(store, cut(index), index, durable=False, place=index)
        before = door.count
        stamps.refresh()
        stamps.refresh()
        counts.append(door.count - before)
        first = index * LINES
        assert stamps.preimage(first << 12) == stamps.first_named(b"/file.%d" % first, index - 1) == first
        assert stamps.places == {index: index}
        assert stamps.written(first << 12, first + 2 << 12) == [(first << 12 | 1, first << 12 | 2),
                                                               (first + 1 << 12, first + 2 << 12)]
        stamps.forget(index - 1)           # of one that has gone on meanwhile
        assert stamps.preimage(first << 12) == first and len(stamps.written(first << 12, first + 2 << 12)) == 2
        stamps.forget(index)
        assert not (stamps._preimages or stamps._names or stamps._written or stamps.places)
    assert max(counts) == min(counts) > 2 * LINES


def test_only_records_since_the_last_checkpoint_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create_or_open(str(tmp_path / "store"))
    for index in range(50):
        store.add_undo([UndoEntry(1, 0, 8, 1, index << 12, 0)], index, durable=False)
    log, looked = store.undo_log, []
    record = log._record
    monkeypatch.setattr(log, "_record", lambda key: looked.append(key) or record(key))
    found = log.between(47, 49)
    assert [undo.after_index for undo in found] == [47, 48] == [key[0] for key in looked]
