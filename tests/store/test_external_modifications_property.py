"""Random runs, and between them somebody who changes their files: every index is exact, or it was named before.

What is done outside is what people do: written over, appended, cut, touched, another mode, removed, moved over another,
replaced by another file, a folder or a link. Half of the runs end with second copies of their files.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from honest import told, verb
from synthetic import Run, Snapshot, take_snapshot
from test_move_property import first_files, random_step

from metamori.store.read.store import Store
from metamori.store.restore import external_changes


class Folder:
    """The files, a store, and the models of all its indexes."""

    def __init__(self, tmp: Path, rng: random.Random) -> None:
        self.root, self.place, self.rng = tmp / "files", tmp / "store", rng
        self.root.mkdir()
        first_files(self.root, rng)
        Store.create_or_open(os.fsencode(self.place)).close()
        self.models: dict[int, Snapshot] = {0: take_snapshot(self.root)}

    def store(self) -> Store:
        return Store.open(os.fsencode(self.place))

    def run(self) -> None:
        with self.store() as store:
            recorded = external_changes.record(store, "start of run")
            if recorded:
                self.models[recorded] = take_snapshot(self.root)
            run = Run(store, self.root, self.models, self.rng)
            for _ in range(self.rng.randrange(1, 4)):
                for _ in range(self.rng.randrange(10)):
                    random_step(run, self.rng)
                run.checkpoint()
            run.end(with_copies=self.rng.random() < 0.5)

    # -- somebody else ---------------------------------------------------------------------------

    def hands(self) -> None:
        for _ in range(self.rng.randrange(4)):
            with self.store() as store:
                paths = [Path(os.fsdecode(path)) for path, entry in store.state(store.head.index).names.items()
                         if entry.kind == "file"]
            paths = [path for path in sorted(paths) if path.is_file() and not path.is_symlink()]
            if paths:
                self._change(self.rng.choice(paths), self.rng.choice(paths))

    def _change(self, path: Path, other: Path) -> None:
        rng, size = self.rng, path.stat().st_size
        what = rng.choice(["over", "append", "cut", "touch", "chmod", "remove", "move", "replace", "folder", "link"])
        if what in ("over", "append", "cut"):
            path.chmod(0o600)
        if what == "over":
            with path.open("r+b") as file:
                file.write(rng.randbytes(max(1, size // 2)))
        elif what == "append":
            with path.open("ab") as file:
                file.write(b"by somebody else")
        elif what == "cut":
            os.truncate(path, size // 2)
        elif what == "touch":
            path.touch()
        elif what == "chmod":
            path.chmod(rng.choice([0o644, 0o600, 0o700]))
        elif what == "move":
            path.rename(other)
        elif what == "replace":
            path.with_name(".new").write_bytes(rng.randbytes(size))
            path.with_name(".new").rename(path)
        else:
            path.unlink()
            if what == "folder":
                path.mkdir()
            elif what == "link":
                path.symlink_to("anywhere")

    # -- looking ---------------------------------------------------------------------------------

    def check(self) -> set[int]:
        """Every index, without moving anything; those that are said to have losses."""
        lost, before = told(self.place).lost, take_snapshot(self.root)
        for index, model in self.models.items():
            copy = self.root.parent / "copy"
            done = verb(self.place, "restore", index, "--to", copy)
            assert done.code == (12 if index in lost else 0), (index, done)
            if not done.code:
                have = {name: value for name, value in take_snapshot(copy / "files").items() if value[0] == "file"}
                assert {name: value[-1] for name, value in have.items()} == {
                    name: model[name][-1] for name in have}, index
            shutil.rmtree(copy, ignore_errors=True)
        assert take_snapshot(self.root) == before
        return lost

    def restore(self, lost: set[int]) -> None:
        index, before = self.rng.choice(sorted(self.models)), take_snapshot(self.root)
        with self.store() as store:
            changed = bool(store.changed_outside())
        refused = 14 if changed else 12 if index in lost else 0
        done = verb(self.place, "restore", index)
        assert done.code == refused, (index, done)
        if refused:
            assert take_snapshot(self.root) == before, "a refused restore touches nothing"
            done = verb(self.place, "restore", index, "--force")
            assert done.code == (12 if index in lost else 0), (index, done)
        with self.store() as store:
            new = sorted(set(store.indexes) - self.models.keys())
            here = store.head.index
        assert len(new) == changed + (index in lost), new
        if changed:
            self.models[new[0]] = before
        if index not in lost:
            assert here == index and take_snapshot(self.root) == self.models[index]
            return
        now, model = take_snapshot(self.root), self.models[index]
        assert here == new[-1]
        self.models[here] = now
        wrong = {name for name in now.keys() | model.keys()
                 if not (name in now and name in model and _content(now[name]) == _content(model[name]))}
        for name in wrong:                 # left out, or as it was, or a folder of what was
            assert name not in now or (name in before and _content(now[name]) == _content(before[name])), name


def _content(value: tuple) -> tuple:
    return value[0], value[-1] if value[0] == "file" else None


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(30))
def test_other_hands(tmp_path: Path, seed: int) -> None:
    folder = Folder(tmp_path, random.Random(seed))
    for _ in range(4):
        folder.run()
        folder.hands()
        lost = folder.check()
        if folder.rng.random() < 0.6:
            folder.restore(lost)
            folder.check()
