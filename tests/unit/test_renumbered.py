"""What devices have for numbers by now, as files tell that are noted."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.cli.restore import truncate_stdio
from metamori.runtime.area.whereabouts import devices_of
from metamori.store.format.records import Head, InheritedEntry
from metamori.store.io.os_io import REAL
from metamori.store.read.head import identity_now, renumbered
from metamori.tables.record import replace

WAS = 12345                                # a number that no device has


@pytest.fixture
def files(tmp_path: Path) -> list[bytes]:
    made = [bytes(tmp_path / name) for name in "abc"]
    for file in made:
        Path(os.fsdecode(file)).write_bytes(b"four")
    return made


@pytest.fixture
def snapshot(files: list[bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """Its number: the first file is there, with all else the same."""
    real, number = REAL.lstat, REAL.lstat(files[0]).st_dev + 1

    def lstat(door: object, path: bytes) -> Any:
        st = real(path)
        if path != files[0]:
            return st
        return SimpleNamespace(**{name: getattr(st, name) for name in dir(st) if name.startswith("st_")}
                               | {"st_dev": number})

    monkeypatch.setattr(type(REAL), "lstat", lstat)
    return number


def noted(files: list[bytes], dev: int) -> list[tuple[bytes, int, int, int]]:
    return [(file, dev, os.lstat(file).st_ino, REAL.birth_ns(file)) for file in files]


def head_of(files: list[bytes], dev: int) -> Head:
    return Head(1, tuple(replace(identity_now(REAL, file), dev=dev) for file in files), ())


def test_a_number_that_a_file_has_still(files: list[bytes], snapshot: int) -> None:
    """A snapshot's folder is mounted over one of the project's: the others' device has no other number by that."""
    dev = snapshot - 1
    assert devices_of(noted(files, dev)) == {dev: dev}
    assert devices_of(noted(files, WAS)) == {WAS: snapshot}
    head = head_of(files, dev)
    assert renumbered(REAL, head, {}) is head


def test_own_files_tell_before_others(files: list[bytes]) -> None:
    """The head of a completion that was killed has the numbers of now already."""
    dev = os.lstat(files[0]).st_dev
    head = head_of(files, dev)
    assert renumbered(REAL, head, {dev: WAS, WAS: dev}) == head
    assert renumbered(REAL, head_of(files, WAS), {WAS: 1}) == head
    gone = replace(head, identities=tuple(replace(each, dev=WAS, ino=1) for each in head.identities))
    assert {each.dev for each in renumbered(REAL, gone, {WAS: dev}).identities} == {dev}


@pytest.mark.parametrize(("dev", "later", "cut"), [(0, 0, True), (1, 0, True), (0, -10**9, True), (1, -10**9, False)])
def test_inherited_files_with_a_number(files: list[bytes], dev: int, later: int, cut: bool) -> None:
    """--stdio: what another disk has by an equal number at that path is cut only if it was there at the checkpoint."""
    st = os.lstat(files[0])
    entry = InheritedEntry(1, 1, files[0], 2, st.st_dev + dev, st.st_ino)
    meta = SimpleNamespace(run=1, inherited=(entry,), time_ns=REAL.birth_ns(files[0]) + later)
    history = SimpleNamespace(chain=lambda index: [1, 0])
    store: Any = SimpleNamespace(door=REAL, meta=lambda index: meta, history=history)
    assert truncate_stdio(store, 1) == ([files[0]] if cut else [])
    assert os.lstat(files[0]).st_size == (2 if cut else 4)
