"""Random programs, killed at random moments, in stores that are then restored, pruned and killed again.

    python tests/soak/soak.py SECONDS [FIRST_SEED]

In every second program several processes act, in every second one several threads, by turns and at once. Every third
store has the history of three runs that go back many times.
For SECONDS: every checkpoint that was acknowledged and not pruned has to come back byte for byte, every store has
to verify. After every fourth program some thousand pairs of calls are played in lockstep. A failure prints its seed and
stops with status 1; the last line is what was done.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "model"), str(HERE.parent / "scenarios")]

from honest import assert_honest, tree_of  # noqa: E402
from lab import ROOT, Lab  # noqa: E402
from pairs import MODES, SETS, build, elsewhere, play  # noqa: E402
from programs import program  # noqa: E402
from test_branches import several_runs  # noqa: E402
from test_interrupted import Trees, flooded_lines  # noqa: E402
from world import World  # noqa: E402

OPTIONS: list[list[str]] = [
    [], ["--isolate"], ["--cache-size", "0"], ["--keep-last", "3"], ["--isolate", "--keep-last", "2"],
    ["--durability", "process"], ["--max-bytes", "400K"],
]


def window(options: list[str]) -> int:
    """How far back the program itself may go."""
    if "--keep-last" in options:
        return int(options[options.index("--keep-last") + 1])
    return 1 if "--max-bytes" in options else 0


def fitting(lines: list[str], back: int) -> list[str]:
    world = World(True, back)
    return [line for line in lines if world.apply(line) is not None]


def killed_verb(lab: Lab, rng: random.Random, done: Counter[str], *words: object) -> None:
    process = subprocess.Popen(lab.argv(str(words[0]), *words[1:]), cwd=lab.folder, env=lab.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(rng.uniform(0.05, 0.6))
    except subprocess.TimeoutExpired:
        process.kill()
        done[f"{words[0]} killed"] += 1
    process.wait()


def check(lab: Lab, rng: random.Random, trees: Trees, done: Counter[str]) -> None:
    there = {entry["index"] for entry in lab.log()["checkpoints"]}
    for index in rng.sample(sorted(trees), min(3, len(trees))):
        if rng.random() < 0.3:
            killed_verb(lab, rng, done, "restore", rng.choice(sorted(there)))
        if index in there:
            lab.restore(index)
            assert tree_of(lab.work) in trees[index], f"restore {index}"
            done["restores"] += 1
        else:
            lab.restore(index, code=13)
    assert_honest(lab.store, lab.work, {index: tree for index, tree in trees.items() if index in there})
    done["indexes read"] += len(there & trees.keys())


def once(seed: int, driver: Path, done: Counter[str]) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="metamori-soak-") as folder:
        lab = Lab(Path(folder), driver)
        try:
            if rng.random() < 0.3:
                several_runs(lab, seed, rng.randrange(100, 500))
                done["trees of several runs"] += 1
                return
            options = rng.choice(OPTIONS)
            several, threads = rng.random() < 0.5, rng.random() < 0.5
            made = program(seed, 1200, several=several, threads=threads, deadly=False)
            lines = fitting(made, window(options))
            done["with several"] += several or threads
            trees, _, _ = flooded_lines(lab, lines, options, rng.uniform(0.05, 3.0))
            done["runs killed"] += 1
            done["checkpoints"] += len(trees)
            newest = max(entry["index"] for entry in lab.log()["checkpoints"])
            pruned = {"--keep-last", "--max-bytes"} & set(options)
            there = {entry["index"] for entry in lab.log()["checkpoints"]}
            assert pruned or set(trees) <= there, sorted(set(trees) - there)
            check(lab, rng, trees, done)
            if rng.random() < 0.5 and trees:
                killed_verb(lab, rng, done, "prune", "--keep-last", rng.randrange(1, 5))
                lab.verb("prune", "--keep-last", rng.randrange(1, 5))
                done["prunes"] += 1
                check(lab, rng, trees, done)
            assert max(entry["index"] for entry in lab.log()["checkpoints"]) >= newest
        finally:
            lab.close()


def pairs(seed: int, program: Path, done: Counter[str]) -> None:
    """Calls in lockstep (tests/pairs.py), in one of the modes."""
    rng = random.Random(seed)
    which, mode, sides = rng.choice(SETS), rng.choice(sorted(MODES)), rng.choice(["threads", "processes"])
    with tempfile.TemporaryDirectory(prefix="metamori-soak-") as folder, elsewhere() as other:
        lab = Lab(Path(folder), program)
        if rng.random() < 0.5:
            lab.store = Path(other, "store")
        done[f"pairs of {which}, {mode}"] += play(lab, program, which, mode, sides, seed, 400, 4)


def main(words: list[str]) -> int:
    seconds, seed = float(words[0]), int(words[1]) if len(words) > 1 else 1
    first, done, begin = seed, Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="metamori-soak-") as folder:
        driver = Path(folder) / "driver"
        sources = sorted(map(str, (HERE.parent / "programs").glob("driver*.c")))
        subprocess.run(["gcc", "-w", "-O1", f"-I{ROOT}/shim_c/include", *sources, "-o", str(driver)], check=True)
        program = build(Path(folder))
        while time.monotonic() - begin < seconds:
            try:
                once(seed, driver, done)
                if seed % 4 == 0:
                    pairs(seed, program, done)
            except AssertionError as failure:
                print(f"seed {seed}: {str(failure)[:2000]}")
                return 1
            seed += 1
    print(json.dumps({"seconds": round(time.monotonic() - begin), "seeds": [first, seed - 1], **done}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
