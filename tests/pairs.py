"""Pairs of calls in lockstep (tests/programs/pairs.c): played in a run, then judged natively and index by index.

    python tests/pairs.py SET MODE SIDES PLACE SEED WORLDS PHASES [OPTION...]

plays some by hand: `pairs.py names isolated threads here 1 500 4`, and

    python tests/pairs.py many COUNT [SEED]

(`make pairs`) so many of each set in each mode, by threads and processes, with the store here and elsewhere.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from lab import Lab

MODES: dict[str, list[str]] = {"default": [], "isolated": ["--isolate"], "single": ["--mode", "single"]}
SETS = ["names", "data"]
ELSEWHERE = "/dev/shm"  # another filesystem than the temporary folder's, as a rule


class Wrong(AssertionError):
    """What was found, with a message."""


def _states(lines: list[str]) -> dict[int, list[str]]:
    """By index: the state of each world."""
    found: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        if line.startswith("state "):
            _, index, rest = line.split(" ", 2)
            found[int(index)].append(rest)
    return dict(found)


def _unlike(have: list[str], want: list[str]) -> str:
    differing = [f"have {one}\nwant {other}" for one, other in zip(have, want) if one != other]
    if len(have) != len(want):
        differing.append(f"{len(have)} worlds, want {len(want)}")
    return f"{len(differing)} worlds differ\n" + "\n".join(differing[:2]) if differing else ""


def play(
    lab: Lab, program: Path, which: str, mode: str, sides: str, seed: int, worlds: int, phases: int,
    *options: str, env: dict[str, str] | None = None, timeout: float = 600,
) -> int:  # fmt: skip
    """Plays worlds * phases pairs in a run, then judges them. How many were played; raises Wrong."""
    numbers = [str(seed), str(worlds), str(phases)]
    done = lab.run([program, "run", which, sides, *numbers], *MODES[mode], *options, timeout=timeout, env=env)
    if done.returncode:
        raise Wrong(f"the run ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    problems = _judge_results(program, which, sides, numbers, done.stdout, timeout)
    lines = done.stdout.decode().splitlines()
    problems += _judge_indexes(lab, program, worlds, _states(lines), mode)
    if problems:
        raise Wrong(f"{which} {mode} {sides} {numbers}: " + "\n\n".join(problems))
    return worlds * phases


def _judge_results(
    program: Path, which: str, sides: str, numbers: list[str], output: bytes, timeout: float
) -> list[str]:  # fmt: skip
    with tempfile.TemporaryDirectory(dir=ELSEWHERE if os.path.isdir(ELSEWHERE) else None) as folder:
        judged = subprocess.run([program, "oracle", which, sides, *numbers], cwd=folder, input=output,
                                capture_output=True, timeout=timeout, check=False)  # fmt: skip
    return [judged.stdout.decode()[-6000:] + judged.stderr.decode()] if judged.returncode else []


def _picture(program: Path, worlds: int, folder: Path) -> list[str]:
    done = subprocess.run([program, "picture", str(worlds)], cwd=folder, capture_output=True, text=True, check=True)
    return _states(done.stdout.splitlines())[0]


def _judge_indexes(lab: Lab, program: Path, worlds: int, states: dict[int, list[str]], mode: str) -> list[str]:
    """Every index by `restore --to`, and the folder that the run left."""
    last, problems = max(states), []
    wrong = _unlike(_picture(program, worlds, lab.work), states[last])
    if wrong:
        problems.append(f"what the run left: {wrong}")
    end = {last + 1: states[last]}         # of the run
    for index, want in (end if mode == "single" else states | end).items():
        copy = lab.folder / f"copy.{index}"
        done = lab.verb("restore", index, "--to", copy, code=None)
        if done.returncode:
            problems.append(f"restore {index} --to: {done.returncode}: {done.stderr[-1500:]}")
            continue
        top = next(copy.rglob("w0"), copy / "w0").parent
        wrong = _unlike(_picture(program, worlds, top), want)
        if wrong:
            problems.append(f"restore {index} --to: {wrong}")
        shutil.rmtree(copy)
    done = lab.verb("verify", code=None)
    if done.returncode:
        problems.append(f"verify: {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return problems


def elsewhere() -> tempfile.TemporaryDirectory[str]:
    """A folder for a store on another filesystem."""
    return tempfile.TemporaryDirectory(dir=ELSEWHERE, prefix="metamori-pairs-")


def build(folder: Path) -> Path:
    """The program, for those who have no fixtures."""
    from conftest import PARTS, PROGRAMS, QUIET
    from lab import ROOT

    result = folder / "pairs"
    sources = [str(PROGRAMS / f"{part}.c") for part in PARTS["pairs"]]
    command = ["gcc", "-O1", *QUIET, f"-I{ROOT}/shim_c/include", *sources, "-pthread", "-o", str(result)]
    subprocess.run(command, check=True)
    return result


def many(count: int, seed: int) -> int:
    """The ways take turns, so that one who stops early has seen all; goes on after a find; prints counts."""
    ways = list(itertools.product(SETS, MODES, ("threads", "processes"), ("here", "elsewhere")))
    done, wrong, worlds, phases = Counter[str](), 0, 250, 5
    with tempfile.TemporaryDirectory(prefix="metamori-pairs-") as folder:
        program = build(Path(folder))
        while any(done[f"{which} {mode}"] < count for which, mode, _, _ in ways):
            for which, mode, sides, place in ways:
                if done[f"{which} {mode}"] < count:
                    try:
                        done[f"{which} {mode}"] += once(program, which, mode, sides, place, seed, worlds, phases)
                    except Wrong as found:
                        wrong += 1
                        print(f"WRONG: {which} {mode} {sides} {place} {seed} {worlds} {phases}: {found}", flush=True)
            print(json.dumps({"seed": seed, "wrong": wrong, **done}), flush=True)
            seed += 1
    return wrong != 0


def once(
    program: Path, which: str, mode: str, sides: str, place: str, seed: int, worlds: int, phases: int, *options: str
) -> int:  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="metamori-pairs-") as folder, elsewhere() as other:
        lab = Lab(Path(folder), Path())
        if place == "elsewhere":
            lab.store = Path(other, "store")
        return play(lab, program, which, mode, sides, seed, worlds, phases, *options)


def main(words: list[str]) -> int:
    if words[0] == "many":
        return many(int(words[1]), int(words[2]) if len(words) > 2 else 1)
    which, mode, sides, place, seed, worlds, phases = (*words[:4], *map(int, words[4:7]))
    with tempfile.TemporaryDirectory(prefix="metamori-pairs-") as folder:
        try:
            print(once(build(Path(folder)), which, mode, sides, place, seed, worlds, phases, *words[7:]), "pairs")
        except Wrong as wrong:
            print(wrong)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
