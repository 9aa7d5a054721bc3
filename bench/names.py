"""What it costs to give, change and take names."""
from __future__ import annotations

import argparse
from pathlib import Path

from bench import measure, table


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=2000, help="how often each operation is made (2000)")


def numbers(tracked: bool, program: Path, args: argparse.Namespace) -> measure.Numbers:
    with measure.fresh_folder(args.dir) as folder:
        words = [measure.metamori(), "run", "--store", str(folder / "store"), "--"] if tracked else []
        lines = measure.timed([*words, str(program), str(args.count)], folder).output.splitlines()
    found = {}
    for what, cpu, wall in map(str.split, lines):
        found[f"{what}, CPU us"], found[f"{what}, us"] = float(cpu), float(wall)
    return found


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        program = measure.compiled("names", folder)
        return measure.alternate_with_native(lambda tracked: numbers(tracked, program, args), args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    return table.beside(results, "", smaller_is_better=True)
