"""A small program under Metamori that is stopped somewhere, and everything that has to be true afterwards."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from honest import Verb, assert_honest, told, tree_of, verb
from lab import Lab
from tracing import Decide, Traced, go, trace
from world import World

__all__ = ["BEFORE", "SCRIPT", "Expected", "Trial", "Verb", "parts_of", "tree_of", "verb"]

# what is there before the run: the driver plays it natively
BEFORE = """\
mkdir d0; open old rw,creat; write 3 20000 1; open log w,creat; write 4 5000 2; open gone w,creat; write 5 9000 3
close 3; close 4; close 5; symlink old l0; open d0/in w,creat; write 3 3000 4
close 3""".replace("\n", "; ").split("; ")
# one of everything: new, appended, overwritten, cut, removed, renamed, gone back to
SCRIPT = """\
open old rw; open log w,append; open new rw,creat,trunc; write 5 6000 5; pwrite 3 5000 3000 6; write 4 700 7; checkpoint
pwrite 3 300 100 8; pwrite 5 4096 4096 9; ftruncate 3 9000; unlink gone; rename log d0/log; mkdir d1; fsync 3
checkpoint; open d1/late w,creat; write 6 100 10; rename new old; pwrite 3 50 8990 11; chmod d0/in 600; unlink d0/in
rename d0 d2; checkpoint; restore @1; pwrite 3 4096 0 12; write 4 10 13; unlink l0; checkpoint; truncate old 100
write 4 20 14\
""".replace("\n", "; ").split("; ")


def parts_of(line: str, world: World) -> list[str]:
    """A line that was not answered, whole and as far as a kill in the middle of it may have let it come: a write may
    have reached the end of a block, or the end that the file had."""
    word = line.split(" ")
    if word[0] not in ("write", "pwrite") or int(word[1]) not in world.state.descriptors:
        return [line]
    description = world.state.descriptors[int(word[1])]
    old = len(description.node.content)
    start = int(word[3]) if word[0] == "pwrite" else old if description.append else description.position
    ends = {end - start for end in (*range(0, start + int(word[2]), 4096), old) if 0 < end - start < int(word[2])}
    return [line, *(" ".join([*word[:2], str(length), *word[3:]]) for length in sorted(ends))]


def _differences(have: str, expected: Expected) -> list[tuple[list[str], list[str]]]:
    """Of each tree that would do: the words that are here only, and those that are there only."""
    mine, found = have.split(" "), []
    for tree in sorted(expected.present):
        theirs = tree.split(" ")
        found.append(([word for word in mine if word not in theirs], [word for word in theirs if word not in mine]))
    return found


@dataclass
class Expected:
    """By the model: the trees of acknowledged indexes, and those that the program may have left."""

    indexes: dict[int, str] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    pending: str = ""


class Trial:
    """One laboratory at a fixed place, made anew for each attempt."""

    def __init__(self, folder: Path, driver: Path, tracer: Path, options: Sequence[object] = (),
                 script: Sequence[str] = SCRIPT, before: Sequence[str] = BEFORE) -> None:
        self.folder, self.tracer, self.options = folder / "lab", tracer, list(options)
        self.script, self.before, self.driver = list(script), list(before), driver
        self.elsewhere: list[Path] = []    # the store's own folder, when it is on another filesystem

    def prepare(self) -> None:
        subprocess.run(["rm", "-rf", str(self.folder), *map(str, self.elsewhere)], check=True)
        self.folder.mkdir()
        self.lab = Lab(self.folder, self.driver)
        self.work, self.store = self.lab.work, self.lab.store
        self.elsewhere = [self.store.parent] if self.store.parent != self.folder else []
        text = "".join(f"{line}\n" for line in self.before)
        subprocess.run([str(self.driver)], input=text.encode(), cwd=self.work, stdout=subprocess.DEVNULL, check=True)

    def run(self, decide: Decide = go, program: str = "-", calls: str = "change") -> Traced:
        """The script under `metamori run`, from a fresh laboratory."""
        self.prepare()
        text = "".join(f"{line}\n" for line in self.script)
        return trace(self.tracer, [*self.lab.argv("run", *self.options), "--", self.driver], self.folder, decide,
                     cwd=self.work, env=self.lab.env, stdin=text.encode(), program=program, calls=calls,
                     also=self.elsewhere)

    @property
    def folders(self) -> list[Path]:
        """One on each filesystem, the data's first."""
        return [self.folder, *self.elsewhere]

    def verb(self, name: str, *words: object) -> Verb:
        return verb(self.store, name, *words)

    def model(self) -> World:
        world = World()
        for line in self.before:
            world.apply(line)
        world.state.descriptors.clear()
        return world

    def expected(self, stdout: bytes, errors: Sequence[str] = ()) -> Expected:
        """From the answers that came. One that is not the model's is a failure, unless it is one of the `errors`: then
        the line has done nothing. A write may be short. After a restore that failed nothing is foretold any more."""
        world = self.model()
        answers = stdout.decode().split("\n")[:-1]
        failed: set[int] = set()
        found = Expected({0: world.state.names.tree()}, {world.state.names.tree()})
        for line, answer in zip(self.script, answers):
            before = copy.deepcopy(world) if errors else world
            want = world.apply(line)
            if errors and answer.removeprefix("-1 ") in errors:
                if line.startswith("restore"):
                    return replace(found, present=set())
                world = before
                if line == "checkpoint":
                    failed.add(len(world.saved))
                    world.saved.append(copy.deepcopy(world.state))
            elif line.startswith("restore @") and int(line[9:]) in failed:
                assert answer == "-1 EINVAL", answer
                world = before
            elif want == "index":
                assert answer.isdigit(), f"{line}: {answer}"
                found.indexes[int(answer)] = world.state.names.tree()
            elif errors and line.startswith(("write", "pwrite")) and answer.isdigit():
                word = line.split(" ")
                world = before
                assert int(answer) <= int(word[2]), f"{line}: {answer}"
                world.apply(" ".join([*word[:2], answer, *word[3:]]))
            else:
                assert answer == want, f"{line}: {answer}, wanted {want}"
            found.present = {world.state.names.tree()}
        if len(answers) < len(self.script):
            found.pending = self.script[len(answers)]
            for line in parts_of(found.pending, world):
                partly = copy.deepcopy(world)
                partly.apply(line)
                found.present.add(partly.state.names.tree())
        return found

    # -- afterwards ------------------------------------------------------------------------------

    def check(self, expected: Expected, present: bool = True) -> None:
        """Looking is harmless, the next verb completes, every index is there, the next run just starts."""
        if not (self.store / "format").exists():
            assert tree_of(self.work) == expected.indexes[0]
            return
        said = told(self.store)            # the first verb that may complete what was left
        if present and expected.present:
            have = tree_of(self.work)
            assert have in expected.present, f"no crash would have left this:\n {_differences(have, expected)}"
        trees: dict[int, str | set[str]] = {**expected.indexes}
        newest = max(said.listed)
        if newest not in expected.indexes and present and expected.present:
            trees[newest] = expected.present | set(expected.indexes.values())
        assert_honest(self.store, self.work, trees, untracked=expected.indexes[0])
        looked = self.verb("verify")
        assert looked.code == 0 and not looked.err, looked
        again = self.lab.run("true")
        assert (again.returncode, again.stderr) == (0, b""), again.stderr

    def restored(self, index: int, tree: str | None, among: set[str] | None = None) -> None:
        done = self.verb("restore", index)
        assert done.code == 0, f"restore {index}: {done}"
        have = tree_of(self.work)
        if tree is not None:
            assert have == tree, f"restore {index}:\n have {have}\n want {tree}"
        else:
            assert have in (among or ()), f"restore {index}: {have}"
