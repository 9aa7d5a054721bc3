"""Plays a program on the driver beside the model; makes a failing program small.

By hand: `python tests/model/player.py SEED [LENGTH] [OPTION...]`; natively with --native;
several processes with --several, several threads with --threads.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from files_model import Unforetold  # noqa: E402
from lab import ROOT, Lab, Session  # noqa: E402
from programs import program  # noqa: E402
from together import split, victims  # noqa: E402
from world import World  # noqa: E402


@dataclass
class Played:
    """What came of a program: the model at its end, and each checkpoint's index and expected files."""

    world: World
    checkpoints: list[tuple[int, str]]
    cuts: list[tuple[int, frozenset[str]]]  # a checkpoint amid several threads' calls, and what it may show


class Mismatch(AssertionError):
    pass


class Outside:
    """`metamori checkpoint`, started before it is needed: in a moment's notice it is amid what others do."""

    CODE = """
import sys, time
from metamori.cli.checkpoint import take
import metamori.runtime.checkpoint.session, metamori.runtime.lifecycle.end_run, metamori._area
print("ready", flush=True)
for line in sys.stdin:
    time.sleep(float(line))
    try:
        print(take(sys.argv[1], "outside"), flush=True)
    except Exception as error:
        print("failed:", repr(error), flush=True)
"""

    def __init__(self, session: Session) -> None:
        store = session.command[session.command.index("--store") + 1]
        self.process = subprocess.Popen([sys.executable, "-c", self.CODE, store], env=session.env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.answer() == "ready"

    def ask(self, delay: float) -> None:
        assert self.process.stdin
        print(delay, file=self.process.stdin, flush=True)

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


class Play:
    """A program on its way: what the model says, what the run answered."""

    def __init__(
        self, session: Session, restorable: bool = True, window: int = 0, world: World | None = None
    ) -> None:
        self.session, self.restorable = session, restorable
        self.outside: Outside | None = None
        self.world = world or World(restorable, window)
        self.checkpoints: list[tuple[int, str]] = []
        self.cuts: list[tuple[int, frozenset[str]]] = []
        self.rng = random.Random(0)

    def ask(self, line: str) -> str:
        try:
            return self.session.ask(line)
        except AssertionError as died:
            raise Mismatch(f"{line}\n  {died}") from None

    def end(self) -> None:
        if self.outside:
            self.outside.end()

    def line(self, line: str) -> None:
        """Raises Mismatch."""
        world, several = self.world, line.split(" ")[0] == "together"
        deadly = several and victims(split(line.split(" ")[1:]))
        try:
            want = " ; ".join(world.foretold(split(line.split(" ")[1:]))) if deadly else world.apply(line)
        except Unforetold:
            return
        if want is None:
            return
        outside = None
        if several and self.restorable and "x outside" in line:
            outside = self.outside = self.outside or Outside(self.session)
            outside.ask(self.rng.choice([0, 0, 0.0003, 0.001, 0.003]))
        have = self.ask(line)
        index = outside.answer() if outside else ""
        if deadly:
            wrong = world.lost_some(line, have, self.ask)
            if wrong:
                raise Mismatch(f"{line}\n  {wrong}")
        newest = max((index for index, _ in [*self.checkpoints, *self.cuts]), default=0)
        if want == "index" and have.isdigit() and int(have) > newest:
            self.checkpoints.append((int(have), world.state.names.tree()))
            return
        if "index" in want.split(" ; ") and " ; " in want:
            index = have.split(" ; ")[want.split(" ; ").index("index")]
            want = want.replace("index", index)
        if not deadly and have != want:
            raise Mismatch(f"{line}\n  have {_only(have, want)}\n  want {_only(want, have)}")
        if len(world.cuts) > len(self.cuts):
            if not index.isdigit() or int(index) <= newest:
                raise Mismatch(f"{line}\n  have {have}\n  want an index after {newest}, not {index}")
            self.cuts.append((int(index), world.cuts[-1]))


def natively(lab: Lab, lines: Sequence[str]) -> None:
    """What is there before the run."""
    session = lab.start(native=True)
    session.must(lines)
    assert session.end() == 0


def play(
    session: Session, lines: Sequence[str], restorable: bool = True, window: int = 0, world: World | None = None
) -> Played:
    """Asks line by line and compares; raises Mismatch with the lines so far at the first difference.

    world: what there is when the program begins, other than nothing."""
    playing = Play(session, restorable, window, world)
    try:
        for number, line in enumerate(lines):
            try:
                playing.line(line)
            except Mismatch as wrong:
                raise Mismatch(f"line {number}: {wrong}") from None
    finally:
        playing.end()
    return Played(playing.world, playing.checkpoints, playing.cuts)


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
