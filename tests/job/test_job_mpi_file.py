"""Ranks of MPI, each a run of one job, write one file by MPI-IO, their blocks in turn: each index is of one moment."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from lab import Lab
from launch import ENVIRONMENT, need

pytest.importorskip("zmq")

RANKS, BLOCK, COUNT, PHASES = 2, 520, 120, 6           # no block ends where a page does
PROGRAM = r"""
import shutil, sys
import metamori
from mpi4py import MPI

where, block, count, phases = sys.argv[1], *map(int, sys.argv[2:])
world = MPI.COMM_WORLD
rank = world.rank
file = MPI.File.Open(world, "all", MPI.MODE_RDWR | MPI.MODE_CREATE)
mine = MPI.BYTE.Create_contiguous(block).Create_resized(0, block * world.size).Commit()
file.Set_view(rank * block, MPI.BYTE, mine)
for phase in range(1, phases + 1):
    data = phase.to_bytes(4, "little") * (block // 4)
    if phase % 2:                          # each for itself, in order
        for number in range(count):
            if number == count // 2 and rank == 1 + phase // 2 % (world.size - 1):
                metamori.checkpoint(f"amid {phase}")
            file.Write_at(number * block, data)
    else:                                  # together, and OMPIO says who writes what
        file.Write_at_all(0, data * count)
    world.Barrier()
    if rank == 0:
        index = metamori.checkpoint(f"after {phase}")
        shutil.copyfile("all", f"{where}/{index}")
    world.Barrier()
file.Close()
"""


def phases(file: Path) -> list[list[int]]:
    """Of each rank's blocks, when they were written; each is whole."""
    data, found = file.read_bytes(), []
    assert len(data) <= RANKS * BLOCK * COUNT
    data = data.ljust(RANKS * BLOCK * COUNT, b"\0")
    for at in range(0, len(data), BLOCK):
        assert data[at:at + BLOCK] == data[at:at + 4] * (BLOCK // 4), f"the block at {at} is of two moments"
        found.append(int.from_bytes(data[at:at + 4], "little"))
    return [found[rank::RANKS] for rank in range(RANKS)]


def assert_one_moment(file: Path, message: str) -> None:
    of = phases(file)
    phase = int(message.split()[1])
    if message.startswith("after"):
        assert of == [[phase] * COUNT] * RANKS
        return
    done = [numbers.count(phase) for numbers in of]
    assert of == [[phase] * each + [phase - 1] * (COUNT - each) for each in done], message
    assert done[1] == COUNT // 2           # who asked for it had written so much


def test_blocks_in_turn(lab: Lab) -> None:
    need("openmpi")
    copies = lab.folder / "copies"
    copies.mkdir()
    env = {name: value for name, value in (ENVIRONMENT | lab.env).items() if name != "METAMORI_TRACK"}
    (lab.work / "all").write_bytes(bytes(RANKS * BLOCK * COUNT // 2))      # it grows, too
    words = [sys.executable, "-c", PROGRAM, copies, BLOCK, COUNT, PHASES]
    done = subprocess.run(["mpirun.openmpi", "-n", str(RANKS), *lab.argv("run", "--job"), "--", *map(str, words)],
                          cwd=lab.work, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "lost" not in done.stderr, done.stdout + done.stderr
    messages = {index: message for index, message in lab.messages().items() if message[:5] in ("amid ", "after")}
    assert len(messages) == PHASES + PHASES // 2 and len(list(copies.iterdir())) == PHASES
    for index in random.Random(PHASES).sample(sorted(messages), len(messages)):
        lab.restore(index)
        assert_one_moment(lab.work / "all", messages[index])
        if messages[index].startswith("after"):
            assert (lab.work / "all").read_bytes() == (copies / str(index)).read_bytes()
    lab.restore(0)
    assert (lab.work / "all").read_bytes() == bytes(RANKS * BLOCK * COUNT // 2)
    lab.verb("verify")
