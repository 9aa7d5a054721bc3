"""Nanoseconds per call by size over a file that existed before the run, natively, by default and isolated."""
from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench import measure, table

SIZES = (1, 100, 512, 4096, 8192, 65536)
OPERATIONS = ("pwrite-random", "pread-random", "write", "write-again", "read")
KINDS: dict[str, list[str] | None] = {"native": None, "default": [], "isolate": ["--isolate"]}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file-size", type=int, default=64, metavar="MIB", help="size of the file (64)")


def one_run(options: list[str] | None, program: Path, args: argparse.Namespace) -> measure.Numbers:
    """All operations with every size, each size in a file of its own."""
    numbers: measure.Numbers = {}
    for size in SIZES:
        with measure.fresh_folder(args.dir) as folder:
            data = folder / "data"
            with open(data, "wb") as file:
                for _ in range(args.file_size):
                    file.write(os.urandom(1 << 20))
            os.sync()
            command = [str(program), str(data), str(args.file_size), str(size)]
            if options is not None:
                store = str(folder / "store")
                command = [measure.metamori(), "run", "--store", store, *options, "--", *command]
            for line in measure.timed(command, folder).output.splitlines():
                operation, ns = line.split()
                numbers[f"{operation} {size}"] = float(ns)
    return numbers


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        program = measure.compiled("calls", folder)
        kinds = {name: (lambda options=options: one_run(options, program, args))
                 for name, options in KINDS.items()}
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    """ns per call, and how many times faster than native."""
    rows = []
    for size in SIZES:
        for operation in OPERATIONS:
            values = {kind: measure.median(series[f"{operation} {size}"]) for kind, series in results.items()}
            cells = [f"{table.number(value)} {table.ratio(values['native'], value)}" if kind != "native"
                     else table.number(value) for kind, value in values.items()]
            rows.append([f"{operation} {size}", *cells])
    return table.render(["ns per call", *results], rows)
