"""Level checkpoints: CPU seconds and MB/s per GiB protected, 4 ranks x 64 MB, beside the limits of this machine.

`limit` rows are what the processor can do at all: memcpy, the checksum, the erasure code, the write into a file. The
last column is FTI 1.6, measured once on another day (its CPU seconds per GiB); levels other than L1 lose nodes first.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import measure, table

LOST = {1: (), 2: (0,), 3: (0, 1), 4: (0, 1, 2, 3)}
FTI = {"L1 full": "2.4-3.1", "L2 full": "3.2-3.7", "L3 full": "8.6-10.3", "L4 full": "2.3-3.8",
       "L1 recover": "2.5-2.7", "L2 recover": "4.0-4.4", "L3 recover": "13.9-15.8", "L4 recover": "3.7-5.1",
       "L4 5 % changed": "1.9-3.8"}
ROOT = Path(__file__).resolve().parents[1]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=64, help="protected per rank (64)")
    parser.add_argument("--ranks", type=int, default=4, help="ranks, a multiple of 4 (4)")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"),
                        help="where a second round of checkpoints goes, as FTI's figures were measured (/dev/shm)")


def job(folder: Path, args: argparse.Namespace, *words: object) -> dict[str, list[list[float]]]:
    command = ["mpirun.openmpi", "-n", str(args.ranks), sys.executable, "-m", "bench.levels_worker", *map(str, words)]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                   "MPI4PY_MPIABI": "openmpi", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise measure.Failed(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-900:]}")
    return json.loads(lines[-1])


def one_level(level: int, where: Path, args: argparse.Namespace) -> measure.Numbers:
    gib = args.ranks * args.mib / 1024
    with measure.fresh_folder(where) as folder:
        (folder / "config.fti").write_text(
            "[Basic]\nnode_size = 1\ngroup_size = 4\nckpt_dir = Local\nglbl_dir = Global\nmeta_dir = Meta\n")
        found = job(folder, args, "write", level, args.mib, 3)
        for node in LOST[level]:
            shutil.rmtree(folder / "Local" / f"node{node}")
        found |= job(folder, args, "recover", level, args.mib, 1)
    numbers = {}
    for phase, values in found.items():
        numbers[f"{phase}: CPU s/GiB"] = measure.median([used for used, _ in values]) / gib
        numbers[f"{phase}: MB/s"] = gib * 1073.741824 / measure.median([wall for _, wall in values])
    return numbers


def limits(args: argparse.Namespace) -> measure.Numbers:
    """What one core can do with 64 MiB."""
    import numpy
    import xxhash

    from metamori.levels.formats import image
    from metamori.levels.formats.sink import Sink
    from metamori.levels.protect import erasure

    data = numpy.random.default_rng(1).integers(0, 2**62, 64 << 17, numpy.int64)
    view = memoryview(data).cast("B")
    step = erasure.slice_bytes(len(view), 4)
    code = erasure.Code(4, range(4), range(4, 8))
    pieces, parity = bytearray(view[:4 * step]), bytearray(4 * step)
    other = numpy.empty_like(data)

    def written(where: Path) -> None:
        with measure.fresh_folder(where) as folder:
            sink = Sink(str(folder / "x"))
            sink.put(view)
            sink.finish()
    works = {"limit memcpy": lambda: numpy.copyto(other, data), "limit XXH3, one piece": lambda: xxhash.xxh3_128(view),
             "limit XXH3, 16 KB blocks": lambda: image.digests(view, 16384),
             "limit write to a file": lambda: written(args.dir),
             "limit write to a file, tmpfs": lambda: written(args.tmpfs),
             "limit erasure code, 4 + 4": lambda: [code.apply(pieces, parity, step)
                                                  for _ in range(len(view) // len(pieces))]}
    numbers = {}
    for name, work in works.items():
        work()
        before = time.process_time()
        work()
        numbers[name] = (time.process_time() - before) * 16
    return numbers


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = {f"L{level}{words}": (lambda level=level, where=where: one_level(level, where, args))
             for where, words in ((args.dir, ""), (args.tmpfs, ", tmpfs")) for level in (1, 2, 3, 4)}
    kinds["limits"] = lambda: limits(args)
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    rows = []
    for name, series in results.items():
        if name == "limits":
            rows += [[what, table.number(measure.median(values)), "", ""] for what, values in series.items()]
            continue
        for phase in ("full", "5 % changed", "recover"):
            what = f"{name.removesuffix(', tmpfs')} {phase}"
            rows.append([f"{name}, {phase}", table.number(measure.median(series[f"{phase}: CPU s/GiB"])),
                         table.number(measure.median(series[f"{phase}: MB/s"])), FTI.get(what, "")])
    return table.render(["", "CPU s/GiB", "MB/s", "FTI's CPU s/GiB"], rows)
