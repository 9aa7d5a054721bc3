"""A checkpoint of a large file of which about 1 MiB changed: call, pause, bytes, and the way back.

There is no native side to compare with; the point is that no column grows with the size of the file.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

from bench import measure, table

SIZES_MIB = (20, 200, 2048)
CHECKPOINTS = 8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES_MIB,
                        metavar="MIB,...", help="sizes of the file, in MiB (20,200,2048)")


def verb(store: Path, *words: str) -> str:
    """Run a verb on the store and return its standard output."""
    command = [measure.metamori(), words[0], "--store", str(store), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise measure.Failed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


def one_run(size_mib: int, program: Path, args: argparse.Namespace) -> measure.Numbers:
    with measure.fresh_folder(args.dir) as folder:
        data, store = folder / "data", folder / "store"
        block = bytes(range(256)) * 4096
        with open(data, "wb") as file:
            for _ in range(size_mib):
                file.write(block)
        os.sync()  # else the first checkpoint makes all of it durable
        command = [measure.metamori(), "run", "--store", str(store), "--", str(program), str(data),
                   str(size_mib), str(CHECKPOINTS)]
        lines = [line.split() for line in measure.timed(command, folder).output.splitlines()]
        # The first checkpoint also starts the runtime: reported on its own.
        later = lines[1:]
        log = json.loads(verb(store, "log", "--json"))["checkpoints"]
        added = {entry["index"]: entry["bytes"] for entry in log}
        middle = int(lines[len(lines) // 2][0])
        started = time.monotonic()
        verb(store, "restore", str(middle))
        restore_s = time.monotonic() - started
        return {"first call, ms": float(lines[0][1]) / 1e3,
                "call, ms": measure.median([float(line[1]) for line in later]) / 1e3,
                "pause, ms": measure.median([float(line[2]) for line in later]) / 1e3,
                "bytes added, MiB": measure.median([added[int(line[0])] for line in later]) / 2**20,
                "restore to the middle, ms": restore_s * 1000}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        program = measure.compiled("steady", folder)
        kinds = {f"{size} MiB": (lambda size=size: one_run(size, program, args)) for size in args.sizes}
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(next(iter(results.values())))
    return table.render(["size of the file", *metrics],
                        [[name, *(table.number(measure.median(series[metric])) for metric in metrics)]
                         for name, series in results.items()])
