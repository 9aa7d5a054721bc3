"""Plays a program on the driver beside the model; makes a failing program small.

By hand: `python tests/model/player.py SEED [LENGTH] [OPTION...]`; natively with --native;
several processes with --several, several threads with --threads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from lab import ROOT, Lab, Session  # noqa: E402
from programs import program  # noqa: E402
from world import World  # noqa: E402


@dataclass
class Played:
    """What came of a program: the model at its end, and each checkpoint's index and expected files."""

    world: World
    checkpoints: list[tuple[int, str]]
    cuts: list[tuple[int, frozenset[str]]]  # a checkpoint amid several threads' calls, and what it may show


class Mismatch(AssertionError):
    pass


def play(session: Session, lines: Sequence[str], restorable: bool = True, window: int = 0) -> Played:
    """Asks line by line and compares; raises Mismatch with the lines so far at the first difference."""
    world = World(restorable, window)
    checkpoints: list[tuple[int, str]] = []
    cuts: list[tuple[int, frozenset[str]]] = []
    for number, line in enumerate(lines):
        want = world.apply(line)
        if want is None:
            continue
        try:
            have = session.ask(line)
        except AssertionError as died:
            raise Mismatch(f"line {number}: {line}\n  {died}") from None
        newest = max((index for index, _ in [*checkpoints, *cuts]), default=0)
        if want == "index" and have.isdigit() and int(have) > newest:
            checkpoints.append((int(have), world.state.names.tree()))
        elif " ; " in want and len(world.cuts) > len(cuts):
            index = have.split(" ; ")[want.split(" ; ").index("index")]
            if have != want.replace("index", index) or not index.isdigit() or int(index) <= newest:
                raise Mismatch(f"line {number}: {line}\n  have {have}\n  want {want}")
            cuts.append((int(index), world.cuts[-1]))
        elif have != want:
            raise Mismatch(f"line {number}: {line}\n  have {_only(have, want)}\n  want {_only(want, have)}")
    return Played(world, checkpoints, cuts)


def _only(one: str, other: str) -> str:
    """Of a long answer, the words that the other one lacks."""
    if len(one) < 200:
        return one
    return " ".join(word for word in one.split() if word not in other.split()) or "(nothing of its own)"


def smaller(lines: list[str], fails: Callable[[list[str]], bool], rounds: int = 400) -> list[str]:
    """Delta debugging: leaves out chunks as long as the rest still fails."""
    size = len(lines) // 2
    while size and rounds:
        at = 0
        while at < len(lines) and rounds:
            shorter = lines[:at] + lines[at + size :]
            rounds -= 1
            if fails(shorter):
                lines = shorter
            else:
                at += size
        size //= 2
    return lines


def attempt(driver: Path, lines: Sequence[str], options: Sequence[str], native: bool = False) -> str:
    """Plays in a fresh laboratory; the mismatch, or nothing."""
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        lab = Lab(Path(folder), driver)
        try:
            session = lab.start(*options, native=native)
            played = play(session, lines, not native)
            status = session.end()
            if status:
                return f"exit status {status}: {session.stderr()}"
            reader = lab.start(native=True)
            have, want = reader.ask("tree"), played.world.state.names.tree()
            if have != want:
                return f"after the end\n  have {_only(have, want)}\n  want {_only(want, have)}"
            if native:
                return ""
            trees = [(index, frozenset([tree])) for index, tree in played.checkpoints]
            for index, possible in sorted(trees + played.cuts, reverse=True):
                lab.restore(index)
                have = reader.ask("tree")
                if have not in possible:
                    near = min(possible, key=lambda tree: len(_only(tree, have)))
                    return f"restore {index}\n  have {_only(have, near)}\n  want {_only(near, have)}"
            return ""
        except AssertionError as failure:
            return str(failure)
        finally:
            lab.close()


def _kind(mismatch: str) -> str:
    """What failed, without line numbers: one failure must not turn into another while it shrinks."""
    words = mismatch.replace(":", " ").split()
    return words[2] if words[:1] == ["line"] else " ".join(words[:1])


def main(words: list[str]) -> int:
    native = "--native" in words
    several, threads = ("--several" in words, "--threads" in words)
    options = [w for w in words if w.startswith("--") and w not in ("--native", "--several", "--threads")]
    numbers = [int(w) for w in words if w.isdigit()]
    seed, length = numbers[0], (numbers[1:] or [200])[0]
    driver = Path(tempfile.gettempdir()) / "metamori-model-driver"
    sources = sorted(map(str, (HERE.parent / "programs").glob("driver*.c")))
    subprocess.run(
        ["gcc", "-w", "-O1", f"-I{ROOT}/shim_c/include", *sources, "-o", str(driver)],
        check=True,
    )
    lines = program(seed, length, not native, several, threads)
    first = attempt(driver, lines, options, native)
    if not first:
        print("passes")
        return 0
    print(first)
    lines = smaller(lines, lambda some: _kind(attempt(driver, some, options, native)) == _kind(first))
    print("\n".join(lines))
    print(attempt(driver, lines, options, native))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
