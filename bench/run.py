"""``python -m bench NAME``: run one bench, print its table, write its JSON."""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench import bonnie, calls, checkpoint, exec_cost, levels, machine, measure, memory, programs

BENCHES = {"bonnie": bonnie, "calls": calls, "exec": exec_cost, "checkpoint": checkpoint,
           "memory": memory, "levels": levels, "programs": programs}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = top.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in BENCHES.items():
        text = module.__doc__ or ""
        one = names.add_parser(name, help=text.splitlines()[0], description=text,
                               formatter_class=argparse.RawDescriptionHelpFormatter)
        one.add_argument("--rounds", type=int, default=5, help="how often every variant runs (5)")
        one.add_argument("--dir", type=Path, default=Path("/tmp"),
                         help="folder on the filesystem to measure (/tmp)")
        one.add_argument("--out", type=Path, help="the JSON file (bench/results/NAME.json)")
        if name == "bonnie":
            one.add_argument("--size", default="2g", help="size of Bonnie++'s file: 2g, 512m (2g)")
        module.arguments(one)
    return top


def main() -> int:
    args = parser().parse_args()
    bench = BENCHES[args.name]
    where = machine.description(args.dir)
    try:
        results = bench.run(args)
    except measure.Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    options = {key: str(value) for key, value in vars(args).items() if key not in ("name", "out")}
    document = {"schema": 1, "bench": args.name, "options": options, "machine": where,
                "results": {name: measure.summary(series) for name, series in results.items()}}
    out = args.out or Path(__file__).parent / "results" / f"{args.name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{args.name}, {args.rounds} rounds, medians; {where['processor']}, {where['cores']} cores, "
          f"Linux {where['kernel']}, {where['filesystem']}, commit {where['commit']}\n")
    print(bench.show(results))
    print(f"\nall values: {out}")
    return 0
