"""Whole real programs beside themselves: wall time and CPU seconds, the run's start and commit included.

Each prepares its files in an empty folder, outside the measured time, and then runs one shell command there.
"""
from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import measure, table

SOURCES = 200


@dataclass(frozen=True)
class Program:
    """A shell command, and what has to lie in the folder before."""

    command: str
    prepare: Callable[[Path], None] = lambda folder: None


def small_sources(folder: Path) -> None:
    """SOURCES C files of a few lines, and a makefile that compiles each to an object."""
    for number in range(SOURCES):
        (folder / f"f{number}.c").write_text(
            f'#include <stdio.h>\nint f{number}(int x) {{ printf("%d\\n", x * {number}); return x; }}\n')
    objects = " ".join(f"f{number}.o" for number in range(SOURCES))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\tgcc -O1 -c $< -o $@\n")


def lines(folder: Path) -> None:
    """A text of two million numbers in no order, the same in every run."""
    chance = random.Random(1)
    with open(folder / "lines", "w") as file:
        for _ in range(20):
            file.write("".join(f"{chance.randrange(10**9)}\n" for _ in range(100_000)))


SQL = ("CREATE TABLE t(i INTEGER PRIMARY KEY, x TEXT);"
       " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 300000)"
       " INSERT INTO t SELECT i, hex(randomblob(40)) FROM n;"
       " UPDATE t SET x = x || i; DELETE FROM t WHERE i % 3 = 0; VACUUM;")
PROGRAMS = {
    f"make -j2, {SOURCES} C files": Program("make -s -j2", small_sources),
    "dd, 1 GiB kept": Program("dd if=/dev/zero of=big bs=1M count=1024 conv=fsync status=none"),
    "sqlite3, 300,000 rows": Program(f"sqlite3 t.db '{SQL}'"),
    "sort, 2,000,000 lines": Program("sort -n -S 8M -T . lines -o lines", lines),
    "git, add and commit them": Program(
        "git init -q . && git add . && git -c user.name=b -c user.email=b@b commit -qm b && git gc -q", small_sources),
    "5,000 small files": Program(
        "for d in $(seq 50); do mkdir d$d; for i in $(seq 100); do echo $i > d$d/$i; done; done;"
        " for i in $(seq 100); do mv d1/$i d2/m$i; rm d3/$i; done; cat d*/* > all"),
    "tar, 200 files 50 times": Program("for i in $(seq 50); do tar cf all.tar f*.c; done", small_sources),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="TEXT", default="", help="only programs with TEXT in the name")


def one_run(program: Program, tracked: bool, args: argparse.Namespace) -> measure.Finished:
    with measure.fresh_folder(args.dir) as folder:
        work = folder / "work"
        work.mkdir()
        program.prepare(work)
        os.sync()
        command = ["/bin/sh", "-c", program.command]
        if tracked:
            command = [measure.metamori(), "run", "--store", str(folder / "store"), "--", *command]
        return measure.timed(command, work)


def numbers(tracked: bool, args: argparse.Namespace) -> measure.Numbers:
    found: measure.Numbers = {}
    for name, program in PROGRAMS.items():
        if args.only in name:
            done = one_run(program, tracked, args)
            found |= {f"{name}: wall s": done.wall_s, f"{name}: CPU s": done.cpu_s, f"{name}: peak MiB": done.peak_mib}
    return found


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = {"native": lambda: numbers(False, args), "metamori": lambda: numbers(True, args)}
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    """Seconds on both sides, and how many times faster than native."""
    rows = []
    for metric, values in results["native"].items():
        native, other = measure.median(values), measure.median(results["metamori"][metric])
        rows.append([metric, table.number(native), table.number(other), table.ratio(native, other)])
    return table.render(["", "native", "metamori", "speed"], rows)
