"""A program that carries files across the border of the scope, stopped somewhere: both sides are right afterwards.

What should be there is what the same lines leave natively: there is no model of two folders.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from honest import _unlinked, tree_of
from tracing import Traced
from trial import Trial, Verb

# `..`/out is out of the scope, which is the folder in which the run starts
BEFORE = """\
mkdir ../out; mkdir d; mkdir d/e; mkdir ../out/p
open a rw,creat; write 3 20000 1; close 3; open b rw,creat; write 3 5000 2; close 3; open c rw,creat; write 3 9000 3
close 3; open e rw,creat; write 3 6000 4; close 3; open d/x rw,creat; write 3 3000 5; close 3; open d/e/y rw,creat
write 3 7000 6; close 3; open ../out/o rw,creat; write 3 8000 7; close 3; open ../out/t rw,creat; write 3 4000 8
close 3; open ../out/p/q rw,creat; write 3 5000 9; close 3; open ../out/m rw,creat; write 3 3000 10; close 3; link e f
""".replace("\n", "; ").strip("; ").split("; ")
SCRIPTS = {
    "files": """\
open a rw; pwrite 3 3000 100 1; rename a ../out/a; pwrite 3 50 5000 2; checkpoint; rename ../out/o o; open o rw
pwrite 4 100 4000 3; rename c ../out/t; checkpoint; pwrite 3 50 6000 4; pwrite 4 100 50 5; rename ../out/a b
pwrite 3 50 7000 6; checkpoint; rename o ../out/o; pwrite 4 10 10 7; checkpoint; pwrite 3 20 20 8""",
    "folders": """\
open d/e/y rw; pwrite 3 3000 100 1; checkpoint; rename d ../out/d; pwrite 3 50 5000 2; checkpoint; rename ../out/p p
open p/q w,append; write 4 300 3; checkpoint; rename ../out/d p/d; pwrite 3 50 60 4; checkpoint; rename p ../out/p
pwrite 3 50 70 5; mkdir p; checkpoint; exchange p ../out/p; write 4 10 6""",
    "links": """\
open e rw; pwrite 3 3000 100 1; link e ../out/l; pwrite 3 50 5000 2; checkpoint; link ../out/m m; open ../out/m rw
pwrite 4 100 40 3; checkpoint; rename f ../out/f; unlink e; pwrite 3 50 60 4; checkpoint; exchange a ../out/o
open a rw; pwrite 5 100 80 5; checkpoint; rename ../out/l e; pwrite 3 10 90 6; unlink m; pwrite 4 10 10 7""",
}
LINES = {name: tuple(text.replace("\n", "; ").split("; ")) for name, text in SCRIPTS.items()}
Sides = tuple[str, str]


@dataclass
class Left:
    """indexes: the tree in the scope at each one that was answered, 0 included. sides: what the program may have left,
    in and out of the scope; before: all that it had left earlier."""

    indexes: dict[int, str]
    sides: list[Sides] = field(default_factory=list)
    before: list[Sides] = field(default_factory=list)
    all_answered: bool = False


def names(tree: str) -> list[str]:
    return [word.partition(":")[0] for word in tree.split(" ")[1:]]


class Crossing(Trial):
    """Its folder has both sides."""

    def __init__(self, folder: Path, driver: Path, tracer: Path, options: Sequence[object], script: Sequence[str]):
        super().__init__(folder, driver, tracer, options, script, BEFORE)
        self._native = folder / "native"
        self.linked = any(line.startswith("link") for line in script)      # files are on both sides
        self.natively = functools.cache(self._natively)

    def prepare(self) -> None:
        super().prepare()
        del self.lab.env["METAMORI_TRACK"]

    @property
    def sides(self) -> Sides:
        return _unlinked(tree_of(self.work)), _unlinked(tree_of(self.folder / "out"))

    def _natively(self, lines: tuple[str, ...]) -> tuple[tuple[str, ...], Sides]:
        """Answers, and what is left."""
        shutil.rmtree(self._native, ignore_errors=True)
        work = self._native / "work"
        work.mkdir(parents=True)
        for each in (tuple(BEFORE), lines):
            text = "".join(f"{line}\n" for line in each).encode()
            done = subprocess.run([str(self.driver)], input=text, cwd=work, stdout=subprocess.PIPE, check=True)
        return (tuple(done.stdout.decode().split("\n")[:-1]),
                (_unlinked(tree_of(work)), _unlinked(tree_of(self._native / "out"))))

    def left(self, stdout: bytes, errors: Sequence[str] = ()) -> Left:
        """From the answers that came; a line that was answered by one of the `errors` has done nothing."""
        answers, done = stdout.decode().split("\n")[:-1], list[str]()
        found = Left({0: self.natively(())[1][0]}, before=[self.natively(())[1]])
        for line, answer in zip(self.script, answers):
            if line == "checkpoint":
                if answer.removeprefix("-1 ") not in errors:
                    assert answer.isdigit(), f"{line}: {answer}"
                    found.indexes[int(answer)] = self.natively(tuple(done))[1][0]
                continue
            want = self.natively((*done, line))[0][-1]
            if answer != want and answer.isdigit() and errors and line.startswith(("write", "pwrite")):
                word = line.split(" ")
                line = " ".join([*word[:2], answer, *word[3:]])        # it was short
            elif answer != want:
                assert answer.removeprefix("-1 ") in errors, f"{line}: {answer}, wanted {want}"
                continue
            done.append(line)
            found.before.append(self.natively(tuple(done))[1])
        found.sides = [found.before[-1]]
        if len(answers) < len(self.script) and self.script[len(answers)] != "checkpoint":
            found.sides.append(self.natively((*done, self.script[len(answers)]))[1])
        found.all_answered = len(answers) == len(self.script)
        return found

    # -- afterwards ------------------------------------------------------------------------------

    def hold(self, left: Left) -> None:
        """After a kill or an error, with everything of it gone."""
        outside, isolated = self.sides[1], "--isolate" in self.options
        assert names(outside) in [names(out) for _, out in left.sides]
        assert self.linked or outside in [out for _, out in left.sides]
        newest = self.completed(left)
        have = self.sides
        if self.linked:                    # what was written to a file that is on both sides is written back
            outside = have[1]
        assert have[1] == outside, "the completion has touched what is out of the scope"
        if isolated:
            whole = [left.indexes[0], *(work for work, _ in left.sides if left.all_answered)]
            assert have[0] in whole, f"not as at a commit:\n have {have[0]}\n want {whole}"
        else:
            assert have in left.sides, f"no crash would have left this:\n have {have}\n want {left.sides}"
        for index, tree in sorted(left.indexes.items(), reverse=True):
            self.back(index, [tree])
        if newest not in left.indexes:
            self.back(newest, [work for work, _ in (left.sides if isolated else [have])] + [*left.indexes.values()])
        self.untouched(outside)
        self.goes_on()

    def untouched(self, outside: str) -> None:
        """By restores; a file that is on both sides goes back on both."""
        have = self.sides[1]
        assert names(have) == names(outside) and (self.linked or have == outside), f"restores changed it: {have}"

    def hold_after_cut(self, left: Left) -> None:
        """After a power cut, on the disk that it left: of what was written last some is gone."""
        outside, isolated = self.sides[1], "--isolate" in self.options
        every = [*left.before, *left.sides]
        shapes = [(names(work), names(out)) for work, out in every]
        assert (names(self.sides[0]), names(outside)) in shapes or isolated
        newest = self.completed(left)
        if self.linked:
            outside = self.sides[1]
        assert self.sides[1] == outside, "the completion has touched what is out of the scope"
        if isolated:
            whole = [left.indexes[0], *(work for work, _ in left.sides if left.all_answered)]
            assert self.sides[0] in whole, f"not as at a commit:\n have {self.sides[0]}\n want {whole}"
        for index, tree in sorted(left.indexes.items(), reverse=True):
            if index or len(left.indexes) > 1:
                self.back(index, [tree], {name for work, _ in every for name in names(work)})
        self.untouched(outside)
        assert self.verb("restore", newest).code == 0
        self.goes_on()

    def completed(self, left: Left) -> int:
        """The newest index."""
        looked, log = self.verb("verify"), self.verb("log", "--json")
        assert looked.code == 0 and log.code == 0, (looked, log)
        listed = {each["index"] for each in json.loads(log.out)["checkpoints"]}
        assert left.indexes.keys() <= listed | {0}, (left.indexes.keys(), log)
        return max(listed)

    def back(self, index: int, trees: Sequence[str], made_later: set[str] | None = None) -> None:
        done: Verb = self.verb("restore", index)
        assert done.code == 0, f"restore {index}: {done}"
        have = self.sides[0].split(" ")
        for tree in trees:
            want = tree.split(" ")
            extra = {word.partition(":")[0] for word in have if word not in want}
            if set(want) <= set(have) and extra <= (made_later or set()):
                return
        raise AssertionError(f"restore {index}:\n have {have}\n want {trees}")

    def goes_on(self) -> None:
        looked = self.verb("verify")
        assert looked.code == 0 and not looked.err, looked
        again = self.lab.run("true")
        assert (again.returncode, again.stderr) == (0, b""), again.stderr


def said(done: Traced, nth: int, how: str) -> str:
    return f"{how} at {done.calls[min(nth, len(done.calls)) - 1]}; {done.stderr!r}"
