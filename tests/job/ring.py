"""Programs of a job that do their steps in turn, and all write one file: what every instant of theirs looks like."""

from __future__ import annotations

from pathlib import Path

# Step by step in turn: the next one begins a step when the one before has ended it. All is known from the step.
RING = r"""
import os, sys, time
me, count, steps, rest = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
turn, grid = (os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in ("turn", "grid"))
log = os.open(f"log.{me}", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
def at(rank):
    return int(os.pread(turn, 10, 10 * rank) or 0)
done = at(me)
os.truncate(log, 10 * done)
while done < steps:
    while (at(me - 1) <= done if me else at(count - 1) < done):
        time.sleep(0.0005)
    time.sleep(rest)                       # more than how far the clocks of machines are in doubt
    done += 1
    for row in range(20):
        os.pwrite(grid, b"%099d\n" % (done * 100 + row), 100 * (count * row + me))
    os.write(log, b"%09d\n" % done)
    with open(f"new.{me}", "wb") as file:
        file.write(b"%d" % done)
    os.rename(f"new.{me}", f"state.{me}")
    os.pwrite(turn, b"%010d" % done, 10 * me)
"""
COUNT = 3


def content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def assert_one_instant(folder: Path, what: str) -> list[int]:
    """The steps that each had done."""
    turn = content(folder / "turn")
    done = [int(turn[10 * me:10 * me + 10] or 0) for me in range(COUNT)]
    assert done == sorted(done, reverse=True) and done[0] - done[-1] <= 1, (what, done)
    grid = content(folder / "grid")
    for me, step in enumerate(done):
        steps_ = [step] if me and done[me - 1] == step else [step, step + 1]     # it may be in the midst of the next
        log = content(folder / f"log.{me}")
        assert log in [b"".join(b"%09d\n" % each for each in range(1, last + 1)) for last in steps_], (what, me)
        rows = [grid[at:at + 100] for at in range(100 * me, len(grid), 100 * COUNT)]
        for at, row in enumerate(rows):
            assert int(row.strip(b"\0") or 0) in [each * 100 + at if each else 0 for each in steps_], (what, me, at)
        assert int(content(folder / f"state.{me}") or 0) in steps_, (what, me)
    return done
