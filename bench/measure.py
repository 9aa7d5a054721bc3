"""Running things, timing them, and putting the numbers of several rounds together.

Every comparison is made in rounds: each round runs every variant once, and every other round runs them
backwards, so that a machine that grows slower or faster favours nobody. What is reported is the median, and
the smallest and largest value beside it.
"""
from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# metric -> value in one run; metric -> values of all rounds
Numbers = dict[str, float]
Series = dict[str, list[float]]


@dataclass(frozen=True)
class Finished:
    """One process that has ended, with all the children that it waited for."""

    wall_s: float
    cpu_s: float
    peak_mib: float  # resident memory of the largest of them at its largest
    status: int
    output: str


class Failed(Exception):
    """A measured command ended with a status other than 0."""


def timed(command: list[str], cwd: Path) -> Finished:
    """Run ``command`` with wall time and the CPU seconds (user and system) of it and its children."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode != 0:
            errors.seek(0)
            raise Failed(f"{' '.join(command)} ended with {process.returncode}: "
                         f"{errors.read().decode(errors='replace')[-600:]}")
        return Finished(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024,
                        process.returncode, output.read().decode(errors="replace"))


def durable_copy(file: Path) -> Finished:
    """What it costs at least to have the bytes of a file once more, until they are on its disk."""
    return timed(["dd", f"if={file}", f"of={file}.copy", "bs=1M", "conv=fsync", "status=none"], file.parent)


def metamori() -> str:
    """The ``metamori`` command of the Python that runs the bench, else the one on PATH."""
    found = shutil.which("metamori", path=str(Path(sys.executable).parent)) or shutil.which("metamori")
    if found is None:
        raise SystemExit("bench: metamori is not installed for this Python (make build)")
    return found


def compiled(name: str, into: Path, *options: str) -> Path:
    """Compile bench/``name``.c with the public header of the installed package."""
    import metamori as package
    include = Path(package.__path__[0]) / "include"
    program = into / name
    source = Path(__file__).with_name(f"{name}.c")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O2", "-Wall", *options, f"-I{include}", "-o", program, source, "-lpthread"], check=True)
    return program


@contextmanager
def fresh_folder(base: Path) -> Iterator[Path]:
    """An empty folder on the filesystem under test, gone afterwards; earlier writes have reached the disk."""
    folder = Path(tempfile.mkdtemp(prefix="metamori-bench-", dir=base))
    os.sync()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def alternate(variants: dict[str, Callable[[], Numbers]], rounds: int) -> dict[str, Series]:
    """Run every variant once per round, forwards and backwards in turn."""
    results: dict[str, Series] = {name: {} for name in variants}
    for number in range(rounds):
        names = list(variants) if number % 2 == 0 else list(reversed(variants))
        for name in names:
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            for metric, value in variants[name]().items():
                results[name].setdefault(metric, []).append(value)
    return results


def alternate_with_native(numbers: Callable[[bool], Numbers], rounds: int) -> dict[str, Series]:
    """numbers: of one run, natively or tracked."""
    return alternate({"native": lambda: numbers(False), "metamori": lambda: numbers(True)}, rounds)


def median(values: list[float]) -> float:
    return statistics.median(values)


def summary(series: Series) -> dict[str, dict[str, float | list[float]]]:
    """Per metric: median, smallest, largest and every value, as it goes into the JSON."""
    return {metric: {"median": median(values), "least": min(values), "most": max(values), "all": values}
            for metric, values in series.items()}
