"""What it costs to give, change and take names."""
from __future__ import annotations

import argparse
import subprocess
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
        program = folder / "names"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", program, Path(__file__).with_name("names.c")], check=True)
        kinds = {"native": lambda: numbers(False, program, args), "metamori": lambda: numbers(True, program, args)}
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    rows = []
    for metric in results["native"]:
        native, ours = (measure.median(results[kind][metric]) for kind in ("native", "metamori"))
        rows.append([metric, table.number(native), table.number(ours), table.ratio(native, ours)])
    return table.render(["", "native", "metamori", ""], rows)
