"""One operation of the store's door fails for the moment (no descriptor left, a bad read): the same Store, asked once
more, says what it always said, and no checkpoint takes the place of another."""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Snapshot
from test_move_faults import FailingDoor
from test_move_property import make_history

from metamori.errors import MetamoriError
from metamori.store.format.records import Meta, OffsetEntry, Offsets
from metamori.store.io.os_io import Door
from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.tables.retention import Rules

ERRORS = (errno.ENFILE, errno.EMFILE, errno.EIO, errno.ENOMEM)


class FailingAgain(FailingDoor):
    """A door whose every operation from the nth on is counted, and the nth fails, after `arm`."""

    def arm(self, nth: int) -> None:
        self.count, self._nth = 0, nth


@pytest.fixture(autouse=True)
def none_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A failed operation leaves no descriptor behind: with its stores closed a test has those that it began with."""
    stores, begin = [], Store.__init__

    def noted(store: Store, *given: Any, **named: Any) -> None:
        begin(store, *given, **named)
        stores.append(store)

    monkeypatch.setattr(Store, "__init__", noted)
    before = set(os.listdir("/proc/self/fd"))
    yield
    for store in stores:
        store.close()
    assert {os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before
            if os.path.exists(f"/proc/self/fd/{fd}")} == set()


def history(folder: Path) -> dict[int, Snapshot]:
    store, models = make_history(folder, random.Random(8), runs=2, steps=6)
    store.close()
    buffer = folder / "store" / "buffer" / "1"
    os.truncate(buffer, max(10, buffer.stat().st_size))
    return models


def opened(folder: Path, number: int) -> tuple[Store, FailingAgain]:
    door = FailingAgain(1 << 30, lambda: OSError(number, os.strerror(number)))
    return Store.open(os.fsencode(folder / "store"), door=door), door  # type: ignore[arg-type]


def all_of(store: Store) -> list[Any]:
    """What it says of everything."""
    said: list[Any] = [store.newest, store.indexes, dict(store.damaged), store.head, store.next_run()]
    for index in store.indexes:
        state = store.state(index)
        said.append((state.names, state.pifs, [(inode, state.pieces(inode)) for inode in sorted(state.pifs)]))
        said.append(store.meta(index) if index else None)
        store.checked(index)
    said += [store.undos, store.buffers.runs(), store.is_pruned, store.changed_outside()]
    return said


def records(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "store" / "checkpoints").iterdir()
            if not path.name.startswith(".")}


@pytest.mark.parametrize("pruned", [False, True])
def test_reading_fails_once(tmp_path: Path, pruned: bool) -> None:
    history(tmp_path)
    if pruned:
        with Store.open(os.fsencode(tmp_path / "store"), write=True) as store:
            prune.prune(store, Rules(keep_last=3), {store.head.index})
    whole, door = opened(tmp_path, 0)
    door.arm(1 << 30)
    wanted, count = all_of(whole), door.count
    assert count > 20
    for nth in range(1, count + 1):
        store, door = opened(tmp_path, ERRORS[nth % len(ERRORS)])
        door.arm(nth)
        with pytest.raises(OSError):
            all_of(store)
        again = all_of(store)
        again[4] = wanted[4]               # each question for a number takes one
        assert again == wanted, nth
        store.close()


def test_a_checkpoint_after_a_reading_that_failed(tmp_path: Path) -> None:
    """At the first try of it an operation fails; the second is the next index, and all before it are as they were."""
    history(tmp_path)
    before, nth = records(tmp_path), 0
    while True:
        nth += 1
        store, door = opened(tmp_path, ERRORS[nth % len(ERRORS)])
        door.arm(nth)
        try:
            _checkpoint(store)
            break
        except OSError:
            pass
        _checkpoint(store)
        after = records(tmp_path)
        assert {name: after.get(name) for name in before} == before, nth
        fresh = Store.open(os.fsencode(tmp_path / "store"))
        assert fresh.damaged == {} and fresh.indexes == store.indexes, nth
        for name in after.keys() - before.keys():
            os.unlink(tmp_path / "store" / "checkpoints" / name)
    assert nth > 15


def _checkpoint(store: Store) -> None:
    """As a session takes one: the index is the one after the newest that it knows."""
    store.look()
    index = store.newest + 1
    offsets = Offsets(index, 1, 1, (OffsetEntry(1, 1, 0, 10, 0, 10, store.buffers.checksum(1, 0, 10)),))
    store.commit_checkpoint(Meta(index, store.newest, 1, "", "", 1, 1), offsets)


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    """Even by a Store that was told nothing: neither the meta file nor its offset file."""
    history(tmp_path)
    before = records(tmp_path)
    store = Store.open(os.fsencode(tmp_path / "store"))
    for index in store.indexes[1:]:
        process = store.meta(index).process
        with pytest.raises(MetamoriError, match=f"checkpoint {index} is there already"):
            store.commit_checkpoint(Meta(index, index - 1, 1, "", "", 1, process), Offsets(index, process, 1, (
                OffsetEntry(1, process, 0, 10, 0, 10, 7),)))
    assert records(tmp_path) == before


def test_of_two_that_are_at_it_one_gets_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other record comes between the last look and the rename."""
    history(tmp_path)
    store, rename = Store.open(os.fsencode(tmp_path / "store")), Door.rename_new

    def late(door: Door, source: bytes, target: bytes) -> None:
        Path(os.fsdecode(target)).write_bytes(b"somebody's")
        rename(door, source, target)

    monkeypatch.setattr(Door, "rename_new", late)
    with pytest.raises(MetamoriError, match="is there already"):
        _checkpoint(store)
    assert b"somebody's" in records(tmp_path).values()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_where_the_filesystem_knows_no_such_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    from metamori.store.io import os_io as door

    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    monkeypatch.setattr(door, "_rename_new", lambda *_: -code)
    one, two, three = (os.fsencode(tmp_path / name) for name in ("one", "two", "three"))
    with pytest.raises(FileExistsError):
        door.REAL.rename_new(one, two)
    door.REAL.rename_new(one, three)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"two": "2", "three": "1"}


def test_two_records_of_one_index_are_damage(tmp_path: Path) -> None:
    history(tmp_path)
    folder = tmp_path / "store" / "checkpoints"
    one = next(folder.glob("3.meta.*"))
    (folder / "3.meta.99").write_bytes(one.read_bytes())
    store = Store.open(os.fsencode(tmp_path / "store"))
    assert store.newest == 2
    assert "two records" in store.damaged[3]


def test_moving_still_works_after_a_failed_read(tmp_path: Path) -> None:
    models = history(tmp_path)
    for nth in range(1, 400, 7):
        store, door = opened(tmp_path, ERRORS[nth % len(ERRORS)])
        store.lock()
        door.arm(nth)
        target = sorted(models)[nth % len(models)]
        try:
            restore.move_home(store, target)
        except (OSError, MetamoriError):
            restore.move_home(store, target)
        store.close()
