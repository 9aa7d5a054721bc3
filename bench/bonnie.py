"""Unmodified Bonnie++ beside itself: the table of the thesis's figure 5.1.

Bonnie++ prints '+++++' for a phase that took less than half a second. Such a phase counts with the rate that
half a second would give, a lower bound; the table marks it with '>'.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

from bench import measure, table

# Columns of Bonnie++'s CSV, format 1.98 (bon_csv2txt(1)): KiB per second.
COLUMNS = {"write per char": 9, "write": 11, "rewrite": 13, "read per char": 15, "read": 17}
PER_CHAR = {"write per char", "read per char"}
PER_CHAR_PART = 20                         # of the file is written and read byte by byte
SHORTEST_TIMED_S = 0.5
CACHES = ("0", "25M", "50M", "100M")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--phases", choices=("all", "blocks", "chars"), default="all",
                        help="blocks: without the per character phases, chars: those only are counted (all)")
    parser.add_argument("--only", metavar="TEXT", help="besides native, only variants with TEXT in the name")


def mebibytes(size: str) -> float:
    """'2g' or '512m' as Bonnie++ reads it."""
    return float(size[:-1]) * {"g": 1024, "m": 1}[size[-1].lower()]


def parse(line: str, size: str) -> measure.Numbers:
    """MiB/s per phase; a phase too short to be timed gets its lower bound, as a negative number."""
    fields = line.strip().splitlines()[-1].split(",")
    numbers: measure.Numbers = {}
    for phase, column in COLUMNS.items():
        if fields[column].startswith("+"):
            amount = mebibytes(size) // (PER_CHAR_PART if phase in PER_CHAR else 1)
            numbers[phase] = -amount / SHORTEST_TIMED_S
        elif fields[column]:
            numbers[phase] = float(fields[column]) / 1024
    return numbers


def variants() -> dict[str, list[str]]:
    """Name -> options of ``metamori run``; native has no entry."""
    isolated = {f"--isolate, cache {cache}": ["--isolate", "--cache-size", cache] for cache in CACHES}
    return {"default": [], **isolated, "default, checkpoint every 2 s": ["--every", "2s"]}


def one_run(options: list[str] | None, args: argparse.Namespace) -> measure.Numbers:
    """Bonnie++ in an empty folder, natively when ``options`` is None."""
    program = shutil.which("bonnie++", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        raise SystemExit("bench: bonnie++ is not installed (on Debian: apt-get install bonnie++)")
    with measure.fresh_folder(args.dir) as folder:
        work, store = folder / "work", folder / "store"
        work.mkdir()
        ram = str(max(1, int(mebibytes(args.size)) // 2))
        command = [program, "-d", str(work), "-s", args.size, "-n", "0", "-r", ram, "-q"]
        command += ["-u", "root"] if os.geteuid() == 0 else []
        command += ["-f"] if args.phases == "blocks" else []
        if options is not None:
            command = [measure.metamori(), "run", "--store", str(store), *options, "--", *command]
        done = measure.timed(command, work)
        numbers = parse(done.output, args.size)
        if args.phases == "chars":
            return {phase: value for phase, value in numbers.items() if phase in PER_CHAR}
        numbers |= {"CPU s": done.cpu_s, "wall s": done.wall_s, "peak MiB": done.peak_mib}
        if options is not None:
            numbers["checkpoints"] = float(checkpoints(store))
        else:                              # what isolation, and an index of what is rewritten, cannot do without
            file = folder / "file"
            measure.timed(["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={mebibytes(args.size):.0f}"], folder)
            copy = measure.durable_copy(file)
            numbers |= {"a copy, CPU s": copy.cpu_s, "a copy, wall s": copy.wall_s, "MiB": mebibytes(args.size)}
        return numbers


def checkpoints(store: Path) -> int:
    """How many checkpoints the run took, its end included; 0 when nothing was tracked."""
    done = subprocess.run([measure.metamori(), "log", "--store", str(store), "--json"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        return 0
    return sum(1 for checkpoint in json.loads(done.stdout)["checkpoints"] if checkpoint["index"] > 0)


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    chosen = {name: options for name, options in variants().items() if not args.only or args.only in name}
    kinds = {"native": lambda: one_run(None, args)}
    kinds |= {name: (lambda options=options: one_run(options, args)) for name, options in chosen.items()}
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    """Medians in MiB/s with the ratio to native below each variant's name, and CPU seconds."""
    native = results["native"]
    phases = [phase for phase in COLUMNS if phase in native]
    rows = []
    for name, series in results.items():
        cells = []
        for phase in phases:
            value = measure.median([abs(number) for number in series[phase]])
            base = measure.median([abs(number) for number in native[phase]])
            mark = ">" if any(number < 0 for number in series[phase]) else ""
            cells.append(f"{mark}{table.number(value)} {table.ratio(value, base)}")
        for key in ("CPU s", "wall s", "peak MiB", "checkpoints"):
            cells.append(table.number(measure.median(series[key])) if key in series else "")
        rows.append([name, *cells])
    return table.render(["MiB/s", *phases, "CPU s", "wall s", "peak MiB", "checkpoints"], rows)
