"""What devices have for numbers by now, as files tell that are noted."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori._area import lib
from metamori.cli.restore import truncate_stdio
from metamori.runtime.area import wal
from metamori.runtime.area.whereabouts import devices_of
from metamori.runtime.area.whereabouts import renumbered as forget
from metamori.runtime.lifecycle import recover
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
def test_inherited_files_with_a_number(files: list[bytes], dev: int, later: int, cut: bool,
                                       monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--stdio: what another disk has by an equal number at that path is cut only if it was there at the checkpoint. It
    is asked itself for its birth: the path may be another file's meanwhile."""
    st = os.lstat(files[0])
    entry = InheritedEntry(1, 1, files[0], 2, st.st_dev + dev, st.st_ino)
    meta = SimpleNamespace(run=1, inherited=(entry,), time_ns=REAL.birth_ns(files[0]) + later)
    history = SimpleNamespace(chain=lambda index: [1, 0])
    real, asked = REAL.birth_ns, list[bytes]()

    def birth_ns(door: object, path: bytes, follow: bool = False) -> int:
        asked.append(path)
        return int(real(path, follow))

    monkeypatch.setattr(type(REAL), "birth_ns", birth_ns)
    store: Any = SimpleNamespace(door=REAL, meta=lambda index: meta, history=history)
    assert truncate_stdio(store, 1) == ([files[0]] if cut else [])
    assert os.lstat(files[0]).st_size == (2 if cut else 4)
    assert files[0] not in asked
    assert ("now on another device; not truncated" in capsys.readouterr().err) is not cut


class Disks:
    """A run area's PIFs, of which `a` was on a disk and `b` and `c` on another, that have exchanged their numbers."""

    def __init__(self, folder: Path, files: list[bytes], now: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.files, self.told, self.left = os.fspath(folder), files, dict[int, int](), 99
        self.now = [now, now - 1, now - 1]
        self.slots = [SimpleNamespace(path=path, flags=lib.MM_USED, dev=was, ino=os.lstat(path).st_ino,
                                      btime_ns=REAL.birth_ns(path))
                      for path, was in zip(files, [now - 1, now, now], strict=True)]
        self.log: list[Any] = []
        self.door, self.renumber = REAL, self.told_of
        monkeypatch.setattr(wal, "read", lambda folder: self.log)

    def told_of(self, devices: dict[int, int]) -> None:
        self.told = devices

    def pifs(self) -> list[int]:
        return [0, 1, 2]

    def pif(self, slot: int) -> Any:
        return self.slots[slot]

    def pif_path(self, pif: Any) -> bytes:
        return bytes(pif.path)

    def find_pif(self, dev: int, ino: int, btime_ns: int) -> int:
        return [(each.dev, each.ino, each.btime_ns) for each in self.slots].index((dev, ino, btime_ns))

    def identify(self, slot: int, dev: int, ino: int, btime_ns: int) -> None:
        if not self.left:
            raise InterruptedError
        self.left -= 1
        self.slots[slot].dev = dev

    def complete(self) -> None:
        area: Any = self
        try:
            recover._renumber(area, area)
        finally:
            forget({})


@pytest.fixture
def disks(tmp_path: Path, files: list[bytes], snapshot: int, monkeypatch: pytest.MonkeyPatch) -> Disks:
    return Disks(tmp_path, files, snapshot, monkeypatch)


@pytest.mark.parametrize("left", range(4))
def test_a_completion_that_is_killed_among_its_pifs(disks: Disks, left: int) -> None:
    """Some have the numbers of now already, the others do not."""
    now = disks.now
    disks.left = left
    with pytest.raises(InterruptedError) if left < 3 else nullcontext():
        disks.complete()
    disks.left = 99
    for _ in range(2):
        disks.complete()
        assert [each.dev for each in disks.slots] == now
        assert disks.told == {now[0]: now[1], now[1]: now[0]}


def test_a_killed_completion_of_numbers_that_come_back(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanged twice, they are what the log has."""
    disks.complete()
    real = REAL.lstat
    monkeypatch.setattr(type(REAL), "lstat", lambda door, path: SimpleNamespace(
        st_ino=os.lstat(path).st_ino, st_dev=disks.now[1] if path == disks.files[0] else disks.now[0])
        if path in disks.files else real(path))
    for _ in range(2):
        disks.complete()
        assert [each.dev for each in disks.slots] == [disks.now[1], disks.now[0], disks.now[0]]
        assert all(is_ == now for is_, now in disks.told.items())


def test_only_the_log_tells_of_a_disk(disks: Disks) -> None:
    """Its PIFs have no name any more, and a completion was killed before it was mounted again."""
    disks.slots[0].path = disks.slots[0].path + b".gone"
    note = Path(disks.path, "devices")
    disks.log = [SimpleNamespace(kind=0, path=disks.files[0], dev=WAS, ino=disks.slots[0].ino,
                                 btime_ns=disks.slots[0].btime_ns)]
    note.write_text(f"{WAS} {WAS + 1}\n")
    disks.slots[0].dev = WAS + 1
    for _ in range(2):
        disks.complete()
        assert disks.slots[0].dev == disks.now[0] and disks.told[WAS] == disks.now[0]


def test_a_number_that_one_has_still_in_log_or_area(disks: Disks) -> None:
    """The log tells of a file only where a snapshot is mounted; the area's others are where they were."""
    disks.log = [SimpleNamespace(kind=0, path=disks.files[0], dev=disks.now[1], ino=disks.slots[0].ino,
                                 btime_ns=disks.slots[0].btime_ns)]
    for each in disks.slots:
        each.dev = disks.now[1]
    disks.complete()
    assert [each.dev for each in disks.slots] == [disks.now[1]] * 3 and disks.told == {disks.now[1]: disks.now[1]}
