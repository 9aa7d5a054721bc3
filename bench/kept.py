"""A file that stays: written in sequence, or written over, with the run's start, its end and the commit counted in."""
from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench import measure, table

KINDS: dict[str, list[str] | None] = {"native": None, "default": [], "isolate": ["--isolate"]}
WAYS = ("written new", "written over")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file-size", type=int, default=2048, metavar="MIB", help="size of the file (2048)")


def one_run(options: list[str] | None, way: str, args: argparse.Namespace) -> measure.Finished:
    with measure.fresh_folder(args.dir) as folder:
        file = Path(folder / "kept")
        if way == "written over":
            with open(file, "wb") as target:
                for _ in range(args.file_size):
                    target.write(b"o" * (1 << 20))
            os.sync()
        command = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={args.file_size}", "conv=fsync,notrunc",
                   "status=none"]
        if options is not None:
            command = [measure.metamori(), "run", "--store", str(folder / "store"), *options, "--", *command]
        return measure.timed(command, folder)


def numbers(options: list[str] | None, args: argparse.Namespace) -> measure.Numbers:
    found: measure.Numbers = {}
    for way in WAYS:
        done = one_run(options, way, args)
        found |= {f"{way}: wall s": done.wall_s, f"{way}: CPU s": done.cpu_s, f"{way}: peak MiB": done.peak_mib}
    return found


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    return measure.alternate({name: (lambda options=options: numbers(options, args))
                              for name, options in KINDS.items()}, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    return table.beside(results, "", smaller_is_better=True)
