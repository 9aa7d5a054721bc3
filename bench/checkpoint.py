"""A checkpoint of a file of which a part changed: call, pause, bytes, and the way back.

There is no native side to compare with; the point is that all columns follow what changed, and none the size of the
file or the number of checkpoints. Files beyond 4 GiB are sparse.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

from bench import measure, table

SIZES_MIB = (20, 200, 2048, 20480)
CHANGED_KIB = (100, 10240)
COUNTS = (100, 1000)
USUAL_MIB, USUAL_KIB, USUAL_COUNT = 200, 1024, 8
SPARSE_MIB = 4096                          # files beyond it are


def numbers_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers_of, default=SIZES_MIB, metavar="MIB,...",
                        help="sizes of the file, 1 MiB of it changed (20,200,2048,20480)")
    parser.add_argument("--changed", type=numbers_of, default=CHANGED_KIB, metavar="KIB,...",
                        help="what changes before each, of a file of 200 MiB (100,10240)")
    parser.add_argument("--counts", type=numbers_of, default=COUNTS, metavar="N,...",
                        help="checkpoints, of a file of 200 MiB (100,1000)")


def cases(args: argparse.Namespace) -> dict[str, tuple[int, int, int]]:
    """Name -> size of the file in MiB, what changes in KiB, number of checkpoints."""
    every = [*((size, USUAL_KIB, USUAL_COUNT) for size in args.sizes),
             *((USUAL_MIB, changed, USUAL_COUNT) for changed in args.changed),
             *((USUAL_MIB, USUAL_KIB, count) for count in args.counts)]
    return {f"{size:,} MiB, {changed:,} KiB changed, {count:,} checkpoints": (size, changed, count)
            for size, changed, count in every}


def verb(store: Path, *words: str) -> str:
    """Run a verb on the store and return its standard output."""
    command = [measure.metamori(), words[0], "--store", str(store), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise measure.Failed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


def one_run(case: tuple[int, int, int], program: Path, args: argparse.Namespace) -> measure.Numbers:
    size_mib, changed_kib, count = case
    with measure.fresh_folder(args.dir) as folder:
        data, store = folder / "data", folder / "store"
        block = bytes(range(256)) * 4096
        with open(data, "wb") as file:
            if size_mib > SPARSE_MIB:
                file.truncate(size_mib << 20)
            else:
                for _ in range(size_mib):
                    file.write(block)
        os.sync()  # else the first checkpoint makes all of it durable
        command = [measure.metamori(), "run", "--store", str(store), "--", str(program), str(data),
                   str(size_mib), str(count), str(changed_kib // 4)]
        lines = [line.split() for line in measure.timed(command, folder).output.splitlines()]
        # The first checkpoint also starts the runtime: reported on its own.
        later = lines[1:]
        log = json.loads(verb(store, "log", "--json"))["checkpoints"]
        added = {entry["index"]: entry["bytes"] for entry in log}
        restores = {}
        for where, number in {"last": -1, "middle": len(lines) // 2}.items():
            started = time.monotonic()
            verb(store, "restore", lines[number][0])
            restores[f"restore to the {where}, ms"] = (time.monotonic() - started) * 1000
        return {"first call, ms": float(lines[0][1]) / 1e3,
                "call, ms": measure.median([float(line[1]) for line in later]) / 1e3,
                "pause, ms": measure.median([float(line[2]) for line in later]) / 1e3,
                "bytes added, MiB": measure.median([added[int(line[0])] for line in later]) / 2**20,
                **restores}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        program = measure.compiled("steady", folder)
        kinds = {name: (lambda case=case: one_run(case, program, args)) for name, case in cases(args).items()}
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(next(iter(results.values())))
    return table.render(["file", *metrics],
                        [[name, *(table.number(measure.median(series[metric])) for metric in metrics)]
                         for name, series in results.items()])
