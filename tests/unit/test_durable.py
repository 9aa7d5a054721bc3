"""What a checkpoint makes durable at home: every file by itself, or a known filesystem whole, where there are many."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from metamori.runtime import durable


class Seen:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.each: list[str] = []
        self.whole = 0
        self.answer = 0
        monkeypatch.setattr(durable.os, "fdatasync", lambda fd: self.each.append(os.readlink(f"/proc/self/fd/{fd}")))
        monkeypatch.setattr(durable, "lib", SimpleNamespace(syncfs=self.syncfs))

    def syncfs(self, fd: int) -> int:
        self.whole += 1
        return self.answer


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def files(folder: Path, count: int) -> list[tuple[bytes, int]]:
    for number in range(count):
        (folder / str(number)).write_text("x")
    return [(os.fsencode(folder / str(number)), os.stat(folder).st_dev) for number in range(count)]


def test_a_few_are_synced_by_themselves(tmp_path: Path, seen: Seen) -> None:
    few = files(tmp_path, durable.MANY)
    durable.sync(few, {os.fsencode(tmp_path)})
    assert sorted(seen.each) == sorted([*(os.fsdecode(path) for path, _ in few), str(tmp_path)]) and not seen.whole


def test_many_are_synced_at_once(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    many = files(tmp_path, durable.MANY + 1)
    os.unlink(many[0][0])                  # gone since, and another is something else
    os.unlink(many[1][0])
    os.mkfifo(many[1][0])
    monkeypatch.setattr(durable, "_can_be_whole", lambda device: device == os.stat(tmp_path).st_dev)
    durable.sync([*many, (b"/proc/version", 7)], {os.fsencode(tmp_path), b"/proc"})
    assert seen.whole == 1 and seen.each == ["/proc/version", "/proc"]


def test_an_unknown_filesystem_is_not_synced_whole(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    many = files(tmp_path, durable.MANY + 1)
    monkeypatch.setattr(durable, "_WHOLE", frozenset((b"elsewhere",)))
    durable.sync(many, ())
    assert len(seen.each) == len(many) and not seen.whole


def test_what_the_disk_says_is_not_lost(tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_can_be_whole", lambda device: True)
    seen.answer = -1
    with pytest.raises(OSError):
        durable.sync(files(tmp_path, durable.MANY + 1), ())


def test_this_machine_is_known() -> None:
    """At least one mounted filesystem of the usual ones is found by its number."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    kinds = {words[words.index("-") + 1]: words[4] for words in map(str.split, lines)}
    usual = [kinds[kind] for kind in ("ext4", "xfs", "tmpfs") if kind in kinds]
    if not usual:
        pytest.skip("no usual filesystem is mounted here")
    assert any(durable._can_be_whole(os.stat(folder).st_dev) for folder in usual)
