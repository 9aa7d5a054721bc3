"""Programs without the preload library: a notified call, what is not notified, and the start of such a program.

`limit`: the same calls and starts, notified to a process that opens the file for the program, and of the other calls
only says that the kernel makes them.
The first such program of a run starts the process that makes the calls: dd waits until that has come to rest.
"""
from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from bench import measure, table

CALLS = ("open for writing, us", "chmod, us", "mkdir or rmdir, us", "round trip by pipes, us")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=2000, help="how often each call is made (2000)")
    parser.add_argument("--file-size", type=int, default=256, metavar="MIB", help="what dd and sha256sum work on (256)")


def one_run(tracked: bool, args: argparse.Namespace, *command: str) -> measure.Finished:
    with measure.fresh_folder(args.dir) as folder:
        words = [measure.metamori(), "run", "--store", str(folder / "store"), "--"] if tracked else []
        return measure.timed([*words, *command], folder)


def numbers(tracked: bool, starter: Path, program: Path, args: argparse.Namespace) -> measure.Numbers:
    found = dict(zip(CALLS, map(float, one_run(tracked, args, str(program), str(args.count)).output.split())))
    words = str(starter), "starts", str(max(args.count // 5, 2)), str(program)
    found["exec, ms"] = float(one_run(tracked, args, *words).output)
    if busybox := shutil.which("busybox"):
        dd = f"{busybox} dd if=/dev/zero of=f bs=1M count={args.file_size} 2> /dev/null"
        script = f"{starter} time {program} 0; sleep 0.5; {program} time {busybox} sh -c '{dd}'; " \
                 f"{program} time {busybox} sha256sum f"
        lines = [line.split() for line in one_run(tracked, args, "sh", "-c", script).output.splitlines()]
        times = [[float(word) for word in words] for words in lines if words[0].replace(".", "").isdigit()]
        for name, (wall, processor) in zip(("first", "dd", "sha256sum"), times, strict=True):
            found[f"{name}, ms"], found[f"{name}, CPU ms"] = wall, processor
        del found["first, CPU ms"]
    return found


def limits(program: Path, args: argparse.Namespace) -> measure.Numbers:
    output = one_run(False, args, str(program), "limit", str(args.count)).output
    return dict(zip([*CALLS, "exec, ms"], map(float, output.split())))


def run(args: argparse.Namespace) -> dict[str, measure.Series]:
    with measure.fresh_folder(args.dir) as folder, measure.fresh_folder(args.dir) as other:
        program, starter = measure.compiled("notified", folder, "-static"), measure.compiled("notified", other)
        return measure.alternate({"native": lambda: numbers(False, starter, program, args),
                                  "limit": lambda: limits(program, args),
                                  "metamori": lambda: numbers(True, starter, program, args)}, args.rounds)


def show(results: dict[str, measure.Series]) -> str:
    rows = []
    for metric in results["native"]:
        native, ours = (measure.median(results[kind][metric]) for kind in ("native", "metamori"))
        limit = results.get("limit", {}).get(metric)
        rows.append([metric, table.number(native), f"{measure.median(limit) - native:+.2f}" if limit else "",
                     table.number(ours), f"{ours - native:+.2f}", table.ratio(native, ours)])
    return table.render(["", "native", "limit", "metamori", "added", ""], rows)
