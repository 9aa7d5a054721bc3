"""Somebody outside of a run who does as he likes to its files while it is alive: he writes to them, replaces, moves and
removes them, and folders too.

Of each index what only the run did comes back exactly. Of what he has had his hands on, every byte is one that the run
saw there, or his, or named as lost.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import honest
import insider
import pytest
from insider import ABSENT, Entry, Tree
from lab import Lab
from visitor import Visitor

PROGRAM = "import sys, insider; insider.main(*sys.argv[1:])"
_BUSY, _DAMAGED = 11, 12
KEPT = [1116, 1154, 1166, 1342, 1398,    # that once left something else at the end than all had seen
        1172, 1236, 1279, 1397]          # and that lost something in silence


class Play:
    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.random, self.seed = lab, random.Random(seed), seed
        self.folders = [str(lab.work), str(lab.folder / "second")]
        self.outside = str(lab.folder / "outside")
        for folder in (self.folders[1], self.outside):
            os.makedirs(folder)
        lab.env["PYTHONPATH"] += f":{Path(__file__).parent}"
        self.options = self.random.choice([[], [], ["--isolate"]])
        self.story: list[str] = []
        self.him = Visitor(self.random, list(self.folders), self.outside)
        for _ in range(12):
            self.say(f"before: {self.him.act()}")
        self.raw = self.look()
        self.views: dict[int, Tree] = {0: self.raw}
        self.first: dict[str, tuple[int, Entry]] = {}      # of a name that the run has used: when, and what was there
        self.several: set[int] = set()     # files of several names: a run that writes to one may have used another
        self.names: set[str] = set()       # that he has given, taken or changed
        self.theirs: dict[str, list[Entry]] = {}           # what he left at a name
        self.written: dict[int, list[bytes]] = {}          # what files held that he had written to, or took a name from
        self.before: dict[int, list[bytes]] = {}           # and before: an index may have that, until the run uses it
        self.unused: dict[int, dict[int, list[bytes]]] = {}    # the same, by index
        command = [sys.executable, "-c", PROGRAM, str(seed), self.outside, *self.folders]
        self.program = subprocess.Popen([*lab.argv("run", *self.options), "--", *command], cwd=lab.work, env=lab.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=(lab.folder / "stderr").open("wb"))
        self.seen: Tree = self.ask("look")

    def ask(self, line: str):
        self.program.stdin.write(line.encode() + b"\n")
        self.program.stdin.flush()
        return insider.receive(self.program.stdout)

    def say(self, what: str) -> None:
        self.story.append(what)

    def look(self) -> Tree:
        return insider.tree([*self.folders, self.outside])

    def fail(self, *lines: str) -> None:
        (self.lab.folder / "story").write_text("\n".join(self.story))
        raise AssertionError("\n".join([f"seed {self.seed} {self.options}, story in {self.lab.folder}/story", *lines]))

    # -- what happens ------------------------------------------------------------------------------

    def inside(self) -> None:
        before, did = self.seen, self.ask("act")
        self.seen = self.ask("look")
        changed = [path for path in before.keys() | self.seen.keys()
                   if before.get(path) != self.seen.get(path)]
        self.say(f"run: {did} {self.short(changed)}")
        for tree in before, self.seen:
            self.several |= {number for number, names in Counter(e.number for e in tree.values()).items() if names > 1}
        for path in changed:
            one, other = before.get(path, ABSENT), self.seen.get(path, ABSENT)
            if one.number != other.number or other.number not in self.several:
                self.first.setdefault(path, (max(self.views), one))
            if one.number == other.number and one.data != other.data:
                self.before.pop(one.number, None)
        self.raw = self.look()

    def outsider(self) -> None:
        before, did = self.look(), self.him.act()
        after = self.look()
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        self.say(f"he: {did} {self.short(changed)}")
        for path in changed:
            other = after.get(path, ABSENT)
            self.names.add(path)
            self.theirs.setdefault(path, []).append(other)
            if other.kind == "file":
                self.written.setdefault(other.number, []).append(other.data)
        had, has = Counter(before.values()), Counter(after.values())   # the number alone may be another one's by now
        for each in (before[path] for path in changed if path in before and before[path].kind == "file"):
            self.before.setdefault(each.number, []).append(each.data)
            if has[each] < had[each]:
                self.written.setdefault(each.number, [])
        self.seen = self.ask("look")

    def short(self, paths: list[str]) -> str:
        return " ".join(sorted(os.path.relpath(path, self.lab.folder) for path in paths))

    def checkpoint(self) -> None:
        if self.random.random() < 0.5:
            index = int(self.verb("checkpoint").out)
        else:
            index = self.ask("checkpoint")
        self.seen = self.views[index] = self.ask("look")
        self.unused[index] = {number: [*datas] for number, datas in self.before.items()}
        self.say(f"checkpoint {index}")
        self.all_indexes()

    def verb(self, name: str, *words: object) -> honest.Verb:
        done = honest.verb(self.lab.store, name, *words)
        self.say(f"{name} {words}: {done.code} {done.err.strip()[:300]}")
        return done

    def end(self) -> None:
        self.ask("let_go")
        self.seen = last = self.ask("look")
        self.say("ends")
        self.program.stdin.close()
        assert self.program.wait() == 0, (self.lab.folder / "stderr").read_text()
        self.program.stdout.close()
        head = json.loads(self.verb("log", "--json").out)["head"]
        self.views[head] = last
        self.raw = after = self.look()
        wrong = self.differing(after, last)
        if wrong:
            self.fail("after the end", (self.lab.folder / "stderr").read_text(), *wrong)
        self.all_indexes()

    # -- what has to be ----------------------------------------------------------------------------

    def differing(self, have: Tree, want: Tree) -> list[str]:
        def key(e):
            return (e.kind, e.mode, e.data, e.mtime_ns if e.kind == "file" else 0)
        return [f"{path}: have {have.get(path, ABSENT)}, want {want.get(path, ABSENT)}"
                for path in sorted(have.keys() | want.keys())
                if key(have.get(path, ABSENT)) != key(want.get(path, ABSENT))]

    def all_indexes(self) -> None:
        said = honest.told(self.lab.store)
        for index in sorted(self.views):
            self.copied(index, said)

    def copied(self, index: int, said: honest.Told) -> None:
        with tempfile.TemporaryDirectory(prefix="copy-", dir=self.lab.folder) as folder:
            done = honest.verb(self.lab.store, "restore", index, "--to", folder, "--json")
            lost: set[str] = set()
            if done.code == _DAMAGED:
                if index not in said.lost and self.program.poll() is not None:
                    self.fail(f"restore {index} --to: {done.err}, and nobody had said so")
                shutil.rmtree(folder)
                os.mkdir(folder)
                done = honest.verb(self.lab.store, "restore", index, "--to", folder, "--json", "--force")
                if done.code in (_BUSY, _DAMAGED) and not done.out and self.program.poll() is None:
                    return             # it is said
                if done.code != _DAMAGED:
                    self.fail(f"restore {index} --to --force: {done.code} {done.err}")
                lost = {each["path"] for each in json.loads(done.out)["lost"]}
            elif done.code == _BUSY and "is being moved" in done.err:
                return
            elif done.code:
                self.fail(f"restore {index} --to: {done.code} {done.err}")
            have: Tree = {}
            for name in ("work", "second", "outside"):
                for path, e in insider.tree([f"{folder}/{name}"]).items() if os.path.isdir(f"{folder}/{name}") else ():
                    have[str(self.lab.folder) + path.removeprefix(folder)] = e
            for where, _, _ in os.walk(folder):
                os.chmod(where, 0o700)
        self.judge(index, have, lost, "not copied, since changed outside" in done.err, done.err)

    def judge(self, index: int, have: Tree, lost: set[str], left_out: bool, err: str) -> None:
        view, wrong = self.views[index], []
        for path in sorted(self.first.keys() | have.keys()):
            one = have.get(path, ABSENT)
            want = view.get(path, ABSENT)
            if path not in self.first and one.kind == "folder":
                continue
            if (path not in self.first or left_out) and one.kind == "absent":
                continue
            strict = path not in self.names and want.number not in self.written
            if strict:
                if path in lost:
                    wrong.append(f"{path} is lost, which nobody has touched")
                elif (one.kind, one.data) != (want.kind, want.data) or (
                        want.kind != "absent" and path in self.first and one.mode != want.mode) or (
                        want.kind == "file" and one.mtime_ns != want.mtime_ns):
                    wrong.append(f"{path}: have {one}, want {want}")
            elif path not in lost and not self.may_be(index, path, one, want):
                wrong.append(f"{path} (his): have {one}, want {want}" + self.where(one, want))
        if wrong:
            self.fail(f"index {index}", err, *wrong)

    def where(self, one: Entry, want: Entry) -> str:
        """Bytes that are neither the run's nor his."""
        if one.kind != "file" or want.kind != "file":
            return ""
        snaps = [want.data, *self.written.get(want.number, [])]
        bad = [i for i, a in enumerate(one.data) if not any(i < len(s) and s[i] == a for s in snaps)]
        return f"; {len(bad)} bytes from {bad[:1]} to {bad[-1:]}, zeros: {not any(one.data[i] for i in bad)}"

    def may_be(self, index: int, path: str, one: Entry, want: Entry) -> bool:
        """Whether it was seen there at some time, but for bytes that he has written over. Before a file that is younger
        than the index there may have been anything."""
        there = {each.number for each in self.views[index].values()}
        if one.kind == "absent" and path in self.first and self.first[path][1].number not in there:
            return True
        others = [want, *self.theirs.get(path, ())]
        if path in self.first:
            others.append(self.first[path][1])
        for view in self.views.values():
            others.append(view.get(path, ABSENT))
        numbers = {each.number for each in others}
        others += [each for each in self.views[index].values() if each.number in numbers]
        for each in others:
            if each.kind == one.kind == "file":
                snaps = [each.data, *self.written.get(each.number, ())]
                snaps += self.unused.get(index, {}).get(each.number, ())
                if len(one.data) in {len(s) for s in snaps} and (one.data in snaps or all(
                        any(i < len(s) and s[i] == a for s in snaps) for i, a in enumerate(one.data))):
                    return True
            elif (each.kind, each.data) == (one.kind, one.data):
                return True
        return False


def play(lab: Lab, seed: int) -> None:
    it = Play(lab, seed)
    try:
        for _ in range(it.random.choice([20, 60])):
            what = it.random.random()
            if what < 0.6:
                it.inside()
            elif what < 0.9:
                it.outsider()
            else:
                it.checkpoint()
        it.end()
    except BaseException:
        (lab.folder / "story").write_text("\n".join(it.story))
        raise
    finally:
        if it.program.poll() is None:
            it.program.kill()
            it.program.wait()


@pytest.mark.in_turn("seed", 2)
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("seed", [*range(4), *KEPT])
def test_outsiders(lab: Lab, seed: int) -> None:
    play(lab, seed)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the program changes modes, and reads what it may not as a user")
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_outsiders(lab: Lab, seed: int) -> None:
    play(lab, seed)
