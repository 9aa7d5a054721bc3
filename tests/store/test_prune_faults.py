"""A prune is stopped at every operation in turn, by an error or dead, and then completed."""

from __future__ import annotations

import errno
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
from metamori.store.prune import prune, spare
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import restore
from metamori.tables.retention import Rules


class TightDoor(FailingDoor):
    """Besides, two writes find no room: all of it at once is too much, with the spare room too."""

    def __init__(self, nth: int, what: Callable[[], BaseException]) -> None:
        super().__init__(nth, what)
        self._writes = 0

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        self._writes += 1
        if self._writes in (2, 4):
            raise no_space()
        self.__getattr__("pwrite")(fd, data, offset)


def bad_disk() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


STOPS = {"killed": (FailingDoor, Killed), "no space": (FailingDoor, no_space), "bad disk": (FailingDoor, bad_disk),
         "killed, full": (TightDoor, Killed)}


@pytest.mark.in_turn("stop", 2)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("seed", range(1))
def test_stopped_at_every_operation(tmp_path: Path, seed: int, stop: str) -> None:
    """A reader beside it sees every kept index whole at each stop; the next prune goes on and frees as much."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    rng = random.Random(seed)
    store, models = make_history(lab, rng, runs=2, steps=5)
    keep = {store.head.index, store.newest, rng.choice(store.indexes)}
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")
    expected, nth, unfinished = 0, 0, 0
    step = 2 if stop == "killed, full" else 1
    while True:
        copy_of(lab, saved)
        fresh = Store.open(os.fsencode(lab / "store"))
        fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        if not nth:
            spare.hold(fresh)
            os.system(f"cp -a '{lab}/store/spare' '{saved}/store/spare'")
            expected = prune.prune(fresh, Rules(keep_last=1), keep).after
            nth = 1
            continue
        door = STOPS[stop][0](nth, STOPS[stop][1])
        assert not _interrupted(lab, door, keep) or door.count >= nth
        finished = door.count < nth
        unfinished += (lab / "store" / "prune").exists()
        beside = Store.open(os.fsencode(lab / "store"))
        check_reading(beside, lab / "files", {index: models[index] for index in keep})
        assert stop != "killed, full" or not finished or (lab / "store" / "spare").exists()
        assert verify(beside).problems == [], nth
        _completed(lab, models, keep, expected, 0 if stop == "killed" else 4096 * len(keep))
        if finished:
            break
        nth += step
    assert nth > 30 and (unfinished == 0 if stop == "no space" else unfinished > 5)    # the spare room is enough


class FullDoor(FailingDoor):
    """No write finds room."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        raise no_space()


def test_no_room_at_all(tmp_path: Path) -> None:
    store, models = make_history(tmp_path, random.Random(1), runs=2, steps=5)
    store.close()
    door = FullDoor(0, no_space)
    with pytest.raises(MetamoriError, match="No space left on device; checkpoints pruned: 0"):
        _prune(tmp_path, door, set())
    beside = Store.open(os.fsencode(tmp_path / "store"))
    check_reading(beside, tmp_path / "files", models)
    assert verify(beside).problems == []


class SpareDoor(FailingDoor):
    """The spare room is the last that there is."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> None:
        if os.path.exists(os.path.join(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}")), "spare")):
            raise no_space()
        self.__getattr__("pwrite")(fd, data, offset)


def test_a_killed_prune_is_completed_on_a_full_disk(tmp_path: Path) -> None:
    """By whatever command comes next: with the room that was held for it."""
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    lab.mkdir()
    store, models = make_history(lab, random.Random(1), runs=2, steps=5)
    keep = {store.head.index, store.newest}
    spare.hold(store)
    store.close()
    os.system(f"cp -a '{lab}' '{saved}'")
    nth = 1
    while not (lab / "store" / "prune").exists():
        copy_of(lab, saved)
        with Store.open(os.fsencode(lab / "store"), write=True) as fresh:
            fresh.set_head(fresh.head.index, fresh.head.kept)  # the copies have other inode numbers
        assert _interrupted(lab, FailingDoor(nth, Killed), keep)
        nth += 1
    full = Store(os.fsencode(lab / "store"), SpareDoor(0, no_space))  # type: ignore[arg-type]
    full.read_format()
    full.lock()
    assert prune.recover(full)
    full.close()
    assert not (lab / "store" / "prune").exists() and not (lab / "store" / "spare").exists()
    beside = Store.open(os.fsencode(lab / "store"))
    check_reading(beside, lab / "files", {index: models[index] for index in keep})
    assert verify(beside).problems == []


def _interrupted(lab: Path, door: FailingDoor, keep: set[int]) -> bool:
    try:
        _prune(lab, door, keep)
    except (Killed, MetamoriError, OSError):
        return True
    return False


def _prune(lab: Path, door: FailingDoor, keep: set[int]) -> None:
    store = Store(os.fsencode(lab / "store"), door)  # type: ignore[arg-type]
    try:
        store.read_format()
        store.lock()
        prune.prune(store, Rules(keep_last=1), keep)
    finally:
        store.close()


def _completed(lab: Path, models: dict[int, Snapshot], keep: set[int], expected: int, more: int) -> None:
    """more: bytes of records that were not merged, since one index at a time was pruned."""
    store = Store.open(os.fsencode(lab / "store"), write=True)
    done = prune.prune(store, Rules(keep_last=1), keep)
    assert set(store.indexes) == keep and expected <= done.after <= expected + more
    assert verify(store).problems == []
    assert not [name for name in os.listdir(store.layout.checkpoints) if name.startswith(b".")]
    for index in sorted(keep):
        restore.move_home(store, index, durable=False)
        assert take_snapshot(lab / "files") == models[index], index
    store.close()
