"""What the completion of a killed restore takes for somebody else's."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.store.io.os_io import REAL
from metamori.store.restore.restore import _changed

TIME = 1_700_000_000_123_456_789


def changed(file: Path) -> list[bytes]:
    state: Any = SimpleNamespace(existing=lambda: [SimpleNamespace(kind="file", path=bytes(file), inode=1)],
                                 pifs={1: SimpleNamespace(size=4, mtime_ns=TIME)})
    store: Any = SimpleNamespace(door=REAL, state=lambda index: state)
    return [*_changed(store, 1, {bytes(file)})]


@pytest.mark.parametrize(("tick", "is_it"), [(1, True), (100, True), (1000, True), (10**7, True), (2 * 10**9, True),
                                             (-(10**6), False)])
def test_a_time_as_its_filesystem_keeps_it(tmp_path: Path, tick: int, is_it: bool) -> None:
    """Of nanoseconds NTFS keeps hundreds, UDF thousands, exFAT ten millions, FAT two seconds."""
    file = tmp_path / "f"
    file.write_bytes(b"four")
    os.utime(file, ns=(TIME, TIME // tick * tick if tick > 0 else TIME - tick))
    assert changed(file) == ([] if is_it else [bytes(file)])


def test_the_time_of_somebody_elses_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The restore could not set it."""
    file = tmp_path / "f"
    file.write_bytes(b"four")
    assert changed(file) == [bytes(file)]
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1000)
    assert not changed(file)
    file.write_bytes(b"longer")
    assert changed(file) == [bytes(file)]
