"""The memory of a program, saved and brought back: pause, bytes, time behind the program, what it costs to run with it.

Beside it stand a plain copy of the memory within the program and, where it works, CRIU's dump of the same program. The
overhead is that of a program that computes for some time, with a checkpoint every 10 seconds, over the same natively.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench import measure, table

SIZES_MIB = (100, 1024)
PERCENTS = (1, 10, 100)
EVERY_S = 10


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers, default=SIZES_MIB, metavar="MIB,...",
                        help="sizes of the program's memory, in MiB (100,1024)")
    parser.add_argument("--trees", type=numbers, default=(8,), metavar="N,...",
                        help="processes that have the largest size together, and change the first percentage (8)")
    parser.add_argument("--idle", type=numbers, default=(500,), metavar="N,...",
                        help="processes that do nothing (500)")
    parser.add_argument("--overhead", type=numbers, default=SIZES_MIB[-1:], metavar="MIB,...",
                        help="sizes for which the overhead is measured, too; '' for none (1024)")
    parser.add_argument("--percents", type=numbers, default=PERCENTS, metavar="N,...",
                        help="how much of it changes (1,10,100)")
    parser.add_argument("--seconds", type=float, default=2 * EVERY_S + 1, metavar="S",
                        help="how long the program computes for that (21: two checkpoints)")


class Program:
    """The program under `metamori run --memory`, and what the run area says of its last image."""

    def __init__(self, program: Path, size_mib: int, folder: Path, *words: str, processes: int = 1) -> None:
        self.store = folder / "store"
        tree = ("tree", str(processes)) if processes > 1 else ()
        verb = words or ("run", "--memory", "--store", str(self.store), "--", str(program), str(size_mib), *tree)
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
        """Taken by the program itself, so nobody's start is in it; it is durable when the call returns."""
        from metamori._area import lib
        from metamori.runtime.area.run_area import Area

        whole_us = self.answer("checkpoint")
        area = Area(str(self.store))
        each = [lib.mm_memory_of(area.pointer, slot) for slot in area.processes()]
        memory = each[0]
        result = {"pause, ms": max(one.pause_ns for one in each) / 1e6, "of it stop": memory.stop_ns / 1e6,
                  "find": memory.gather_ns / 1e6, "copy aside": memory.copy_ns / 1e6,
                  "image, MiB": sum(one.file_bytes for one in each) / 2**20,
                  "behind, ms": whole_us / 1e3 - memory.pause_ns / 1e6}
        area.close()
        return result

    def kill(self) -> None:
        found, next_ones = [], [str(self.process.pid)]
        while next_ones:
            asked = ["ps", "-o", "pid=", "--ppid", ",".join(next_ones)]
            next_ones = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
            found += next_ones
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        self.process.wait()


def one_run(size_mib: int, percent: int, binary: Path, args: argparse.Namespace, processes: int = 1) -> measure.Numbers:
    with measure.fresh_folder(args.dir) as folder:
        program = Program(binary, size_mib, folder, processes=processes)
        program.answer()
        first = program.checkpoint()
        full_copy = program.answer("copy")
        armed = []
        for _ in range(3):
            armed.append(program.answer(str(percent)))
            last = program.checkpoint()
        program.kill()
        restart_s = _restart(binary, size_mib, folder)
        shutil.rmtree(folder / "store", ignore_errors=True)
        pages = processes * size_mib * 256 * percent // 100 or 1
        return {"first pause, ms": first["pause, ms"], **last, "restart, s": restart_s,
                "us per first write": measure.median(armed) / pages, "full copy, ms": full_copy / 1e3}


def _restart(binary: Path, size_mib: int, folder: Path) -> float:
    """From the command to the program's first answer."""
    program = Program(binary, size_mib, folder, "restart", "--store", str(folder / "store"), "4")
    program.answer("0")
    seconds = time.monotonic() - program.started
    program.kill()
    return seconds


def overhead(size_mib: int, percent: int, binary: Path, args: argparse.Namespace, turn: list[int]) -> measure.Numbers:
    """In percent of the time without Metamori; natively first in every other round."""
    def seconds(units: int, *before: str) -> float:
        with measure.fresh_folder(args.dir) as folder:
            done = measure.timed([*before, str(binary), str(size_mib), "steady", str(percent), str(units)], folder)
            return float(done.output) / 1e6

    units = max(1, round(args.seconds / (seconds(100) / 100)))
    followed = (measure.metamori(), "run", "--memory", "--every", f"{EVERY_S}s", "--")
    turn[0] += 1
    if turn[0] % 2:
        native, run = seconds(units), seconds(units, *followed)
    else:
        run, native = seconds(units, *followed), seconds(units)
    return {"overhead, %": (run / native - 1) * 100}


def criu(size_mib: int, binary: Path, args: argparse.Namespace) -> measure.Numbers:
    """What a dump takes that leaves the program running; it is complete each time."""
    with measure.fresh_folder(args.dir) as folder:
        program = subprocess.Popen([binary, str(size_mib), "idle"], cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=(folder / "out").open("w"), stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while not (folder / "out").read_text():
                time.sleep(0.05)
            images = folder / "images"
            images.mkdir()
            done = measure.timed(["criu", "dump", "-D", str(images), "-t", str(program.pid), "--leave-running"], folder)
            size = sum(path.stat().st_size for path in images.iterdir())
            return {"CRIU dump, ms": done.wall_s * 1e3, "CRIU image, MiB": size / 2**20}
        finally:
            program.kill()
            program.wait()


def has_criu() -> bool:
    return os.geteuid() == 0 and shutil.which("criu") is not None and \
        subprocess.run(["criu", "check"], capture_output=True, check=False).returncode == 0


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    turn, beside = [0], has_criu()
    with measure.fresh_folder(args.dir) as folder:
        binary = measure.compiled("memory", folder)

        def cell(size: int, percent: int) -> Callable[[], measure.Numbers]:
            return lambda: {**one_run(size, percent, binary, args),
                            **(overhead(size, percent, binary, args, turn) if size in args.overhead else {}),
                            **(criu(size, binary, args) if beside and percent == args.percents[0] else {})}

        kinds = {f"{size} MiB, {percent} %": cell(size, percent) for size in args.sizes
                 for percent in args.percents}
        for processes in args.idle:
            kinds[f"{processes} idle processes"] = lambda processes=processes: one_run(0, 0, binary, args, processes)
        for processes in args.trees:
            each = args.sizes[-1] // processes
            kinds[f"{processes} processes of {each} MiB, {args.percents[0]} %"] = \
                lambda processes=processes, each=each: one_run(each, args.percents[0], binary, args, processes)
        return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(dict.fromkeys(metric for series in results.values() for metric in series))
    return table.render(["memory, changed", *metrics],
                        [[name, *(table.number(measure.median(series[metric])) if metric in series else ""
                                  for metric in metrics)]
                         for name, series in results.items()])
