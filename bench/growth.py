"""A store that grows: opening it, its log, a comparison, against the number of checkpoints, files and ranges.

CPU seconds, since reading a store that the page cache holds waits for nothing. The store is made by the package's own
code, without a program; there is no native side. Then the same of programs and verbs as users run them (growth_use.py).
"""
from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

from bench import growth_use, measure, table

SIZES = ((10, 100, 10_000), (100, 1_000, 100_000), (1_000, 10_000, 1_000_000))
FILE_BYTES = 1 << 24
VERBS = {"open": "store.history", "newest state": "store.state(store.newest)",
         "diff with the one before": "list(compare(store, store.newest - 1, store.newest, exact=False))",
         "diff with the first": "list(compare(store, 1, store.newest, exact=False))"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--largest", type=int, default=len(SIZES), choices=range(1, len(SIZES) + 1),
                        help="how many of the sizes, smallest first")
    parser.add_argument("--only-largest", action="store_true", help="of them, the largest only")


def make(path: Path, checkpoints: int, files: int, ranges: int) -> None:
    """Each checkpoint sees new files and redirects 4 KiB blocks of some of those known."""
    from metamori.store.format.records import NO_LIMIT, Meta, NameEntry, OffsetEntry, Offsets, PifEntry
    from metamori.store.read.store import Store

    chance, block, known, home = random.Random(1), 16, 0, path.with_name(f"{path.name}.files")
    home.mkdir()
    with Store.create_or_open(str(path)) as store:
        run, process = store.next_run(), store.next_process()

        def file(inode: int, mtime_ns: int) -> PifEntry:
            return PifEntry(inode, 1, inode, 5, 1, bytes(home / str(inode)), 0, 0, FILE_BYTES, NO_LIMIT, FILE_BYTES,
                            0o100644, 0, 0, mtime_ns, b"")

        for each in range(1, files + 1):
            with open(home / str(each), "wb") as made:
                made.truncate(FILE_BYTES)
        for index in range(1, checkpoints + 1):
            new = range(known + 1, known + files // checkpoints + 1)
            known = new[-1]
            touched = sorted(chance.sample(range(1, known + 1), min(known, 20)))
            entries = []
            for inode in touched:
                for at in sorted(chance.sample(range(FILE_BYTES // 4096), ranges // checkpoints // len(touched))):
                    entries.append(OffsetEntry(inode, process, at << 12, at + 1 << 12, block << 12, block + 1 << 12,
                                               index))
                    block += 1
            meta = Meta(index, index - 1, index, "", "bench", run, process,
                        initial_names=tuple(NameEntry(bytes(home / str(each)), "file", each, 0o100644) for each in new),
                        pifs=tuple(file(inode, index) for inode in touched),
                        initial_pifs=tuple(file(inode, 1) for inode in new))
            store.commit_checkpoint(meta, Offsets(index, process, run, tuple(entries)), durable=False)
        with open(store.layout.buffer(run), "wb") as buffer:
            buffer.truncate(block << 12)   # a hole, as long as the records say
        store.set_head(checkpoints, durable=False)


def cpu_s(path: Path, what: str) -> float:
    """Of one expression on a store just opened, in a Python of its own."""
    text = ("import sys, time\nfrom metamori.store.read.store import Store\n"
            "from metamori.store.read.compare import compare\n"
            f"start = time.process_time()\nstore = Store.open(sys.argv[1])\n{what}\nprint(time.process_time() - start)")
    done = subprocess.run([sys.executable, "-c", text, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise measure.Failed(done.stderr[-600:])
    return float(done.stdout)


def one_run(stores: dict[str, Path], name: str) -> measure.Numbers:
    path = stores[name]
    found = {f"{verb}, CPU s": cpu_s(path, what) for verb, what in VERBS.items()}
    log = measure.timed([measure.metamori(), "log", "--store", str(path)], path.parent)
    return found | {"metamori log, CPU s": log.cpu_s, "metamori log, peak MiB": log.peak_mib}


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        stores = {}
        for checkpoints, files, ranges in SIZES[:args.largest][-1 if args.only_largest else 0:]:
            name = f"{checkpoints:,} checkpoints, {files:,} files, {ranges:,} ranges"
            stores[name] = folder / str(checkpoints)
            make(stores[name], checkpoints, files, ranges)
        runs = {name: (lambda name=name: one_run(stores, name)) for name in stores}
        for name, (path, count) in growth_use.variants(folder, args.largest, args.only_largest).items():
            runs[name] = lambda path=path, count=count: growth_use.one_run(path, count)
        return measure.alternate(runs, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, series in results.items():
        kinds.setdefault(tuple(series), []).append(name)
    return "\n\n".join(
        table.render(["metric", *names],
                     [[metric, *(table.number(measure.median(results[name][metric])) for name in names)]
                      for metric in metrics]) for metrics, names in kinds.items())
