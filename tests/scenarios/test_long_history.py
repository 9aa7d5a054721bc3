"""A checkpoint costs what changed, however many are there: the store's folder is not listed again for each."""

from __future__ import annotations

import pytest
from lab import Lab


def test_the_folder_is_listed_only_after_others(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from metamori.runtime.area.run_area import Area
    from metamori.runtime.checkpoint.session import Session
    from metamori.store.io.os_io import Door
    from metamori.store.read.store import Store

    (lab.work / "old").write_bytes(b"old" * 5000)
    (lab.work / "cut").write_bytes(b"cut" * 5000)
    program = lab.start("--durability", "process")
    program.must(["open old rw", "open cut rw", "pwrite 3 100 50 1", "checkpoint"])
    trees, listed = {1: program.ask("tree")}, []
    was = Door.listdir

    def listdir(door: Door, path: bytes) -> list[bytes]:
        listed.append(path)
        return was(door, path)

    monkeypatch.setattr(Door, "listdir", listdir)
    with Store.open(str(lab.store)) as store:
        outside = Session(store, Area(str(lab.store)))
        for number, line in enumerate(["pwrite 3 200 0 2", "ftruncate 4 9000", "ftruncate 4 3000", "checkpoint",
                                       "pwrite 3 10 10 3", "ftruncate 4 100", "checkpoint", "restore @1",
                                       "ftruncate 4 50"]):
            program.must([line])
            others = number == 0 or line == "checkpoint" or line.startswith("restore")
            listed.clear()
            index = outside.checkpoint()
            trees[index] = program.ask("tree")
            assert (store.layout.checkpoints in listed) == others, line
        assert store.undo_log.last() == len(store.undo_log.names()) >= 3
        outside.area.close()
    assert sorted(trees) == [1, 2, 3, 4, 6, 7, 8, 10, 11, 12] and program.end() == 0
    reader = lab.start(native=True)
    for index, tree in trees.items():
        lab.restore(index)
        assert reader.ask("tree") == tree, index
    lab.verb("verify")
