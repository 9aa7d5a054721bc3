"""What the completion of a killed restore takes for somebody else's."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.store.format.records import Identity, Intent, NameOp, WriteOp
from metamori.store.io.os_io import REAL
from metamori.store.restore.redo import Applier, read_intent, write_intent
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


def store_at(file: bytes, noted: Identity, size: int) -> Any:
    """Its head noted a file; at the target that has this size."""
    state = SimpleNamespace(names={file: SimpleNamespace(inode=1)}, pifs={1: SimpleNamespace(size=size)})
    return SimpleNamespace(door=REAL, state=lambda index: state, layout=SimpleNamespace(root=b"/nowhere"),
                           head=SimpleNamespace(index=2, kept=(), identities=(noted,)))


@pytest.mark.parametrize(("after", "theirs"), [(-4, True), (0, True), (4, False)], ids=["before", "same-tick", "after"])
def test_a_file_with_the_number_that_was_noted(tmp_path: Path, after: int, theirs: bool) -> None:
    """The intent, so many ns after its birth, tells whether it was there then. In doubt it is somebody else's."""
    file = bytes(tmp_path / "f")
    Path(os.fsdecode(file)).write_bytes(b"four")
    born, found = REAL.birth_ns(file), os.lstat(file)
    noted = Identity(file, found.st_dev, found.st_ino, 4, TIME, born - 10**9)     # as head knew the file before it
    applier = Applier(store_at(file, noted, size=4), False, b"", looks=True)
    left = applier._without_theirs(Intent(1, writes=(WriteOp(1, file, 0, 4, 0, 0),)), born + after)
    assert (applier.theirs, left.writes == ()) == ([file] if theirs else [], theirs)


@pytest.mark.parametrize(("size", "theirs"), [(3, True), (4, False), (6, False), (8, False), (9, True), (2, False)])
def test_a_copy_is_as_long_as_it_may_be_by_now(tmp_path: Path, size: int, theirs: bool) -> None:
    """It has the 4 bytes that head noted at first, and grows to 8 by the writes; 2, once it is cut."""
    file = bytes(tmp_path / "f")
    Path(os.fsdecode(file)).write_bytes(bytes(size))
    noted = Identity(file, 0, os.lstat(file).st_ino + 1, 4, TIME, TIME)
    applier = Applier(store_at(file, noted, size=2), False, b"", looks=True)
    applier._without_theirs(Intent(1, names=(NameOp("link", file, b"elsewhere"),),
                                   writes=(WriteOp(1, file, 0, 8, 0, 0),)), TIME)
    assert applier.theirs == ([file] if theirs else [])


def test_the_intent_keeps_its_time(tmp_path: Path) -> None:
    """It counts steps anew in a completion, which may be killed: a file of somebody else's is no older by that."""
    record = bytes(tmp_path / "intent")
    store: Any = SimpleNamespace(door=REAL, layout=SimpleNamespace(id=1))
    write_intent(store, Intent(1), False, record)
    os.utime(record, ns=(TIME, TIME))
    Applier(store, False, record)._note_done(Intent(1), 3)
    intent = read_intent(store, record)
    assert intent is not None
    assert (intent.done, os.lstat(record).st_mtime_ns) == (3, TIME)


@pytest.mark.parametrize(("born", "is_it"), [(TIME - 1, True), (TIME, False), (7, False), (0, False)])
def test_a_number_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, born: int, is_it: bool) -> None:
    """Where no clock tells of births, head tells whose it is."""
    file, record = bytes(tmp_path / "f"), tmp_path / "intent"
    for each in (Path(os.fsdecode(file)), record):
        each.write_bytes(b"four")
    os.utime(record, ns=(TIME, TIME))
    found = os.lstat(file)
    monkeypatch.setattr(type(REAL), "birth_ns", lambda door, path: born)
    for noted, expected in ((found.st_ino + 1, is_it), (found.st_ino, is_it or born < 1 << 32)):
        store = store_at(file, Identity(file, found.st_dev, noted, 4, TIME, TIME), 4)
        store.layout.kept_folder = b"/nowhere/kept"
        assert Applier(store, False, bytes(record), looks=True)._is(file, found.st_dev + 1, found.st_ino) == expected
    store.layout.kept_folder = bytes(tmp_path)
    assert Applier(store, False, bytes(record))._is(file, found.st_dev + 1, found.st_ino) == (is_it or born < 1 << 32)
