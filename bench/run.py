"""``python -m bench NAME``: run one bench, print its table, write its JSON and its picture. ``all``: every one of
them into one JSON; ``show FILE``: print and draw a JSON again."""
from __future__ import annotations

import argparse
import json
import sys
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
    kept,
    levels,
    machine,
    measure,
    memory,
    peers,
    plot,
    programs,
)

BENCHES: dict[str, Any] = {
    "bonnie": bonnie, "breakdown": breakdown, "calls": calls, "fio": disk, "kept": kept, "exec": exec_cost,
    "programs": programs, "checkpoint": checkpoint, "growth": growth, "memory": memory, "levels": levels,
    "peers": peers}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = top.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in BENCHES.items():
        text = module.__doc__ or ""
        one = names.add_parser(name, help=text.splitlines()[0], description=text,
                               formatter_class=argparse.RawDescriptionHelpFormatter)
        common(one)
        if name == "bonnie":
            one.add_argument("--size", default="2g", help="size of Bonnie++'s file: 2g, 512m (2g)")
        module.arguments(one)
    every = names.add_parser("all", help="every bench with its own defaults, into one JSON")
    common(every)
    every.add_argument("--without", default="", metavar="NAME,...", help="benches to leave out")
    again = names.add_parser("show", help="print and draw what a JSON holds")
    again.add_argument("file", type=Path)
    return top


def common(one: argparse.ArgumentParser) -> None:
    one.add_argument("--rounds", type=int, default=5, help="how often every variant runs (5)")
    one.add_argument("--dir", type=Path, default=Path("/tmp"), help="folder on the filesystem to measure (/tmp)")
    one.add_argument("--out", type=Path, help="the JSON file (bench/results/NAME.json)")


def document(args: argparse.Namespace) -> dict[str, Any]:
    """Run one bench: what its JSON says."""
    where = machine.description(args.dir)
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
        show(each, file.with_name(f"{file.stem}-{each['bench']}.svg" if "benches" in found else f"{file.stem}.svg"))


def save(out: Path, found: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def run_all(args: argparse.Namespace, out: Path) -> int:
    """One after the other; each is saved as soon as it is done, and one that fails keeps no other from running."""
    done: list[dict[str, Any]] = []
    failures = 0
    for name in BENCHES:
        if name in args.without.split(","):
            continue
        words = [name, "--rounds", str(args.rounds), "--dir", str(args.dir)]
        try:
            done.append(document(parser().parse_args(words)))
        except (measure.Failed, SystemExit) as failure:
            print(f"bench: {name}: {failure}", file=sys.stderr)
            failures += 1
            continue
        save(out, {"schema": 1, "benches": done})
    if done:
        show_file(out)
    return 1 if failures else 0


def main() -> int:
    args = parser().parse_args()
    if args.name == "show":
        show_file(args.file)
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
