"""What a checkpoint makes durable in place: every file by itself, or a known filesystem whole, where there are many."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from metamori.runtime.checkpoint import sync as durable
from metamori.store.io import os_io


class Seen:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.each: list[str] = []
        self.whole: list[str] = []
        self.all = 0
        self.answer = 0
        monkeypatch.setattr(durable.os, "fdatasync", lambda fd: self.each.append(os.readlink(f"/proc/self/fd/{fd}")))
        monkeypatch.setattr(durable.os, "sync", self.sync)
        monkeypatch.setattr(durable, "lib", SimpleNamespace(syncfs=self.syncfs))

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


def test_this_machine_is_known() -> None:
    """At least one mounted filesystem of the usual ones is found by its number."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    kinds = {words[words.index("-") + 1]: words[4] for words in map(str.split, lines)}
    usual = [kinds[kind] for kind in ("ext4", "xfs", "tmpfs") if kind in kinds and os.access(kinds[kind], os.F_OK)]
    if not usual:
        pytest.skip("no usual filesystem is mounted here")
    assert any(durable.can_be_whole(os.stat(folder).st_dev) for folder in usual)
