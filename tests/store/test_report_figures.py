"""What the pictures are drawn of, against random histories with a plain model of every index."""

from __future__ import annotations

import os
import random
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import Run, Snapshot
from test_move_property import first_files, random_step

from metamori.report import facts, heatmap, page, space, timeline
from metamori.store.read.compare import compare
from metamori.store.read.store import Store
from metamori.store.restore import restore


def history(folder: Path, rng: random.Random) -> tuple[Path, Store, dict[int, Snapshot]]:
    """Three runs, each from some index of those before."""
    root = folder / "work"
    root.mkdir()
    first_files(root, rng)
    store, models = Store.create_or_open(str(folder / "store")), {}
    for _ in range(3):
        store.lock()
        run = Run(store, root, models, rng)
        for _ in range(rng.randrange(2, 5)):
            for _ in range(6):
                random_step(run, rng)
            run.checkpoint()
        run.end()
        restore.move_home(store, rng.choice(store.history.indexes))
        store.unlock()
    return root, store, models


@pytest.mark.parametrize("seed", range(8))
def test_sizes_and_changes_are_those_of_the_history(tmp_path: Path, seed: int) -> None:
    root, store, models = history(tmp_path, random.Random(seed))
    found = facts.gather(store)
    assert [each.index for each in found.checkpoints] == [0, *sorted(set(models) - {0})]
    for path in found.touched:
        name = os.path.relpath(os.fsdecode(path), root)
        for index, size in found.sizes(path).items():
            known = store.state(index).names.get(path)
            want = store.state(index).pifs[known.inode].size if known and known.kind == "file" else None
            assert size == want, (name, index)
    for each in found.checkpoints[1:]:
        assert each.parent is not None
        for change in compare(store, each.parent, each.index):
            if change.kind != "file":
                continue
            touches = found.touched.get(change.path, {})
            if change.what != "M":
                assert each.index in touches, (change, each.index)
            if change.ranges and change.what == "M":
                marked = {byte for start, end in touches[each.index].ranges for byte in range(start, end)}
                real = {byte for start, end in change.ranges for byte in range(start, min(end, change.size[1]))}
                assert real <= marked, (change, each.index)


@pytest.mark.parametrize("seed", range(3))
def test_pictures_are_well_formed_and_need_nothing_else(tmp_path: Path, seed: int) -> None:
    _, store, _ = history(tmp_path, random.Random(seed))
    found = facts.gather(store)
    found.checkpoints[-1] = facts.Checkpoint(**{
        name: getattr(found.checkpoints[-1], name) for name in facts.Checkpoint.__slots__
    } | {"message": "<b>&\x00\udcff"})
    pictures = [timeline.draw(found), heatmap.draw(found, heatmap.busiest(found, 3)), space.draw(found)]
    for picture in pictures:
        tree = xml.fromstring(picture.render())
        shapes = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert "script" not in shapes and "image" not in shapes
        width, height = float(tree.get("width", 0)), float(tree.get("height", 0))
        for element in tree.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(element.get("x", 0)) + float(element.get("width", 0)) <= width + 0.2
            assert float(element.get("y", 0)) + float(element.get("height", 0)) <= height + 0.2
    dots = xml.fromstring(pictures[0].render()).iter("{http://www.w3.org/2000/svg}circle")
    assert len(list(dots)) == len(found.checkpoints)
    html = page.render(found)
    assert not re.search(r"(src|href)=|@import|url\(", html), "the page opens offline"


def test_a_store_without_a_checkpoint_has_pictures_too(tmp_path: Path) -> None:
    store = Store.create_or_open(str(tmp_path / "store"))
    found = facts.gather(store)
    for picture in (timeline.draw(found), heatmap.draw(found, []), space.draw(found)):
        xml.fromstring(picture.render())
