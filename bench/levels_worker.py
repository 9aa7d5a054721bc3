"""One rank of the bench `levels`: python -m bench.levels_worker write|recover LEVEL MIB ROUNDS

Prints a JSON object from rank 0: CPU seconds (user and system, all ranks) and wall seconds of each phase.
"""
from __future__ import annotations

import json
import os
import resource
import sys
import time

import numpy
from mpi4py import MPI

from metamori.levels import Levels

world = MPI.COMM_WORLD


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Phase:
    """Times what all ranks do between two barriers."""

    def __enter__(self) -> Phase:
        world.Barrier()
        self.wall, self.used = time.monotonic(), cpu()
        return self

    def __exit__(self, *rest: object) -> None:
        self.used = world.allreduce(cpu() - self.used)
        self.wall = world.allreduce(time.monotonic() - self.wall, MPI.MAX)


def write(level: int, mib: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    levels = Levels("config.fti", world)
    data = numpy.random.default_rng(world.rank).integers(0, 2**62, mib << 17, numpy.int64)
    levels.protect("data", data)
    levels.checkpoint(level)
    found: dict[str, list[tuple[float, float]]] = {"full": [], "5 % changed": []}
    blocks = len(data) // 2048
    for number in range(rounds):
        data += 1
        with Phase() as phase:
            levels.checkpoint(level)
        found["full"].append((phase.used, phase.wall))
        for block in numpy.random.default_rng(number).choice(blocks, blocks // 20, replace=False):
            data[block * 2048] += 1
        with Phase() as phase:
            levels.checkpoint(level)
        found["5 % changed"].append((phase.used, phase.wall))
    data += 1
    levels.checkpoint(level)
    return found


def recover(level: int, mib: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    data = numpy.ones(mib << 17, numpy.int64)   # a program has its memory when it recovers
    with Phase() as phase:
        levels = Levels("config.fti", world)
        levels.protect("data", data)
        levels.recover()
    return {"recover": [(phase.used, phase.wall)]}


work = {"write": write, "recover": recover}[sys.argv[1]]
result = work(*map(int, sys.argv[2:5]))
world.Barrier()
if world.rank == 0:
    print(json.dumps(result), flush=True)
world.Barrier()
os._exit(0)                                # a crash, as far as the checkpoints know
