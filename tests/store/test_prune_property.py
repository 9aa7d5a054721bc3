"""Random histories with branches, random prunes: every kept index is what it was, and what is not kept is gone."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Snapshot, take_snapshot
from test_move_property import check_reading, go, make_history, random_step

from metamori.errors import NoSuchCheckpoint
from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.tables.retention import Rules


def forget_pruned(store: Store, models: dict[int, Snapshot]) -> None:
    """The model of a prune."""
    for index in set(models) - set(store.indexes):
        del models[index]


def check_pruned(store: Store, models: dict[int, Snapshot], newest: int) -> None:
    assert sorted(models) == store.indexes
    for index in range(newest + 1):
        if index not in models:
            with pytest.raises(NoSuchCheckpoint, match="was pruned"):
                store.require(index)
    assert verify(store).problems == []


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(60))
def test_kept_indexes_stay(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=3, steps=12)
    root = tmp_path / "files"
    for _ in range(3):
        newest = store.newest
        always = rng.sample(store.indexes, rng.randrange(len(store.indexes)))
        keep = rng.choice([1, 1, 2, 3])
        want = set(store.indexes[-keep:]) | set(always) | {store.head.index, newest}
        before = prune.disk_bytes(store)
        done = prune.prune(store, Rules(keep_last=keep), always)
        fresh = Store.open(store.layout.root)
        assert fresh.history.indexes == store.history.indexes and fresh.head == store.head
        assert all(store.meta(index) == fresh.meta(index) for index in store.history.indexes[1:])
        assert set(done.kept) == want and done.after <= before
        forget_pruned(store, models)
        if rng.random() < 0.5:
            store = Store.open(store.layout.root)
        check_pruned(store, models, newest)
        check_reading(store, root, models)
        for _ in range(4):
            go(store, root, models, rng.choice(sorted(models)))
        run = Run(store, root, models, rng)
        for _ in range(rng.randrange(8)):
            random_step(run, rng)
        assert run.checkpoint() == newest + 1
        run.end()
        check_reading(store, root, models)
    for index in sorted(models, reverse=True):
        go(store, root, models, index)


def test_the_last_one_alone_takes_no_more_than_its_files(tmp_path: Path) -> None:
    """At the newest index everything is in place: with nothing else to keep, no buffer byte is needed."""
    rng = random.Random(1)
    store, models = make_history(tmp_path, rng, runs=3, steps=12)
    go(store, tmp_path / "files", models, store.newest)
    prune.prune(store, Rules(keep_last=1))
    assert store.indexes == [store.newest]
    assert take_snapshot(tmp_path / "files") == models[store.newest]
    assert list(store.history.indexes) == [0, store.newest]
    assert os.listdir(store.layout.kept_folder) == []
