"""Random histories, a tree of them, against a plain model: every index can be gone to, from every other."""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Snapshot, take_snapshot

from metamori.store.read.apart import between
from metamori.store.read.reader import Reader
from metamori.store.read.state import State
from metamori.store.read.store import Store
from metamori.store.restore import restore
from metamori.store.restore.name_plan import NamesPlan, xattr_ops
from metamori.tables.view import NOTHING, differences

NAMES = ["a", "b", "c", "d/a", "d/b", "d/e/a", "f/a", "g"]
FOLDERS = ["d", "d/e", "f", "h"]


def random_step(run: Run, rng: random.Random) -> None:
    """One thing that a program may do; what cannot be done at the moment is left out."""
    path, other = run.root / rng.choice(NAMES), run.root / rng.choice(NAMES)
    folder, folder2 = run.root / rng.choice(FOLDERS), run.root / rng.choice(FOLDERS)
    is_file = path.is_file() and not path.is_symlink()
    what = rng.choice(["write"] * 6 + ["truncate", "create", "rename", "mkdir"] * 2 + [
        "unlink", "link", "symlink", "fifo", "rmdir", "rename_dir", "chmod"])
    if what == "write" and is_file:
        run.write(path, rng.randrange(100), rng.randbytes(rng.randrange(1, 30)))
    elif what == "truncate" and is_file:
        run.truncate(path, rng.randrange(70))
    elif what in ("create", "symlink", "fifo") and path.parent.is_dir() and not os.path.lexists(path):
        make = {"create": run.create, "fifo": run.mkfifo, "symlink": partial(run.symlink, rng.choice("xyz"))}
        make[what](path)
    elif what == "unlink" and os.path.lexists(path) and not path.is_dir():
        run.unlink(path)
    elif what == "rename" and os.path.lexists(path) and not path.is_dir() and other.parent.is_dir() \
            and not other.is_dir():
        run.rename(path, other)
    elif what == "link" and is_file and other.parent.is_dir() and not os.path.lexists(other):
        run.link(path, other)
    elif what == "mkdir" and folder.parent.is_dir() and not os.path.lexists(folder):
        run.mkdir(folder)
    elif what == "rmdir" and folder.is_dir() and not list(folder.iterdir()):
        run.rmdir(folder)
    elif what == "rename_dir" and folder.is_dir() and folder2.parent.is_dir() \
            and folder not in folder2.parents and not os.path.lexists(folder2):
        run.rename_dir(folder, folder2)
    elif what == "chmod" and is_file:
        run.chmod(path, rng.choice([0o644, 0o600, 0o755, 0o400]))


def first_files(root: Path, rng: random.Random) -> None:
    """What is there before the first run."""
    for name in FOLDERS:
        if rng.random() < 0.5:
            (root / name).mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        if rng.random() < 0.5 and (root / name).parent.is_dir():
            (root / name).write_bytes(rng.randbytes(rng.randrange(50)))


def make_history(tmp: Path, rng: random.Random, runs: int, steps: int) -> tuple[Store, dict[int, Snapshot]]:
    """Some runs, each from a random index on; the models of all indexes, 0 included."""
    root = tmp / "files"
    root.mkdir()
    first_files(root, rng)
    store = Store.create_or_open(os.fsencode(tmp / "store"))
    models = {0: take_snapshot(root)}
    for _ in range(runs):
        run = Run(store, root, models, rng)
        for _ in range(rng.randrange(1, 4)):
            for _ in range(rng.randrange(steps)):
                random_step(run, rng)
            run.checkpoint()
        run.end()
        if rng.random() < 0.7:
            go(store, root, models, rng.choice(sorted(models)))
    return store, models


def check_what_is_apart(store: Store, index: int) -> None:
    """Whoever looks only at what may not be the same plans what is planned with everything."""
    here, there = store.state(store.head.index), store.state(index)
    apart = between(store.undo_log, here, there)
    few = here.only(apart.paths, ()), there.only(apart.paths, ())
    plans = [NamesPlan(store.door, store.layout, *states, store.head.kept) for states in ((here, there), few)]
    assert [plan.ops for plan in plans[1:]] == [plan.ops for plan in plans[:1]]
    assert plans[0].kept == plans[1].kept and plans[0].notes == plans[1].notes
    assert list(xattr_ops(here, there)) == list(xattr_ops(*few))
    for inode in here.pifs.keys() | there.pifs.keys():
        if inode in apart.objects:
            if inode in here.pifs and inode in there.pifs:
                found = [each for each in differences(here.pieces(inode), there.pieces(inode))]
                assert list(here.differences(there, inode)) == found
            continue
        assert here.pifs[inode] == there.pifs[inode] and here.pieces(inode) == there.pieces(inode)
    naive = State(0, lambda *_: NOTHING)    # its order of names was never made before
    naive.names = here.names
    assert all(naive.paths(inode) == here.paths(inode) for inode in here.pifs)


def go(store: Store, root: Path, models: dict[int, Snapshot], index: int) -> None:
    assert store.changed_outside() == []
    check_what_is_apart(store, index)
    restore.move_home(store, index, durable=False)
    assert take_snapshot(root) == models[index], f"after going to {index}"
    assert store.head.index == index


def check_reading(store: Store, root: Path, models: dict[int, Snapshot]) -> None:
    """Every file of every index can be read without moving anything."""
    for index, model in models.items():
        state = store.state(index)
        for name, value in model.items():
            entry = state.names.get(os.fsencode(root / name))
            if value[0] == "file" and entry is not None:
                with Reader(store, index, entry.inode) as reader:
                    assert reader.read() == value[-1], (index, name)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(100))
def test_every_index_from_every_other(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store, models = make_history(tmp_path, rng, runs=3, steps=12)
    root = tmp_path / "files"
    for _ in range(8):
        go(store, root, models, rng.choice(sorted(models)))
        check_reading(store, root, models)
    again = Store.open(store.layout.root)
    assert again.newest == store.newest
    go(again, root, models, 0)
