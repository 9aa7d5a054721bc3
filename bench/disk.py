"""fio on one file: in sequence, at random, mixed, over a new file, an old one and checkpointed data, 1 and 4 threads.

Old data is what the run must keep: everything written over it is redirected. `checkpointed` is the same with a
checkpoint every second meanwhile; `sparse` is an old file of 100 GiB without a byte in it.

`limit`: native, with the time of one durable copy for each job that writes over bytes that an index needs.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from bench import measure, table

READ_AFTER = "sequential read after it"
# name, what fio calls it, block size; in this order on one file
JOBS = (("random write 4k", "randwrite", "4k"), ("random write again", "randwrite", "4k"),
        ("random read 4k", "randread", "4k"), (READ_AFTER, "read", "64k"),
        ("random write 512", "randwrite", "512"), ("random write 2k", "randwrite", "2k"),
        ("random write 3000", "randwrite", "3000"),   # no block's edge
        ("mixed 4k", "randrw", "4k"), ("sequential write 64k", "write", "64k"))
DATA = {"new": [], "old": [], "checkpointed": ["--every", "1s"], "sparse": []}
THREADS = (1, 4)
SPARSE_MIB = 100 << 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file-size", type=int, default=256, metavar="MIB", help="size of the file (256)")
    parser.add_argument("--seconds", type=int, default=5, help="longest time of one job (5)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only cases with TEXT in the name: 'old, 1'")


def fio_command(file: Path, threads: int, sparse: bool, args: argparse.Namespace) -> list[str]:
    """All jobs, one after the other; each thread has its own part of the file."""
    part = (SPARSE_MIB if sparse else args.file_size) // threads
    command = ["fio", "--output-format=json", "--ioengine=psync", "--thread", f"--filename={file}", "--group_reporting",
               f"--numjobs={threads}", f"--size={part}m", f"--offset_increment={part}m", f"--runtime={args.seconds}",
               f"--io_size={args.file_size // threads}m", "--allrandrepeat=1", "--invalidate=0", "--fallocate=none"]
    for number, (_, kind, block) in enumerate(JOBS):
        command += [f"--name=job{number}", "--stonewall", "--new_group", f"--rw={kind}", f"--bs={block}"]
    return command


def with_copies(found: measure.Numbers, case: str, copy: measure.Finished, args: argparse.Namespace) -> measure.Numbers:
    """The same, had the copy been made before each job that needs it: of old data the first, amid checkpoints each."""
    of_all = {"old": ("randwrite",), "checkpointed": ("randwrite", "write", "randrw")}.get(case.split(", ")[0], ())
    needing = [(name, kind) for name, kind, _ in JOBS if kind in of_all][:None if "checkpointed" in case else 1]
    for name, kind in needing:
        share = 0.5 if kind == "randrw" else 1.0       # of its bytes are writes
        found[f"{case}: {name}"] = 1 / (1 / found[f"{case}: {name}"] + share * copy.wall_s / args.file_size)
    found[f"{case}: CPU s"] += copy.cpu_s * len(needing)
    return found


def one_run(case: str, kind: str, args: argparse.Namespace) -> measure.Numbers:
    """MiB/s by job; reads and writes of a mixed job together."""
    if shutil.which("fio") is None:
        raise SystemExit("bench: fio is not installed (on Debian: apt-get install fio)")
    data, threads = case.split(", ")
    with measure.fresh_folder(args.dir) as folder:
        file = folder / "data"
        if data == "sparse":
            file.touch()
            os.truncate(file, SPARSE_MIB << 20)
        elif data != "new":
            with open(file, "wb") as target:
                for _ in range(args.file_size):
                    target.write(os.urandom(1 << 20))
            os.sync()
        command = fio_command(file, int(threads.split()[0]), data == "sparse", args)
        if kind == "metamori":
            command = [measure.metamori(), "run", "--store", str(folder / "store"), *DATA[data], "--", *command]
        copy = measure.durable_copy(file) if kind == "limit" and data in ("old", "checkpointed") else None
        done = measure.timed(command, folder)
        jobs = json.loads(done.output[done.output.index("{"):])["jobs"]
        found = {f"{case}: {name}": sum(job[way]["bw_bytes"] for way in ("read", "write")) / 2**20
                 for (name, _, _), job in zip(JOBS, jobs, strict=True)}
        found[f"{case}: CPU s"] = done.cpu_s
        return with_copies(found, case, copy, args) if copy else found


def numbers(kind: str, args: argparse.Namespace) -> measure.Numbers:
    found: measure.Numbers = {}
    for case in (f"{data}, {threads} thread{'s' * (threads > 1)}" for data in DATA for threads in THREADS):
        if args.only in case:
            found |= one_run(case, kind, args)
    return found


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = ("native", "limit", "metamori")
    return measure.alternate({kind: (lambda kind=kind: numbers(kind, args)) for kind in kinds}, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    return table.beside(results, "MiB/s")
