"""The memory of a program, saved and brought back: pause, bytes, time behind the program, what it costs to run with it.

There is no native side; a plain copy of the memory within the program stands beside it.
"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from pathlib import Path

from bench import measure, table

SIZES_MIB = (100, 1024)
PERCENTS = (1, 10, 100)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES_MIB,
                        metavar="MIB,...", help="sizes of the program's memory, in MiB (100,1024)")


class Program:
    """The program under `metamori run --memory`, and what the run area says of its last image."""

    def __init__(self, program: Path, size_mib: int, folder: Path, *words: str) -> None:
        self.store = folder / "store"
        verb = words or ("run", "--memory", "--store", str(self.store), "--", str(program), str(size_mib))
        self.started = time.monotonic()
        self.process = subprocess.Popen([measure.metamori(), *verb], cwd=folder, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def answer(self, line: str = "") -> float:
        assert self.process.stdin and self.process.stdout
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            raise measure.Failed(f"the program ended with {self.process.wait()}")
        return float(said)

    def checkpoint(self) -> dict[str, float]:
        from metamori.runtime.area import Area

        started = time.monotonic()
        subprocess.run([measure.metamori(), "checkpoint", "--store", str(self.store)], check=True, capture_output=True)
        whole = time.monotonic() - started
        area = Area(str(self.store))
        memory = area.head.memory
        result = {"pause, ms": memory.pause_ns / 1e6, "image, MiB": memory.file_bytes / 2**20,
                  "whole verb, ms": whole * 1e3}
        area.close()
        return result

    def kill(self) -> None:
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True,
                                  check=False).stdout.split()
        for pid in children:
            os.kill(int(pid), 9)
        self.process.wait()


def one_run(size_mib: int, percent: int, binary: Path, args: argparse.Namespace) -> measure.Numbers:
    with measure.fresh_folder(args.dir) as folder:
        program = Program(binary, size_mib, folder)
        program.answer()
        first = program.checkpoint()
        unarmed = program.answer("copy")
        armed = []
        for _ in range(3):
            armed.append(program.answer(str(percent)))
            last = program.checkpoint()
        program.kill()
        restart_s = _restart(binary, size_mib, folder)
        shutil.rmtree(folder / "store", ignore_errors=True)
        pages = size_mib * 256 * percent // 100
        return {"first pause, ms": first["pause, ms"], **last, "copy, ms": unarmed / 1e3,
                "us per first write": measure.median(armed) / pages, "restart, s": restart_s}


def _restart(binary: Path, size_mib: int, folder: Path) -> float:
    """From the command to the program's first answer."""
    program = Program(binary, size_mib, folder, "restart", "--store", str(folder / "store"), "4")
    started = program.started
    program.answer("0")
    seconds = time.monotonic() - started
    program.kill()
    return seconds


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        binary = measure.compiled("memory", folder)
        kinds = {f"{size} MiB, {percent} %": (lambda size=size, percent=percent: one_run(size, percent, binary, args))
                 for size in args.sizes for percent in PERCENTS}
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(next(iter(results.values())))
    return table.render(["memory, changed", *metrics],
                        [[name, *(table.number(measure.median(series[metric])) for metric in metrics)]
                         for name, series in results.items()])
