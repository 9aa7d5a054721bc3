"""Somebody goes on with a file while its state is saved as a checkpoint: what is recorded is what head knows of it."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from honest import verb
from test_move_property import make_history

from metamori.errors import ChangedOutside
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store
from metamori.store.restore import external_changes


class Writer(Door):
    """Somebody appends to a file, or writes over it, each time that some of it has been copied, so many times."""

    def __init__(self, file: Path, times: int, at: int) -> None:
        self.file, self.times, self.at = file, times, at

    def copied(self, source: int) -> None:
        if self.times and os.path.realpath(f"/proc/self/fd/{source}") == str(self.file):
            self.times -= 1
            with self.file.open("r+b") as file:
                file.seek(self.at, os.SEEK_END if self.at == 0 else os.SEEK_SET)
                file.write(b"%d" % self.times)

    def copy_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> int:
        done = super().copy_range(source, source_at, target, target_at, length)
        self.copied(source)
        return done

    def clone_range(self, source: int, source_at: int, target: int, target_at: int, length: int) -> bool:
        done = super().clone_range(source, source_at, target, target_at, length)
        if done:
            self.copied(source)
        return done


def changed(tmp_path: Path) -> Path:
    """A store whose files are as recorded, but for one that is long and new in its bytes."""
    store, _ = make_history(tmp_path, random.Random(2), runs=2, steps=6)
    name = next(path for path, each in store.state(store.head.index).names.items() if each.kind == "file")
    store.close()
    file = Path(os.fsdecode(name))
    file.chmod(0o600)
    file.write_bytes(os.urandom(700_000))
    return file


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at", [0, 5000], ids=["appended", "overwritten"])
def test_it_is_saved_once_more(tmp_path: Path, times: int, at: int) -> None:
    file = changed(tmp_path)
    with Store.open(os.fsencode(tmp_path / "store"), write=True, door=Writer(file, times, at)) as store:
        index = external_changes.record(store, "changed")
        assert index and store.is_recorded
    content = file.read_bytes()
    file.write_bytes(b"")
    assert verb(tmp_path / "store", "restore", index, "--to", tmp_path / "to").code == 0
    [found] = (tmp_path / "to").rglob(file.name)
    assert found.read_bytes() == content


def test_who_does_not_stop_is_named(tmp_path: Path) -> None:
    file = changed(tmp_path)
    with Store.open(os.fsencode(tmp_path / "store"), write=True, door=Writer(file, 1000, 0)) as store:
        with pytest.raises(ChangedOutside, match="is being changed; run the command again"):
            external_changes.record(store, "changed")
        newest = store.newest
    with Store.open(os.fsencode(tmp_path / "store"), write=True) as store:
        assert store.newest == newest
        assert external_changes.record(store, "changed") == newest + 1


def test_what_comes_before_head_is_written_is_found_out(tmp_path: Path) -> None:
    """The file was saved; its bytes of now are in no checkpoint."""
    file = changed(tmp_path)
    with Store.open(os.fsencode(tmp_path / "store"), write=True) as store:
        commit = store.commit_checkpoint

        def late(*words: object, **more: object) -> object:
            done = commit(*words, **more)  # type: ignore[arg-type]
            with file.open("r+b") as writer:
                writer.write(b"late")
            return done

        store.commit_checkpoint = late  # type: ignore[assignment, method-assign]
        external_changes.record(store, "changed")
        assert store.changed_outside() == [os.fsencode(file)]
