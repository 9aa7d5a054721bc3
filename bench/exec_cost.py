"""What it costs to start a small program inside a run, and to start a run at all."""
from __future__ import annotations

import argparse

from bench import measure, table

LOOP = "i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=200, help="how many times /bin/true is started (200)")


def one_run(tracked: bool, count: int, args: argparse.Namespace) -> measure.Finished:
    with measure.fresh_folder(args.dir) as folder:
        command = ["/bin/sh", "-c", LOOP.format(count=count)]
        if tracked:
            command = [measure.metamori(), "run", "--store", str(folder / "store"), "--", *command]
        return measure.timed(command, folder)


def numbers(tracked: bool, args: argparse.Namespace) -> measure.Numbers:
    """Milliseconds per start of /bin/true, without the start of the shell and of the run, and those alone."""
    empty, full = one_run(tracked, 0, args), one_run(tracked, args.count, args)
    return {"per exec, ms": (full.wall_s - empty.wall_s) * 1000 / args.count,
            "per exec, CPU ms": (full.cpu_s - empty.cpu_s) * 1000 / args.count,
            "start and end, ms": empty.wall_s * 1000, "start and end, CPU ms": empty.cpu_s * 1000}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = {"native": lambda: numbers(False, args), "metamori": lambda: numbers(True, args)}
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(results["native"])
    rows = [[name, *(table.number(measure.median(series[metric])) for metric in metrics)]
            for name, series in results.items()]
    added = [measure.median(results["metamori"][metric]) - measure.median(results["native"][metric])
             for metric in metrics]
    rows.append(["added", *(f"{value:+.2f}" for value in added)])
    return table.render(["", *metrics], rows)
