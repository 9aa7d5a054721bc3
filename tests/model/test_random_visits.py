"""Runs in one store whose scope changes, and somebody who does as he likes to the same folders between them.

What an index has to give back is what was seen when it was taken, of all names that runs had used by then; and nothing
that no run has used is ever lost. What cannot be given back was named before.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import honest
import pytest
import visitor
from lab import Lab
from visitor import Entries, Plan, Seen, Visitor

from metamori.store.read.store import Store

PROGRAM = "import sys, visitor; visitor.main(sys.argv[1])"
_REFUSED, _DAMAGED = 14, 12


@dataclass
class Known:
    """An index. exact: names of which it is known what they were."""

    seen: Seen
    exact: set[str]


class Visits:
    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.random, self.seed = lab, random.Random(seed), seed
        self.folders = [str(lab.work), str(lab.folder / "second")]
        self.outside, self.pictures = lab.folder / "outside", lab.folder / "pictures"
        for folder in (self.folders[1], self.outside, self.pictures):
            os.makedirs(folder)
        del lab.env["METAMORI_TRACK"]
        lab.env["PYTHONPATH"] += f":{Path(__file__).parent}"
        self.scope: set[str] = set()
        self.excluded: set[str] = set()
        self.tracked: set[str] = set()     # names that a run has used in its scope
        self.numbers: set[int] = set()     # of files that have had such a name: others of theirs show the same
        self.staying: set[str] = set()     # what a restore left, or moved along, to where its index has nothing
        self.along: set[str] = set()       # of these what came with a folder, as long as no index has it there
        self.story: list[str] = []
        self.visit(12)
        self.known: dict[int, Known] = {0: Known(self.look(), set())}

    def look(self) -> Seen:
        return visitor.look(self.folders)

    def told(self, *lines: str) -> str:
        (self.lab.folder / "story").write_text("\n".join(self.story))
        return "\n".join([*lines, f"story in {self.lab.folder}/story"])

    def say(self, what: str) -> None:
        self.story.append(what)

    # -- what happens ------------------------------------------------------------------------------

    def visit(self, count: int) -> None:
        who = Visitor(self.random, list(self.folders), str(self.outside))
        for _ in range(count):
            self.say(f"somebody: {who.act()}")

    def in_scope(self, path: str) -> bool:
        return visitor.in_scope(path, self.scope, self.excluded)

    def run(self, number: int) -> None:
        folder = self.random.choice(self.folders)
        options = ["--isolate"] * (self.random.random() < 0.4)
        self.scope.add(folder)
        if self.random.random() < 0.5:
            self.scope.add(other := self.random.choice(self.folders))
            options += ["--track", other]
        if self.random.random() < 0.2:
            self.excluded.add(name := self.random.choice("gh"))
            options += ["--exclude", name]
        end = self.random.choice(["exit", "exit", "kill", "kill all"])
        plan = Plan(self.seed * 100 + number, self.random.choice([10, 30, 60]), end, str(self.pictures),
                    str(self.outside), self.folders, self.scope, self.excluded)
        before = self.look()
        for path in self.pictures.glob("*"):
            path.unlink()
        (self.pictures / "plan").write_bytes(pickle.dumps(plan))
        self.say(f"run {number} in {os.path.basename(folder)} {options} {end}")
        newest = max(self.known)
        self.along.clear()                 # "start of run" has it
        done = self.lab.run([sys.executable, "-c", PROGRAM, self.pictures / "plan"], *options, cwd=folder)
        last = self.pictures / "last"
        assert last.exists() and b"Traceback" not in done.stderr, done.stderr.decode()
        for line in (self.pictures / "log").read_text().splitlines():
            self.say(f"  {line}")
        head = self.head()                 # completes it
        ended: Seen = pickle.loads(last.read_bytes())
        used = {path for path in ended.touched if self.in_scope(path)}
        beside = {path for path in ended.touched - used if path in self.tracked} | ended.beside
        exact = (self.tracked | used) - beside
        new = {index: why for index, why in self.messages().items() if index > newest}
        for index, why in new.items():
            if why == "start of run":
                self.known[index] = Known(before, (self.tracked | used) - ended.beside)
        for path in self.pictures.glob("[0-9]*"):
            self.known[int(path.name)] = Known(pickle.loads(path.read_bytes()), exact)
        if newest == 0:
            self.known[0] = Known(before, used - ended.beside)
        self.known[max(new)] = Known(ended, exact)
        after = self.look()
        if end == "exit" or "--isolate" not in options:
            self.compare(ended, after, exact, f"after {end}")
        else:
            self.compare(before, after, exact, f"after {end} in isolation")
        self.tracked |= used
        met = [before, ended, *(self.known[index].seen for index in new if index in self.known)]
        self.numbers |= {seen.numbers[path] for seen in met for path in used if path in seen.numbers}
        self.say(f"  at {head}, {new}")

    def head(self) -> int:
        return int(json.loads(self.verb("log", "--json").out)["head"])

    def verb(self, name: str, *words: object) -> honest.Verb:
        done = honest.verb(self.lab.store, name, *words)
        self.say(f"{name} {words}: {done.code} {done.err.strip()[:200]}")
        return done

    # -- what has to be ----------------------------------------------------------------------------

    def compare(self, want: Seen, have: Seen, exact: set[str], what: str, lost: frozenset[str] = frozenset()) -> None:
        """Of the exact names. A folder may stay that holds what is nobody's, also where a file or the like was."""
        wrong = []
        for path in sorted(exact - lost):
            one, other = want.entries.get(path), have.entries.get(path)
            if one != other and not (other and other[0] == "folder" and (not one or one[0] != "folder") and any(
                    each.startswith(path + "/") and each not in exact for each in have.entries)):
                wrong.append(f"{path}: have {other}, want {one}")
        assert not wrong, self.told(what, *wrong)

    def restore(self, index: int) -> None:
        said = honest.told(self.lab.store)
        lost = self.lost().get(index, frozenset())
        before, known = self.look(), self.known.get(index)
        done = self.verb("restore", "--json", index)
        words = []
        if done.code == _REFUSED:
            self.compare(before, self.look(), set(before.entries), f"restore {index} was refused and touched something")
            words = ["--force"]
        elif done.code == _DAMAGED:
            assert index in said.lost, self.told(done.err)
            self.compare(before, self.look(), set(before.entries), f"restore {index} was refused and touched something")
            words = ["--force"]
        if words:
            done = self.verb("restore", "--json", index, *words)
        if done.code == _REFUSED and ("in the way" in done.err or "would be removed" in done.err):
            return
        assert done.code == 0 or (done.code == _DAMAGED and index in said.lost), self.told(done.err)
        found = json.loads(done.out)
        after = self.look()
        if found["recorded"]:
            self.known[found["recorded"]] = Known(before, set(self.tracked))
        self.nothing_of_nobody_is_lost(before, after, index, found["from"])
        if found["recorded"]:
            self.along.clear()
        self.along = {path for path in self.along
                      if path in after.numbers and before.numbers.get(path) == after.numbers[path]}
        self.along |= self.went_along(before, after, found["from"])
        if known:
            self.compare(known.seen, after, known.exact - self.along, f"restore {index}", lost)
        self.staying |= self.along | {note.removesuffix(" holds other files; it stays") for note in found["notes"]}
        with Store.open(str(self.lab.store)) as store:
            there = store.state(found["index"]).names
        for path in self.staying:          # for the sake of what is nobody's, noted when that begins only
            if path.encode() not in there or there[path.encode()].kind == "absent":
                after.entries.pop(path, None)
        self.known.setdefault(found["index"], Known(after, set(self.tracked)))

    def nothing_of_nobody_is_lost(self, before: Seen, after: Seen, index: int, left: int) -> None:
        """What is in the index that the restore left is not, also where no run but an index brought it there."""
        with Store.open(str(self.lab.store)) as store:
            saved = {os.fsdecode(path) for path, entry in store.state(left).names.items() if entry.kind == "file"}
        have = {entry[2:4] for entry in after.entries.values() if entry[0] == "file"}
        out = visitor.look([str(self.outside)])
        have |= {entry[2:4] for entry in out.entries.values() if entry[0] == "file"}
        self.numbers |= {before.numbers[path] for path in self.tracked if path in before.numbers}
        held = self.numbers | {before.numbers[path] for path in saved if path in before.numbers}   # by another name
        gone = [path for path, entry in before.entries.items()
                if path not in self.tracked | saved and entry[0] == "file" and entry[2:4] not in have
                and before.numbers[path] not in held]
        assert not gone, self.told(f"restore {index} took away {gone}")

    def went_along(self, before: Seen, after: Seen, left: int) -> set[str]:
        """Names of what is nobody's in a folder that the restore moved: it goes along, and may come to where a run once
        had something. A restore leaves it there until it is recorded: when a run begins, or with --force."""
        with Store.open(str(self.lab.store)) as store:
            saved = {os.fsdecode(path) for path, entry in store.state(left).names.items() if entry.kind != "absent"}
        places = {(before.numbers.get(os.path.dirname(path)), os.path.basename(path), number)
                  for path, number in before.numbers.items() if path not in saved}
        return {path for path, number in after.numbers.items() if before.numbers.get(path) != number and (
            after.numbers.get(os.path.dirname(path)), os.path.basename(path), number) in places}

    def lost(self) -> dict[int, frozenset[str]]:
        found = json.loads(self.verb("log", "--json").out)
        return {each["index"]: frozenset(path["path"] for path in each["lost"]) for each in found["checkpoints"]}

    def copy(self, index: int) -> None:
        """`restore --to`: names, kinds and bytes."""
        said = honest.told(self.lab.store)
        lost, known = self.lost().get(index, frozenset()), self.known.get(index)
        with tempfile.TemporaryDirectory(dir=self.lab.folder) as folder:
            done = self.verb("restore", "--json", index, "--to", folder)
            assert done.code == 0 or (done.code == _DAMAGED and index in said.lost), self.told(done.err)
            if known is None or done.code:
                return
            base = os.path.dirname(self.lab.store)
            wrong = []
            for path in sorted(known.exact - lost):
                one = known.seen.entries.get(path)
                inside = path[len(base) + 1:] if path.startswith(f"{base}/") else path[1:]
                places = [os.path.join(folder, inside), os.path.join(folder, "outside", path[1:])]
                other = next((found for each in places if (found := self._one(each))), None)
                if self._bytes_of(one) != other and not (one is None and other == ("folder",)):
                    wrong.append(f"{path}: have {other}, want {one}")
            subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)
        assert not wrong, self.told(f"restore {index} --to", *wrong)

    @staticmethod
    def _one(path: str) -> tuple[object, ...] | None:
        if not os.path.lexists(path) or os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            return None
        found: Entries = visitor.look([os.path.dirname(path)]).entries
        return Visits._bytes_of(found.get(path))

    @staticmethod
    def _bytes_of(entry: tuple[object, ...] | None) -> tuple[object, ...] | None:
        if entry is None or entry[0] != "file":
            return entry and (entry[:1] if entry[0] in ("folder", "other") else entry)
        return entry[0], *entry[2:4]

    def messages(self) -> dict[int, str]:
        return {each["index"]: each["message"] for each in json.loads(self.verb("log", "--json").out)["checkpoints"]}

    def between(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            if self.random.random() < 0.6:
                self.visit(self.random.randrange(1, 5))
            index = self.random.choice([*self.messages()])
            if self.random.random() < 0.3:
                self.copy(index)
            else:
                self.restore(index)
        for index in self.messages():
            if self.random.random() < 0.4:
                self.restore(index)


def play(lab: Lab, seed: int, runs: int) -> None:
    visits = Visits(lab, seed)
    for number in range(runs):
        visits.run(number)
        visits.between()
        if visits.random.random() < 0.7:
            visits.visit(visits.random.randrange(1, 6))


@pytest.mark.in_turn("seed", 2)
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("seed", range(2))
def test_visits(somewhere: Lab, seed: int) -> None:
    play(somewhere, seed, 3)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("seed", [*range(1000, 1200), 7495, 7496, 7502, 7508])
def test_many_visits(somewhere: Lab, seed: int) -> None:
    play(somewhere, seed, 5)
