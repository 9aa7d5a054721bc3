"""The rover (rover.py) where it is also known what it has touched; and somebody who does as he likes between runs.

`main` is the program, given a pickled `Plan`. It leaves a `Seen` at each checkpoint and at its end.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rover import Rover

KEEPS_OPEN = ("hold", "held_write", "held_link", "let_go", "unlink_open", "nameless", "map", "map_write", "unmap")
Entries = dict[str, tuple[Any, ...]]


@dataclass
class Plan:
    seed: int
    count: int
    end: str                               # exit, kill, kill all
    pictures: str
    outside: str
    folders: list[str]
    scope: set[str]
    excluded: set[str]


@dataclass
class Seen:
    """What was there, which files were which, and what the program had touched by then. beside: names of files that
    were changed by another name, out of the scope, before the program used one in it."""

    entries: Entries
    numbers: dict[str, int]
    touched: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)


def look(folders: Sequence[str]) -> Seen:
    entries: Entries = {}
    numbers: dict[str, int] = {}
    for folder in folders:
        for where, inner, files in os.walk(folder):
            inner[:] = sorted(name for name in inner if name != ".metamori")
            for name in inner + sorted(files):
                path = os.path.join(where, name)
                st = os.lstat(path)
                numbers[path] = st.st_ino
                if stat.S_ISLNK(st.st_mode):
                    entries[path] = "link", os.readlink(path)
                elif stat.S_ISDIR(st.st_mode):
                    entries[path] = "folder", oct(st.st_mode)
                elif stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as file:
                        data = file.read()
                    entries[path] = "file", oct(st.st_mode), len(data), zlib.crc32(data), st.st_mtime_ns
                else:
                    entries[path] = "other", oct(st.st_mode)
    return Seen(entries, numbers)


def touched(before: Seen, after: Seen) -> set[str]:
    """Names that were given or taken, and files of one name that were changed."""
    found = set()
    names: dict[int, int] = {}
    for number in after.numbers.values():
        names[number] = names.get(number, 0) + 1
    for path in before.entries.keys() | after.entries.keys():
        another = before.numbers.get(path) != after.numbers.get(path)
        if another or (before.entries[path] != after.entries[path] and names[after.numbers[path]] == 1):
            found.add(path)
    return found


def in_scope(path: str, scope: set[str], excluded: set[str]) -> bool:
    folder = next((each for each in scope if path.startswith(each + "/")), "")
    return bool(folder) and not excluded & set(path[len(folder):].split("/"))


class Beside:
    """Follows the files that have names in the scope and out of it."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._used, self.names = plan, set[int](), set[str]()

    def follow(self, before: Seen, after: Seen) -> None:
        names: dict[int, set[str]] = {}
        for seen in before, after:
            for path, number in seen.numbers.items():
                names.setdefault(number, set()).add(path)
        for path in before.entries.keys() & after.entries.keys():
            number = after.numbers[path]
            if before.numbers[path] == number and before.entries[path] != after.entries[path] and (
                    number not in self._used and not all(self._inner(each) for each in names[number])):
                self.names |= names[number]
        self._used |= {seen.numbers.get(path, 0) for path in touched(before, after) if self._inner(path)
                       for seen in (before, after)}
        self._used &= set(after.numbers.values())

    def _inner(self, path: str) -> bool:
        return in_scope(path, self._plan.scope, self._plan.excluded)


class Visitor(Rover):
    """Somebody who is no run: he closes what he opens, moves folders and leaves links to them."""

    def __init__(self, random_: random.Random, folders: list[str], outside: str) -> None:
        super().__init__(random_, folders, outside)
        self._kinds = [name for name in self._kinds if name.removeprefix("do_") not in KEEPS_OPEN]

    def do_link_in_place(self) -> None:
        """The folder is elsewhere, and all who look by its old name find it."""
        folder = self._choice([path for path in self._names("d") if path not in self.folders])
        there = self._choice([os.path.join(self.outside, f"m{self._random.randrange(9)}"), self._new()])
        os.rename(folder, there)
        os.symlink(there, folder)

    def do_outer_name(self) -> None:
        os.link(self._file(), os.path.join(self.outside, f"n{self._random.randrange(6)}"))

    def do_outer_write(self) -> None:
        path = os.path.join(self.outside, self._choice(sorted(os.listdir(self.outside))))
        if not os.path.islink(path):
            self._put(path, "r+b")

    def do_file_becomes_folder(self) -> None:
        path = self._file()
        os.unlink(path)
        os.mkdir(path)
        self._put(os.path.join(path, self._choice("abcdefgh")))


def main(path: str) -> None:
    import metamori

    with open(path, "rb") as file:
        plan: Plan = pickle.load(file)
    random_ = random.Random(plan.seed)
    rover, done, beside = Rover(random_, plan.folders, plan.outside), set[str](), Beside(plan)

    def leave(name: object, seen: Seen) -> None:
        seen.touched, seen.beside = set(done), set(beside.names)
        with open(f"{plan.pictures}/new", "wb") as file:
            pickle.dump(seen, file)
        os.rename(f"{plan.pictures}/new", f"{plan.pictures}/{name}")

    seen = look(plan.folders)
    for _ in range(plan.count):
        did = rover.act()
        with open(f"{plan.pictures}/log", "a", encoding="utf-8") as log:
            print(did, file=log)
        before, seen = seen, look(plan.folders)
        beside.follow(before, seen)
        done |= touched(before, seen)
        if random_.random() < 0.08:
            leave(metamori.checkpoint(), seen)
    leave("last", seen)
    if plan.end == "kill all":
        os.kill(os.getppid(), signal.SIGKILL)
    if plan.end != "exit":
        os.kill(os.getpid(), signal.SIGKILL)
