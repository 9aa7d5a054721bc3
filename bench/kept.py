"""A file that stays: written in sequence, or written over, with the run's start, its end and the commit counted in.

`limit`: native, and where old bytes are written over, that which any checkpoint of them costs: one durable copy before.
"""
from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench import measure, table

KINDS: dict[str, list[str] | None] = {"native": None, "limit": None, "default": [], "isolate": ["--isolate"]}
WAYS = ("written new", "written over")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file-size", type=int, default=2048, metavar="MIB", help="size of the file (2048)")


def one_run(kind: str, way: str, args: argparse.Namespace) -> measure.Finished:
    options = KINDS[kind]
    with measure.fresh_folder(args.dir) as folder:
        file = Path(folder / "kept")
        if way == "written over":
            with open(file, "wb") as target:
                for _ in range(args.file_size):
                    target.write(b"o" * (1 << 20))
            os.sync()
        command = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={args.file_size}", "conv=fsync,notrunc",
                   "status=none"]
        if kind == "limit" and way == "written over":
            copy = f"dd if={file} of={folder / 'copy'} bs=1M conv=fsync status=none"
            command = ["sh", "-c", f"{copy} && {' '.join(command)}"]
        if options is not None:
            command = [measure.metamori(), "run", "--store", str(folder / "store"), *options, "--", *command]
        return measure.timed(command, folder)


def numbers(kind: str, args: argparse.Namespace) -> measure.Numbers:
    found: measure.Numbers = {}
    for way in WAYS:
        done = one_run(kind, way, args)
        found |= {f"{way}: wall s": done.wall_s, f"{way}: CPU s": done.cpu_s, f"{way}: peak MiB": done.peak_mib}
    return found


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    return measure.alternate({kind: (lambda kind=kind: numbers(kind, args)) for kind in KINDS}, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    return table.beside(results, "", smaller_is_better=True)
