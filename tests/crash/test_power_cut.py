"""The power is cut at every operation of the store, in several ways; the next `metamori` finishes or undoes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from memory_door import MemoryDoor, PowerCut
from test_move_property import make_history

from metamori.store import move
from metamori.store.store import Store
from metamori.store.verify import verify

WAYS = [(strict, lose) for strict in (False, True) for lose in (1.0, 0.0, 0.5)]


def without_times(model: dict[str, tuple]) -> dict[str, tuple]:
    return {name: (*value[:2], *value[3:]) if value[0] == "file" else value for name, value in model.items()}


def fresh(lab: Path, strict: bool) -> MemoryDoor:
    door = MemoryDoor(os.lstat(lab).st_dev)
    door.take_over(lab)
    door.strict = strict
    return door


@pytest.mark.parametrize(("strict", "lose"), WAYS, ids=lambda value: str(value))
@pytest.mark.parametrize("seed", range(3))
def test_the_power_fails_in_a_restore(tmp_path: Path, seed: int, strict: bool, lose: float) -> None:
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=2, steps=8)
    target = rng.choice([index for index in models if index != store.head.index])
    store.close()
    wanted = {index: without_times(model) for index, model in models.items()}
    root, files, cuts = os.fsencode(tmp_path / "store"), os.fsencode(tmp_path / "files"), 0
    while True:
        cuts += 1
        door = fresh(tmp_path, strict)
        before = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        door.count, door.cut_at = 0, cuts
        try:
            move.move_home(before, target)
        except PowerCut:
            pass
        else:
            break
        door.cut(random.Random(f"{seed} {cuts}"), strict, lose)
        after = Store.open(root, write=True, door=door)  # type: ignore[arg-type]
        assert verify(after).problems == [], cuts
        move.recover(after)
        assert after.changed_outside() == [], cuts
        for index in (after.head.index, target, 0, max(models)):
            move.move_home(after, index)
            assert door.snapshot(files) == wanted[index], (cuts, index)
    assert cuts > 15 and door.snapshot(files) == wanted[target]
