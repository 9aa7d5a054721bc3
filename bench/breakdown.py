"""Where the instructions of redirected writes and reads go, by the steps of the thesis's tables 5.3-5.8.

Counted by callgrind from outside, so that the library holds no counter and costs nothing more when nobody measures.
What the kernel does inside a system call is not in it: the number of calls is.
"""
from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

from bench import measure, table

# step -> functions of the preload library; each function's own calls are counted in it
STEPS = {
    "whole call": ("write", "pwrite", "read", "pread"),
    "search (block table)": ("mm_table_get",),
    "map update (block table)": ("mm_table_set",),
    "create (buffer blocks)": ("mm_take_blocks", "mm_blocks_take"),
    "extend (run area, room)": ("mm_reserve", "grow"),
    "copy up (part of a block)": ("copy_up",),
    "swap (out of the cache)": ("mm_cache_evict", "mm_cache_write_back", "mm_frame_write_back", "mm_cache_drop"),
    "into the cache": ("mm_frame_take",),
    "write to the disk buffer or the cache": ("mm_buffer_write",),
    "read from the disk buffer or the cache": ("mm_buffer_read",),
}
SIZES = (1, 100, 512, 4096, 8192, 65536)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file-size", type=int, default=4, metavar="MIB", help="size of the file (4)")


def counted(text: str) -> dict[str, tuple[int, int]]:
    """Function -> calls, and instructions with those of its callees; from the text that callgrind writes."""
    names: dict[str, str] = {}
    found: dict[str, tuple[int, int]] = {}
    callee, calls = "", 0
    for line in text.splitlines():
        if line.startswith("cfn="):
            number, _, name = line[4:].partition(" ")
            names.setdefault(number, name) if name else None
            callee = re.sub(r"'\d+$", "", names[number])
        elif line.startswith("fn="):
            number, _, name = line[3:].partition(" ")
            names.setdefault(number, name) if name else None
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif calls:
            old = found.get(callee, (0, 0))
            found[callee] = (old[0] + calls, old[1] + int(line.split()[1]))
            calls = 0
    return found


def one_run(size: int, program: Path, args: argparse.Namespace) -> measure.Numbers:
    with measure.fresh_folder(args.dir) as folder:
        data, store, out = folder / "data", folder / "store", folder / "callgrind"
        data.write_bytes(bytes(args.file_size << 20))
        # the checkpoint finds that valgrind's own static program, for whose life files stay in place, is gone
        first = shlex.join([measure.metamori(), "checkpoint", "--store", str(store)]) + " > /dev/null"
        command = [measure.metamori(), "run", "--store", str(store), "--", "valgrind", "-q", "--tool=callgrind",
                   f"--callgrind-out-file={out}", str(program), str(data), str(args.file_size), str(size), first]
        measure.timed(command, folder)
        found = counted(out.read_text())
    whole = sum(found.get(name, (0, 0))[0] for name in STEPS["whole call"]) or 1
    numbers: measure.Numbers = {}
    for step, functions in STEPS.items():
        numbers[f"{step}: calls"] = sum(found.get(name, (0, 0))[0] for name in functions) / whole
        numbers[f"{step}: instructions"] = sum(found.get(name, (0, 0))[1] for name in functions) / whole
    return numbers


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder:
        program = measure.compiled("calls", folder)
        return measure.alternate({f"{size} B": (lambda size=size: one_run(size, program, args)) for size in SIZES}, 1)


def show(results: dict[str, measure.Series]) -> str:
    rows = []
    for metric in next(iter(results.values())):
        rows.append([metric, *(table.number(measure.median(series[metric])) for series in results.values())])
    return table.render(["per call of the program", *results], rows)
