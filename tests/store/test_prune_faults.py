"""A prune is stopped at every operation in turn, by an error or dead, and then completed."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Snapshot, take_snapshot
from test_move_faults import FailingDoor, Killed, copy_of, no_space
from test_move_property import check_reading, make_history

from metamori.errors import MetamoriError
from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import restore
from metamori.tables.retention import Rules


@pytest.mark.parametrize("what", [Killed, no_space], ids=["killed", "no space"])
@pytest.mark.parametrize("seed", range(1))
def test_stopped_at_every_operation(tmp_path: Path, seed: int, what: Callable[[], BaseException]) -> None:
    """A reader beside it sees every kept index whole at each stop; the next prune goes on and frees as much."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    rng = random.Random(seed)
    store, models = make_history(lab, rng, runs=2, steps=5)
    keep = {store.head.index, store.newest, rng.choice(store.indexes)}
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")
    expected, nth, unfinished = 0, 0, 0
    while True:
        copy_of(lab, saved)
        fresh = Store.open(os.fsencode(lab / "store"))
        fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        if not nth:
            expected = prune.prune(fresh, Rules(keep_last=1), keep).after
            nth = 1
            continue
        finished = not _interrupted(lab, FailingDoor(nth, what), keep)
        unfinished += (lab / "store" / "prune").exists()
        beside = Store.open(os.fsencode(lab / "store"))
        check_reading(beside, lab / "files", {index: models[index] for index in keep})
        assert verify(beside).problems == [], nth
        _completed(lab, models, keep, expected)
        if finished:
            break
        nth += 1
    assert nth > 30 and unfinished > 5


def _interrupted(lab: Path, door: FailingDoor, keep: set[int]) -> bool:
    store = Store(os.fsencode(lab / "store"), door)  # type: ignore[arg-type]
    try:
        store.read_format()
        store.lock()
        prune.prune(store, Rules(keep_last=1), keep)
    except (Killed, MetamoriError, OSError):
        return True
    finally:
        store.close()
    return False


def _completed(lab: Path, models: dict[int, Snapshot], keep: set[int], expected: int) -> None:
    store = Store.open(os.fsencode(lab / "store"), write=True)
    done = prune.prune(store, Rules(keep_last=1), keep)
    assert set(store.indexes) == keep and done.after == expected
    assert verify(store).problems == []
    assert not [name for name in os.listdir(store.layout.checkpoints) if name.startswith(b".")]
    for index in sorted(keep):
        restore.move_home(store, index, durable=False)
        assert take_snapshot(lab / "files") == models[index], index
    store.close()
