"""``python -m bench NAME``: run one bench, print its table, write its JSON and its picture. ``all``: every one of
them into one JSON; ``show FILE``: print and draw a JSON again; ``rows FILE``: the page of figures to reach."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import (
    bonnie,
    breakdown,
    calls,
    checkpoint,
    disk,
    exec_cost,
    growth,
    job,
    kept,
    levels,
    machine,
    measure,
    memory,
    mounts,
    names,
    peers,
    plan,
    plot,
    programs,
    rows,
    static,
)

BENCHES: dict[str, Any] = {
    "bonnie": bonnie, "breakdown": breakdown, "calls": calls, "fio": disk, "kept": kept, "exec": exec_cost,
    "static": static, "names": names,
    "programs": programs, "checkpoint": checkpoint, "growth": growth, "memory": memory, "levels": levels,
    "peers": peers, "job": job}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    verbs = top.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in BENCHES.items():
        text = module.__doc__ or ""
        one = verbs.add_parser(name, help=text.splitlines()[0], description=text,
                               formatter_class=argparse.RawDescriptionHelpFormatter)
        common(one)
        if name == "bonnie":
            one.add_argument("--size", default="2g", help="size of Bonnie++'s file: 2g, 512m (2g)")
        module.arguments(one)
    every = verbs.add_parser("all", help="every bench with its own defaults, into one JSON")
    common(every)
    every.add_argument("--without", default="", metavar="NAME,...", help="benches and filesystems to leave out")
    every.add_argument("--form", choices=("full", "quick", "tiny"), default="full",
                       help="full: hours, on --dir; quick: 25 minutes, on four filesystems; tiny: a trial (full)")
    every.add_argument("--resume", action="store_true",
                       help="go on after the steps that --out has of this commit, machine, form and rounds")
    page = verbs.add_parser("rows", help="the rows of DESIGN 8 that a JSON of `all` has, as a page of the manual")
    page.add_argument("file", type=Path)
    page.add_argument("--into", type=Path, help="the page (standard output)")
    again = verbs.add_parser("show", help="print and draw what a JSON holds")
    again.add_argument("file", type=Path)
    return top


def common(one: argparse.ArgumentParser) -> None:
    one.add_argument("--rounds", type=int, default=0, help="how often every variant runs (5; quick: 3)")
    one.add_argument("--dir", type=Path, default=Path("/tmp"), help="folder on the filesystem to measure (/tmp)")
    one.add_argument("--out", type=Path, help="the JSON file (bench/results/NAME.json)")


def document(args: argparse.Namespace) -> dict[str, Any]:
    """Run one bench: what its JSON says."""
    where = machine.description(args.dir)
    args.rounds = args.rounds or plan.ROUNDS["full"]
    results = BENCHES[args.name].run(args)
    options = {key: str(value) for key, value in vars(args).items() if key not in ("name", "out")}
    return {"schema": 1, "bench": args.name, "options": options, "machine": where,
            "results": {name: measure.summary(series) for name, series in results.items()}}


def show(found: dict[str, Any], picture: Path) -> None:
    """Print a document's table and write its picture."""
    where = found["machine"]
    print(f"\n{found['bench']}, {found['options']['rounds']} rounds, medians; {where['processor']}, "
          f"{where['cores']} cores, Linux {where['kernel']}, {where['filesystem']}, commit {where['commit']}\n")
    results = {name: {metric: value["all"] for metric, value in series.items()}
               for name, series in found["results"].items()}
    print(BENCHES[found["bench"]].show(results))
    picture.write_text(plot.svg(found))
    print(f"\npicture: {picture}", flush=True)


def show_file(file: Path) -> None:
    found = json.loads(file.read_text())
    for each in found.get("benches", [found]):
        more = f"-{each['bench']}-{each['machine']['filesystem']}" if "benches" in found else ""
        show(each, file.with_name(f"{file.stem}{more}.svg"))


def save(out: Path, found: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def one_step(name: str, where: str, words: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """One bench of `all`, on the filesystem that it asks for."""
    if not where:
        return document(parser().parse_args([name, "--rounds", str(args.rounds), "--dir", str(args.dir), *words]))
    with mounts.filesystem(where, args.dir) as folder:
        return document(parser().parse_args([name, "--rounds", str(args.rounds), "--dir", str(folder), *words]))


FAILURES = (measure.Failed, mounts.Missing, SystemExit, OSError, subprocess.SubprocessError, ValueError, LookupError)


def finished(out: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """What an earlier `all` that was cut off has done of the same measurement: commit, machine, form and rounds."""
    if not args.resume or not out.exists():
        return []
    found, here = json.loads(out.read_text()), machine.description(args.dir)
    same = ("commit", "processor", "cores", "kernel", "memory_gib")
    return [each for each in found.get("benches", []) if found.get("form") == args.form and "step" in each
            and each["options"]["rounds"] == str(args.rounds)
            and all(each["machine"][key] == here[key] for key in same)]


def run_all(args: argparse.Namespace, out: Path) -> int:
    """One after the other; each is saved as soon as it is done, and one that fails keeps no other from running."""
    failures, began = 0, time.monotonic()
    args.rounds = args.rounds or plan.ROUNDS[args.form]
    done = finished(out, args)
    for name, where, words in plan.steps(args.form, BENCHES, args.without.split(",")):
        step, started = " ".join([name, where, *words]), time.monotonic()
        if any(each["step"] == step for each in done):
            continue
        print(f"bench: after {started - began:.0f} s: {step}", file=sys.stderr, flush=True)
        try:
            one = one_step(name, where, words, args)
        except FAILURES as failure:
            print(f"bench: {name} {where}: {failure or type(failure).__name__}", file=sys.stderr)
            failures += 1
            continue
        done.append(one | {"step": step, "seconds": round(time.monotonic() - started)})
        save(out, {"schema": 1, "form": args.form, "benches": done})
    if done:
        show_file(out)
    return 1 if failures else 0


def main() -> int:
    args = parser().parse_args()
    if args.name == "show":
        show_file(args.file)
        return 0
    if args.name == "rows":
        text = rows.page(json.loads(args.file.read_text()))
        args.into.write_text(text) if args.into else print(text)
        return 0
    out = args.out or Path(__file__).parent / "results" / f"{args.name}.json"
    if args.name == "all":
        return run_all(args, out)
    try:
        save(out, document(args))
    except measure.Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    show_file(out)
    print(f"all values: {out}")
    return 0
