"""A restore puts a folder or a link back at a path below which other names had to go. Stopped anywhere and done again,
it takes nothing from what is there by then."""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, take_snapshot
from test_move_faults import FailingDoor, Killed, copy_of

from metamori.store.read.store import Store
from metamori.store.read.verify import verify
from metamori.store.restore import restore


def before(run: Run, at: Path) -> None:
    for folder in (at / "d", at / "d/e"):
        run.mkdir(folder)
    run.create(at / "d/c")
    run.write(at / "d/c", 0, b"the only one")


def folder_moved(run: Run, at: Path) -> None:
    """Another folder at its old path, with the same file and an empty folder too."""
    before(run, at)
    run.checkpoint()
    run.rename_dir(at / "d", at / "b")
    for folder in (at / "d", at / "d/e"):
        run.mkdir(folder)
    run.link(at / "b/c", at / "d/c")


def link_to_a_folder(run: Run, at: Path) -> None:
    """Then a folder in the link's place, with the same file and an empty folder too."""
    before(run, at)
    run.symlink("d", at / "l")
    run.checkpoint()
    run.unlink(at / "l")
    for folder in (at / "l", at / "l/e"):
        run.mkdir(folder)
    run.link(at / "d/c", at / "l/c")


@pytest.mark.in_turn("play", 2)
@pytest.mark.parametrize("play", [folder_moved, link_to_a_folder], ids=lambda play: play.__name__)
def test_stopped_at_every_operation(tmp_path: Path, play: Callable[[Run, Path], None]) -> None:
    lab, saved = tmp_path / "lab", tmp_path / "saved"
    (lab / "files").mkdir(parents=True)
    with Store.create_or_open(os.fsencode(lab / "store")) as store:
        run = Run(store, lab / "files", {}, random.Random(1))
        play(run, lab / "files")
        run.end()
        models, newest = run.models, store.head.index
    os.system(f"cp -a '{lab}' '{saved}'")
    for nth in itertools.count(1):
        copy_of(lab, saved)
        with Store.open(os.fsencode(lab / "store"), write=True) as fresh:
            fresh.set_head(fresh.head.index, fresh.head.kept)     # the copies have other inode numbers
        stopped = False
        store = Store(os.fsencode(lab / "store"), FailingDoor(nth, Killed))  # type: ignore[arg-type]
        try:
            store.read_format()
            store.lock()
            restore.move_home(store, 1)
        except Killed:
            stopped = True
        store.close()
        with Store.open(os.fsencode(lab / "store"), write=True) as after:
            restore.recover(after)
            for index in (after.head.index, newest, 1):
                restore.move_home(after, index, durable=False)
                assert take_snapshot(lab / "files") == models[index], (nth, index)
            assert verify(after).problems == [], nth
        if not stopped:
            break
    assert nth > 20
