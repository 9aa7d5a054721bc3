"""What else keeps the state of a file of which 1 MiB changed: a full copy, a reflink copy, a btrfs snapshot, DMTCP.

Each keeps ten states of a file, 1 MiB changed before each, and makes it durable; those that this machine or the
filesystem of --dir does not have are left out, with a message. Metamori's side of it is the bench `checkpoint`.
"""
from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import machine, measure, table

SIZES_MIB = (20, 200, 2048)
STATES = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES_MIB,
                        metavar="MIB,...", help="sizes of the file, in MiB (20,200,2048)")


def quiet(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise measure.Failed(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def copied(how: str) -> Callable[[Path, int], None]:
    def keep(work: Path, number: int) -> None:
        quiet("cp", f"--reflink={how}", str(work / "data"), str(work.parent / f"kept.{number}"))
        quiet("sync", str(work.parent / f"kept.{number}"))
    return keep


def snapshot(work: Path, number: int) -> None:
    quiet("btrfs", "subvolume", "snapshot", str(work), str(work.parent / f"kept.{number}"))
    quiet("btrfs", "filesystem", "sync", str(work.parent))


def there(folder: Path) -> dict[str, Callable[[Path, int], None]]:
    """The peers that can work in a folder; what cannot is said on stderr."""
    found = {"full copy": copied("never")}
    kind = machine.filesystem(folder)
    if kind in ("btrfs", "xfs", "bcachefs"):
        found["reflink copy"] = copied("always")
    if kind == "btrfs" and shutil.which("btrfs"):
        found["btrfs snapshot"] = snapshot
    for name in {"reflink copy", "btrfs snapshot"} - found.keys():
        print(f"bench: no {name}: {folder} is on {kind}", file=sys.stderr)
    if shutil.which("dmtcp_launch") is None:
        print("bench: no DMTCP: it is not installed", file=sys.stderr)
    else:
        found["DMTCP"] = dmtcp
    return found


def dmtcp(work: Path, number: int) -> None:
    """A process that has the file in memory and open, as DMTCP knows no files by themselves."""
    if number == 0:
        text = "import mmap,sys,time; f=open(sys.argv[1],'rb'); held=f.read(); time.sleep(3600)"
        quiet("dmtcp_launch", "--new-coordinator", "--daemon", "--ckptdir", str(work.parent), sys.executable, "-c",
              text, str(work / "data"))
    quiet("dmtcp_command", "--bcheckpoint")
    if number == STATES - 1:
        quiet("dmtcp_command", "--kill")


def used(folder: Path) -> float:
    """Bytes that the filesystem counts as taken."""
    state = os.statvfs(folder)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def one_run(name: str, size_mib: int, args: argparse.Namespace) -> measure.Numbers:
    chance = random.Random(size_mib)
    with measure.fresh_folder(args.dir) as folder:
        work, keep = folder / "work", there(folder)[name]
        quiet("btrfs", "subvolume", "create", str(work)) if name == "btrfs snapshot" else work.mkdir()
        with open(work / "data", "wb", buffering=0) as file:
            for _ in range(size_mib):
                file.write(os.urandom(1 << 20))
            os.sync()
            took, before = [], used(folder)
            for number in range(STATES):
                for _ in range(256):
                    os.pwrite(file.fileno(), os.urandom(4096), chance.randrange(size_mib * 256) * 4096)
                started = time.monotonic()
                keep(work, number)
                took.append((time.monotonic() - started) * 1000)
        os.sync()
        return {"keep a state, ms": measure.median(took), "MiB per state": (used(folder) - before) / STATES / 2**20}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    kinds = {f"{name}, {size} MiB": (lambda name=name, size=size: one_run(name, size, args))
             for name in there(args.dir) for size in args.sizes}
    return measure.alternate(kinds, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    metrics = list(next(iter(results.values())))
    return table.render(["", *metrics], [[name, *(table.number(measure.median(series[metric])) for metric in metrics)]
                                         for name, series in results.items()])
