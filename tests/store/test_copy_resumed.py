"""A copy that was interrupted goes on: from every point, to the same as one that was not."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from synthetic import Run, take_snapshot

from metamori.errors import MetamoriError
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store
from metamori.store.restore import export


class Stopped(BaseException):
    """Where a kill would come."""


def made(folder: Path) -> Store:
    files = folder / "files"
    files.mkdir()
    store = Store.create_or_open(os.fsencode(folder / "store"))
    run = Run(store, files, {0: take_snapshot(files)}, random.Random(3))
    for number in range(4):
        run.create(files / f"f{number}")
        run.write(files / f"f{number}", 0, b"x" * (1000 * number + 1))
    run.end()
    return store


@pytest.mark.parametrize("stop", range(12))
def test_a_copy_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    with made(tmp_path) as store:
        export.export(store, 1, tmp_path / "whole")
        calls = 0

        def stopping(real):  # type: ignore[no-untyped-def]
            def call(*words):  # type: ignore[no-untyped-def]
                nonlocal calls
                calls += 1
                if calls > stop:
                    raise Stopped
                return real(*words)
            return call

        with monkeypatch.context() as patched:
            patched.setattr(export, "attributes", stopping(export.attributes))
            patched.setattr(export, "_make", stopping(export._make))
            with pytest.raises(Stopped) if stop < 8 else pytest.MonkeyPatch.context():
                export.export(store, 1, tmp_path / "copy")
        if stop < 8:
            with pytest.raises(MetamoriError, match="not empty"):
                export.export(store, 0, tmp_path / "copy")   # another index than was begun
            before = {path: path.stat().st_ino for path in (tmp_path / "copy").rglob("f*") if path.is_file()}
            export.export(store, 1, tmp_path / "copy")
            kept = [path for path, ino in before.items() if path.stat().st_ino == ino]
            assert len(kept) >= len(before) - 1              # the one that was under way at most is made anew
        assert take_snapshot(tmp_path / "copy") == take_snapshot(tmp_path / "whole")
        assert len(list((tmp_path / "copy/files").iterdir())) == 4
        assert os.listdir(tmp_path / "copy") == ["files"]


def test_a_copy_is_durable_before_it_counts_as_one(tmp_path: Path) -> None:
    """Whoever had it could prune what it was made of, durably, and a power cut took both."""
    synced: set[str] = set()

    class Synced(Door):
        def fsync(self, fd: int) -> None:
            synced.add(os.readlink(f"/proc/self/fd/{fd}"))
            assert (copy / ".metamori-unfinished-copy").exists()

    made(tmp_path).close()
    copy = tmp_path / "of" / "it" / "copy"
    with Store.open(str(tmp_path / "store"), door=Synced()) as store:
        export.export(store, 1, copy)
    assert synced == {*map(str, (copy, *list(copy.parents)[:3], *copy.rglob("*")))}


def test_what_a_power_cut_left_is_copied_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and times may be durable, and bytes not; and another interruption may come before all is made anew."""
    def stopped(at: int) -> None:
        with monkeypatch.context() as patched, pytest.raises(Stopped):
            real, calls = export._make, iter(range(at))

            def make(*words):  # type: ignore[no-untyped-def]
                if next(calls, None) is None:
                    raise Stopped
                real(*words)

            patched.setattr(export, "_make", make)
            export.export(store, 1, tmp_path / "copy")

    with made(tmp_path) as store:
        export.export(store, 1, tmp_path / "whole")
        stopped(3)
        torn = [path for path in (tmp_path / "copy").rglob("f?") if path.is_file()]
        assert len(torn) >= 3
        for path in torn:
            found = path.stat()
            path.write_bytes(bytes(found.st_size))
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        monkeypatch.setattr(export, "boot_id", lambda: b"after the power cut")
        stopped(2)
        export.export(store, 1, tmp_path / "copy")
        assert take_snapshot(tmp_path / "copy") == take_snapshot(tmp_path / "whole")
