"""Random programs in a run that prunes itself: what is kept is exact, what is not is refused, space stays bounded."""

from __future__ import annotations

import pytest
from honest import assert_honest
from lab import Lab
from player import play
from programs import program

KEEP = 3


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(5000, 5004))
def test_random_programs_that_keep_the_last_few(lab: Lab, seed: int, options: list[str]) -> None:
    session = lab.start("--keep-last", KEEP, *options)
    played = play(session, program(seed, 400), window=KEEP)
    assert session.end() == 0, session.stderr()
    assert session.stderr() == ""
    reader = lab.start(native=True)
    assert reader.ask("tree") == played.world.state.names.tree(), "after the end"
    there = {entry["index"] for entry in lab.log()["checkpoints"]}
    assert len(played.checkpoints) > KEEP and len(there - {0}) <= KEEP + 2   # head and parent stay too
    for index in {index for index, _ in played.checkpoints} - there:
        lab.restore(index, code=13)
    assert_honest(lab.store, lab.work, {index: tree for index, tree in played.checkpoints if index in there})


def test_a_rewritten_file_takes_no_more_with_every_checkpoint(lab: Lab) -> None:
    session = lab.start("--keep-last", 2)
    (lab.work / "f0").write_bytes(bytes(400000))
    session.must(["open f0 rw"])
    sizes = []
    for _ in range(12):
        session.must(["pwrite 3 400000 0 1", "checkpoint"])
        buffer = next((lab.store / "buffer").iterdir())
        sizes.append(buffer.stat().st_blocks * 512)
    assert max(sizes[4:]) <= max(sizes[:4]) + 65536, sizes
    assert session.end() == 0
