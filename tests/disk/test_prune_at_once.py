"""Several meet a full disk at once, in a run that may prune: one prunes, and the others go on too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from disks import MB, fill
from lab import Lab, Session
from stops import Stops

from metamori.runtime.area.run_area import Area
from metamori.runtime.checkpoint import auto_prune
from metamori.runtime.checkpoint.session import Session as Runtime
from metamori.store.read.store import Store

PIECE = MB // 2

def with_two_checkpoints(lab: Lab) -> Session:
    """The older alone holds some megabytes."""
    for name in "fg":
        (lab.work / name).write_bytes(bytes(8 * MB))
    session = lab.start("--isolate", "--max-bytes", "1G")
    session.must(["thread 0", "open f rw", "open g rw"])
    for turn in range(2):
        session.must([*(f"pwrite 3 {PIECE} {at * PIECE} {turn}" for at in range(10)), "checkpoint"])
    return session


def finish(lab: Lab, session: Session, filler: Path) -> None:
    filler.unlink()
    before = session.ask("tree")
    assert session.end() == 0 and session.stderr() == ""
    assert lab.start(native=True).ask("tree") == before
    lab.verb("verify")


def test_whoever_comes_after_the_prune_goes_on(small: Lab, tmp_path: Path) -> None:
    """It found nothing more to prune, and said that the disk was full."""
    stops = Stops(tmp_path / "stops")
    small.env |= stops.env
    session = with_two_checkpoints(small)
    filler = fill(small.folder)
    stops.arm("room.wanted")
    session.ask(f"begin 0 pwrite 3 {PIECE} 0 7")
    stops.wait("room.wanted")
    session.must([f"pwrite 4 {PIECE} 0 8"])
    assert [entry["index"] for entry in small.log()["checkpoints"]] == [0, 2]
    stops.go("room.wanted")
    assert session.ask("await 0") == str(PIECE)
    finish(small, session, filler)


def test_what_is_given_to_a_prune_nobody_takes(small: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wrote meanwhile held room for the run's end anew, and the prune had none."""
    session = with_two_checkpoints(small)
    filler = fill(small.folder)
    prune = auto_prune._prune
    rooms: list[int] = []

    def beside(*words: object) -> object:
        rooms.append(head.room)
        session.ask(f"begin 0 pwrite 4 {PIECE} 0 7")
        end = time.monotonic() + 0.3
        while time.monotonic() < end and head.room == rooms[0]:
            time.sleep(0.01)
        rooms.append(head.room)
        return prune(*words)

    monkeypatch.setattr(auto_prune, "_prune", beside)
    with Store.open(str(small.store)) as store:
        runtime = Runtime(store, Area(str(small.store)))
        head = runtime.area.head
        held = head.room
        assert auto_prune.make_room(runtime, again=False) == 1
        assert held > rooms[0] == rooms[1] and head.room > head.owed
        runtime.area.close()
    assert session.ask("await 0") == str(PIECE)
    finish(small, session, filler)


def test_a_checkpoint_on_a_full_disk_makes_the_one_before_prunable(small: Lab) -> None:
    """Of one checkpoint nothing can be pruned, and there was no room for the next: no write found any more, either."""
    (small.work / "f").write_bytes(bytes(8 * MB))
    session = small.start("--isolate", "--max-bytes", "1G")
    session.must(["thread 0", "open f rw"])
    for index in range(1, 4):
        session.must(f"pwrite 3 4096 {at * 8192} {index}" for at in range(700))
        filler = fill(small.folder, 0 if index > 1 else 8 * MB)
        assert small.checkpoint() == index
        assert [entry["index"] for entry in small.log()["checkpoints"]] == [0, index]
        filler.unlink()
    finish(small, session, fill(small.folder, 8 * MB))


@pytest.mark.parametrize("small", ["ext4"], indirect=True)
def test_a_checkpoint_that_is_refused_leaves_the_room_of_the_end(small: Lab) -> None:
    """Its records were begun with what was held for that; the end then had none, and nothing was written back."""
    (small.work / "f").write_bytes(bytes(8 * MB))
    session = small.start("--isolate", "--max-bytes", "1G")
    session.must(["open f rw", "pwrite 3 4096 0 1", "checkpoint"])
    session.must(f"pwrite 3 4096 {at * 8192} 2" for at in range(300))
    session.must(f"mkdir {'n' * 200}{number}" for number in range(2800))
    filler = fill(small.folder)
    small.verb("checkpoint", code=None)
    assert session.end() == 0
    filler.unlink()
    data = (small.work / "f").read_bytes()
    assert all(any(data[at * 8192 : at * 8192 + 4096]) for at in range(300))
    small.verb("verify")
