"""What a checkpoint or a restore makes durable in place: every file by itself, or a known filesystem whole, where there
are many."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metamori.errors import MetamoriError
from metamori.runtime.checkpoint import sync as durable
from metamori.store.format.records import Intent, NameOp, SizeOp
from metamori.store.io import os_io
from metamori.store.io.os_io import Door
from metamori.store.restore import redo
from metamori.store.restore.redo import Applier


class Seen:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.each: list[str] = []
        self.whole: list[str] = []
        self.all = 0
        self.answer = 0
        monkeypatch.setattr(durable.os, "fdatasync", lambda fd: self.each.append(os.readlink(f"/proc/self/fd/{fd}")))
        monkeypatch.setattr(durable.os, "sync", self.sync)
        monkeypatch.setattr(os_io, "lib", SimpleNamespace(syncfs=self.syncfs))

    def syncfs(self, fd: int) -> int:
        self.whole.append(os.readlink(f"/proc/self/fd/{fd}"))
        return self.answer

    def sync(self) -> None:
        self.all += 1


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


Home = tuple[bytes, os.stat_result]


def files(folder: Path, count: int) -> list[Home]:
    for number in range(count):
        (folder / str(number)).write_text("x")
    return [(os.fsencode(folder / str(number)), os.stat(folder / str(number))) for number in range(count)]


def test_a_few_are_synced_by_themselves(tmp_path: Path, seen: Seen) -> None:
    few = files(tmp_path, durable.MANY)
    durable.sync(few, {os.fsencode(tmp_path)})
    assert sorted(seen.each) == sorted([*(os.fsdecode(path) for path, _ in few), str(tmp_path)]) and not seen.whole


def test_many_are_synced_at_once(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    many = files(tmp_path, durable.MANY + 1)
    os.unlink(many[0][0])                  # gone since, and another is something else
    os.unlink(many[1][0])
    os.mkfifo(many[1][0])
    monkeypatch.setattr(durable, "can_be_whole", lambda device: device == os.stat(tmp_path).st_dev)
    durable.sync([*many, (b"/proc/version", os.stat("/proc/version"))], {os.fsencode(tmp_path), b"/proc"})
    assert len(seen.whole) == 1 and seen.each == ["/proc/version", "/proc"]


def test_an_unknown_filesystem_is_not_synced_whole(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    many = files(tmp_path, durable.MANY + 1)
    monkeypatch.setattr(os_io, "WHOLE", frozenset((b"elsewhere",)))
    durable.sync(many, ())
    assert len(seen.each) == len(many) and not seen.whole


@pytest.mark.parametrize("what", ["renamed", "replaced", "removed", "folder renamed", "folder removed"])
def test_what_moved_on_is_durable_with_its_filesystem(tmp_path: Path, seen: Seen, what: str) -> None:
    """The program goes on while a checkpoint is made durable; what it renames then is the file that was recorded."""
    folder = tmp_path / "folder"
    folder.mkdir()
    homes = files(folder, 2)
    first = folder / "0"
    if what == "renamed":
        first.rename(folder / "new")
    elif what == "replaced":
        (tmp_path / "other").write_text("another")
        (tmp_path / "other").rename(first)
    elif what == "removed":
        first.unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
    if what == "folder removed":
        shutil.rmtree(tmp_path / "elsewhere")
    durable.sync(homes, {os.fsencode(folder)})
    around = str(tmp_path if what.startswith("folder") else folder)
    assert seen.whole == [str(first) if what == "replaced" else around] and not seen.all
    assert seen.each == ([around] if what.startswith("folder") else [])


def test_a_folder_that_is_gone_is_a_change_of_the_one_around_it(tmp_path: Path, seen: Seen) -> None:
    durable.sync((), {os.fsencode(tmp_path / "gone" / "too")})
    assert seen.each == [str(tmp_path)] and not seen.whole


def test_what_may_not_be_opened_is_durable_too(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode that keeps its owner out; or no descriptor is free."""
    homes, real, refused = files(tmp_path, 2), os.open, {os.fsencode(tmp_path / "0")}

    def opening(path: bytes, *words: int) -> int:
        if path in refused or not refused:
            raise PermissionError(errno.EACCES, "refused")
        return real(path, *words)

    monkeypatch.setattr(durable.os, "open", opening)
    durable.sync(homes, ())
    assert seen.whole == [str(tmp_path)]
    refused.clear()
    durable.sync(homes, {os.fsencode(tmp_path)})
    assert len(seen.whole) == 1 and seen.all


def test_what_the_disk_says_is_not_lost(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "can_be_whole", lambda device: True)
    seen.answer = -1
    with pytest.raises(OSError):
        durable.sync(files(tmp_path, durable.MANY + 1), ())


class Told(Door):
    """What is synced, and a look, counted from 1, that fails."""

    def __init__(self, bad: int = 0) -> None:
        self.each: list[str] = []
        self.whole, self.looks, self.bad = 0, 0, bad

    def fsync(self, fd: int) -> None:
        self.each.append(os.readlink(f"/proc/self/fd/{fd}"))

    def syncfs(self, fd: int) -> None:
        self.whole += 1

    def lstat(self, path: bytes) -> os.stat_result:
        self.looks += 1
        if self.looks == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().lstat(path)


def restored(folder: Path, door: Door, count: int) -> None:
    """So many files, each in a new folder, are given a mode and a time."""
    folders = [os.fsencode(folder / str(number)) for number in range(count)]
    names = (*(NameOp("mkdir", path, mode=0o40700) for path in folders),
             *(NameOp("create", path + b"/f") for path in folders),
             *(NameOp("mkdir", path, mode=0o40700, mtime_ns=10**18) for path in folders))
    sizes = (SizeOp(0, path + b"/f", 0, 0o100600, os.getuid(), os.getgid(), 10**18) for path in folders)
    store: Any = SimpleNamespace(door=door)
    Applier(store, True, b"").run(Intent(1, names=names, sizes=tuple(sizes)))


def test_a_restore_of_few_syncs_each_file_and_folder(tmp_path: Path) -> None:
    door = Told()
    restored(tmp_path, door, 3)
    folders = [str(tmp_path / str(number)) for number in range(3)]
    assert sorted(door.each) == sorted([str(tmp_path), *folders, *(f"{each}/f" for each in folders)])
    assert not door.whole


def test_a_restore_of_many_syncs_no_folder_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo, "can_be_whole", lambda device: True)
    door = Told()
    restored(tmp_path, door, durable.MANY + 1)
    assert door.whole == 1 and not door.each


def test_a_restore_that_cannot_look_says_at_what(tmp_path: Path) -> None:
    """At no look is it an exception of Python's."""
    (tmp_path / "0").mkdir()
    door = Told()
    restored(tmp_path / "0", door, 1)
    for nth in range(1, door.looks + 1):
        (tmp_path / str(nth)).mkdir()
        with pytest.raises(MetamoriError, match=re.escape(str(tmp_path / str(nth)))):
            restored(tmp_path / str(nth), Told(nth), 1)
    assert door.looks > 5


def test_a_copy_is_synced_with_its_mode_and_time(tmp_path: Path) -> None:
    """Whose set-id bits a change of owner clears, even to the same one."""
    class Synced(Door):
        def fsync(self, fd: int) -> None:
            seen.append(os.fstat(fd))

    seen: list[os.stat_result] = []
    (tmp_path / "f").write_text("x")
    os.chmod(tmp_path / "f", 0o4755)
    os.utime(tmp_path / "f", ns=(10**18, 10**18))
    store: Any = SimpleNamespace(door=Synced())
    redo.copy_file(store, os.fsencode(tmp_path / "f"), os.fsencode(tmp_path / "copy"))
    assert [(st.st_mode, st.st_mtime_ns) for st in (*seen, (tmp_path / "copy").stat())] == [(0o104755, 10**18)] * 2


def test_a_copy_of_somebody_elses_file_lends_no_powers(tmp_path: Path) -> None:
    """It was its copier's own, and ran with his powers whoever started it."""
    class Refused(Door):
        def chown(self, path: bytes, uid: int, gid: int) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "f").write_text("x")
    os.chmod(tmp_path / "f", 0o6755)
    store: Any = SimpleNamespace(door=Refused())
    redo.copy_file(store, os.fsencode(tmp_path / "f"), os.fsencode(tmp_path / "copy"))
    assert (tmp_path / "copy").stat().st_mode == 0o100755


def test_this_machine_is_known() -> None:
    """At least one mounted filesystem of the usual ones is found by its number."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    kinds = {words[words.index("-") + 1]: words[4] for words in map(str.split, lines)}
    usual = [kinds[kind] for kind in ("ext4", "xfs", "tmpfs") if kind in kinds and os.access(kinds[kind], os.F_OK)]
    if not usual:
        pytest.skip("no usual filesystem is mounted here")
    assert any(durable.can_be_whole(os.stat(folder).st_dev) for folder in usual)
