"""A file that stays: written in sequence, or written over, with the run's start, its end and the commit counted in.

`limit`: native and one durable copy: of the old bytes before they are written over, which any checkpoint of them costs;
of the new ones after, as `--isolate` needs where a filesystem shares no blocks.
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


def one_run(kind: str, way: str, args: argparse.Namespace) -> measure.Numbers:
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
        took = [measure.durable_copy(file)] if kind == "limit" and way == "written over" else []
        if options is not None:
            command = [measure.metamori(), "run", "--store", str(folder / "store"), *options, "--", *command]
        took.append(measure.timed(command, folder))
        if kind == "limit" and way == "written new":
            took.append(measure.durable_copy(file))
        return {f"{way}: wall s": sum(each.wall_s for each in took), f"{way}: CPU s": sum(each.cpu_s for each in took),
                f"{way}: peak MiB": max(each.peak_mib for each in took)}


def numbers(kind: str, args: argparse.Namespace) -> measure.Numbers:
    return {metric: value for way in WAYS for metric, value in one_run(kind, way, args).items()}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    return measure.alternate({kind: (lambda kind=kind: numbers(kind, args)) for kind in KINDS}, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    return table.beside(results, "", smaller_is_better=True)
