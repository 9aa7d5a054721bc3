"""A reader meets a prune of somebody else, or a new checkpoint, between any two of its operations."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Snapshot
from test_move_faults import copy_of
from test_move_property import check_reading, make_history

from metamori.errors import NoSuchCheckpoint, StoreBusy
from metamori.store.format.records import Meta
from metamori.store.io.os_io import Door
from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.tables.record import replace
from metamori.tables.retention import Rules

_PATIENCE = 300


class CountingDoor:
    """Calls `meanwhile` before the Nth operation, counted from 1."""

    def __init__(self, nth: int, meanwhile: Callable[[], object]) -> None:
        self._door, self._nth, self._meanwhile = Door(), nth, meanwhile
        self.count = 0

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        real = getattr(self._door, name)

        def operation(*values, **named):  # type: ignore[no-untyped-def]
            self.count += 1
            if self.count == self._nth:
                self._meanwhile()
            return real(*values, **named)

        return operation


class Pruning:
    """A prune that stops before its Nth operation until it may go on; the whole of it, when there are fewer."""

    def __init__(self, lab: Path, nth: int, keep: set[int]) -> None:
        self._stopped, self._go = threading.Event(), threading.Event()
        door = CountingDoor(nth, self._wait)
        self._thread = threading.Thread(target=self._prune, args=(lab, door, keep))
        self._thread.start()
        assert self._stopped.wait(_PATIENCE)

    def _wait(self) -> None:
        self._stopped.set()
        assert self._go.wait(_PATIENCE)

    def _prune(self, lab: Path, door: CountingDoor, keep: set[int]) -> None:
        try:
            store = Store(os.fsencode(lab / "store"), door)  # type: ignore[arg-type]
            store.read_format()
            store.lock()
            prune.prune(store, Rules(keep_last=1), keep)
            store.close()
        finally:
            self._stopped.set()

    def finish(self) -> None:
        self._go.set()
        self._thread.join(_PATIENCE)


def look(lab: Path, models: dict[int, Snapshot], keep: set[int], door: CountingDoor) -> None:
    """What it can say is right; else it says that somebody prunes, or that the index went. Never damage."""
    kept = {index: models[index] for index in sorted(keep)}
    for part in (lambda store: check_reading(store, lab / "files", kept),
                 lambda store: [store.require(index) for index in sorted(models)],
                 whole):
        try:
            with Store(os.fsencode(lab / "store"), door) as store:  # type: ignore[arg-type]
                store.read_format()
                part(store)
        except (StoreBusy, NoSuchCheckpoint):
            continue


def whole(store: Store) -> None:
    assert verify(store).problems == []


@pytest.mark.parametrize("seed", range(2))
def test_a_prune_between_any_two_operations(tmp_path: Path, seed: int) -> None:
    """All of it before each operation of the reader; and begun before, then finished there."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    rng = random.Random(seed)
    store, models = make_history(lab, rng, runs=2, steps=5)
    keep = {store.head.index, store.newest, rng.choice(store.indexes)}
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")

    def again() -> None:
        copy_of(lab, saved)
        fresh = Store.open(os.fsencode(lab / "store"))
        fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        fresh.close()

    again()
    reader = CountingDoor(0, lambda: None)
    look(lab, models, keep, reader)
    writer = CountingDoor(0, lambda: None)
    with Store(os.fsencode(lab / "store"), writer) as store:  # type: ignore[arg-type]
        store.read_format()
        store.lock()
        prune.prune(store, Rules(keep_last=1), keep)
    assert reader.count > 50 and writer.count > 50
    points = [(1, nth) for nth in range(1, reader.count + 1, reader.count // 60 + 1)]
    points += [(rng.randint(1, writer.count), rng.randint(1, reader.count)) for _ in range(60)]
    for stop, nth in points:
        again()
        pruning = Pruning(lab, stop, keep)
        try:
            look(lab, models, keep, CountingDoor(nth, pruning.finish))
        except BaseException as error:
            raise AssertionError(f"stopped before operation {stop}, finished before the reader's {nth}") from error
        finally:
            pruning.finish()


def test_a_checkpoint_between_any_two_operations(tmp_path: Path) -> None:
    """Whose head counts a record that a listing made before does not have."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    make_history(lab, random.Random(3), runs=1, steps=5)[0].close()
    os.system(f"cp -a '{lab}' '{saved}'")
    nth, count = 0, 1
    while nth <= count:
        nth += 1
        copy_of(lab, saved)
        store = Store.open(os.fsencode(lab / "store"))
        newest = store.newest
        meta = replace(store.meta(newest), index=newest + 1, parent=newest, pifs=(), names=())

        def meanwhile(store: Store = store, meta: Meta = meta) -> None:
            store.commit_checkpoint(meta)
            store.set_head(meta.index)

        door = CountingDoor(nth, meanwhile)
        with Store(store.layout.root, door) as beside:  # type: ignore[arg-type]
            beside.read_format()
            assert verify(beside).problems == [], nth
        store.close()
        count = door.count
    assert nth > 30
