"""The power is cut at every operation of a restore, of its completion, and of a prune, in several ways; the next
`metamori` finishes or undoes."""

from __future__ import annotations

import copy
import errno
import os
import random
from pathlib import Path

import pytest
from memory_door import MemoryDoor, PowerCut
from test_move_property import make_history

from metamori.store.prune import prune
from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import restore
from metamori.tables.retention import Rules


class FarDoor(MemoryDoor):
    """The store is on another filesystem than the files."""

    def link(self, source: bytes, target: bytes) -> None:
        self._same(source, target)
        super().link(source, target)

    def rename(self, source: bytes, target: bytes) -> None:
        self._same(source, target)
        super().rename(source, target)

    @staticmethod
    def _same(source: bytes, target: bytes) -> None:
        if (b"/store/" in source) != (b"/store/" in target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source)


WAYS = [(strict, lose) for strict in (False, True) for lose in (1.0, 0.0, 0.5)]


def without_times(model: dict[str, tuple]) -> dict[str, tuple]:
    return {name: (*value[:2], *value[3:]) if value[0] == "file" else value for name, value in model.items()}


def fresh(lab: Path, strict: bool, kind: type[MemoryDoor] = MemoryDoor) -> MemoryDoor:
    door = kind(os.lstat(lab).st_dev)
    door.take_over(lab)
    door.strict = strict
    return door


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize(("strict", "lose"), WAYS, ids=lambda value: str(value))
@pytest.mark.parametrize(("kind", "seed"), [*((MemoryDoor, seed) for seed in range(3)), (FarDoor, 11)],
                         ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_power_fails_in_a_restore(
        tmp_path: Path, kind: type[MemoryDoor], seed: int, strict: bool, lose: float) -> None:
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=2, steps=8)
    target = rng.choice([index for index in models if index != store.head.index])
    store.close()
    wanted = {index: without_times(model) for index, model in models.items()}
    root, files, cuts = os.fsencode(tmp_path / "store"), os.fsencode(tmp_path / "files"), 0
    ended = False
    while not ended:
        cuts += 1
        door = fresh(tmp_path, strict, kind)
        before = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        door.count, door.cut_at = 0, cuts
        try:
            restore.move_home(before, target)
            ended = True                   # and then the power fails
        except PowerCut:
            pass
        door.cut(random.Random(f"{seed} {cuts}"), strict, lose)
        after = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        assert verify(after).problems == [], cuts
        restore.recover(after)
        assert after.changed_outside() == [], cuts
        assert not ended or (after.head.index == target and door.snapshot(files) == wanted[target])
        for index in (after.head.index, target, 0, max(models)):
            restore.move_home(after, index)
            assert door.snapshot(files) == wanted[index], (cuts, index)
    assert cuts > 15


def all_the_same(
    door: MemoryDoor, root: bytes, files: bytes, wanted: dict[int, dict[str, tuple]], what: object,
) -> None:
    """The next `metamori` completes what there is, and each of these indexes is what it was. Looking needs none
    where names reach the disk in their order: a prune that is under way relies on that, for those who only look."""
    after = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
    assert door.strict or verify(after).problems == [], what
    prune.recover(after)
    restore.recover(after)
    assert verify(after).problems == [], what
    assert after.changed_outside() == [], what
    for index, names in wanted.items():
        restore.move_home(after, index)
        assert door.snapshot(files) == names, (what, index)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])
@pytest.mark.parametrize("seed", range(2))
def test_the_power_fails_again_in_the_completion(tmp_path: Path, seed: int, step: int) -> None:
    """Every operation of the restore, and after each every operation of what completes it."""
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=2, steps=8)
    target = rng.choice([index for index in models if index != store.head.index])
    store.close()
    wanted = {index: without_times(models[index]) for index in (target, max(models))}
    root, files, first, both = os.fsencode(tmp_path / "store"), os.fsencode(tmp_path / "files"), 0, 0
    while True:
        first += 1
        strict, lose = WAYS[first % len(WAYS)]
        door = fresh(tmp_path, strict)
        before = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        door.count, door.cut_at = 0, first
        try:
            restore.move_home(before, target)
        except PowerCut:
            pass
        else:
            break
        door.cut(random.Random(f"{seed} {first}"), strict, lose)
        for second in range(1 + first % step, 10_000, step):
            again = copy.deepcopy(door)
            after = Store.open(root, write=True, door=again)  # type: ignore[arg-type]
            again.count, again.cut_at = 0, second
            try:
                restore.recover(after)
            except PowerCut:
                pass
            else:
                break
            again.cut(random.Random(f"{seed} {first} {second}"), strict, lose)
            all_the_same(again, root, files, wanted, (first, second))
            both += 1
    assert first > 10 and both > 10


@pytest.mark.in_turn("lose")
@pytest.mark.parametrize(("strict", "lose"), WAYS, ids=lambda value: str(value))
@pytest.mark.parametrize("seed", range(2))
def test_the_power_fails_in_a_prune(tmp_path: Path, seed: int, strict: bool, lose: float) -> None:
    """At every operation: kept indexes are what they were, and the next prune frees the rest."""
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=2, steps=5)
    keep = {store.head.index, store.newest, rng.choice(store.indexes)}
    store.close()
    wanted = {index: without_times(models[index]) for index in keep}
    root, files, cuts = os.fsencode(tmp_path / "store"), os.fsencode(tmp_path / "files"), 0
    while True:
        cuts += 1
        door = fresh(tmp_path, strict)
        before = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        door.count, door.cut_at = 0, cuts
        try:
            prune.prune(before, Rules(keep_last=1), keep)
        except PowerCut:
            pass
        else:
            break
        door.cut(random.Random(f"{seed} {cuts}"), strict, lose)
        again = copy.deepcopy(door)
        all_the_same(door, root, files, wanted, cuts)
        after = Store.open(root, write=True, door=again)  # type: ignore[arg-type]
        prune.prune(after, Rules(keep_last=1), keep)
        assert set(after.indexes) == keep, cuts
        all_the_same(again, root, files, wanted, ("pruned", cuts))
    assert cuts > 15
