"""Lines that several threads do at once: which have one result whatever the order, and what a cut amid them may show.

`0 pwrite 5 100 0 7 ; 1 pwrite 5 100 100 8 ; 0 fill f1 w,creat 10 3`: items, each a thread and its line; a thread does
its own in order.
Each item says what it uses (a descriptor's number, an open description, a file, a name) and how; what two threads
use must go together: disjoint ranges of a file, or the same bytes appended, or written at a position that both share.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from files_model import Description, Names, Node, Refused, Unforetold, made

if TYPE_CHECKING:
    from world import World

ALONE = ("alone",)  # nobody else's while it lasts
LOOK = ("look",)
UNOPENED = "a number that is not open"  # `fill` has it for a moment, and Metamori in a change of names (docs/limits.md)
Use = tuple[Hashable, tuple]
Item = tuple[int, list[str]]
BY_NUMBER = {
    "read", "readv", "pread", "preadv", "write", "writev", "pwrite", "pwritev", "lseek", "ftruncate", "fsize", "fsync",
    "fchmod", "mapread", "close",
}  # fmt: skip
BY_NAME = {"unlink", "unlinkat", "remove", "rename", "renameat", "link", "symlink", "chmod", "truncate", "size",
           "exists", "readlink", "fill"}  # fmt: skip
OF_TWO_NAMES = {"rename", "renameat", "link", "symlink"}
BY_STREAM = {"fwrite", "fputs", "fread", "fgetc", "fputc", "ungetc", "fseek", "ftell", "fflush"}


def split(words: Sequence[str]) -> list[Item]:
    """Items as (thread, words of its line)."""
    items = [part.split() for part in " ".join(words).split(" ; ")]
    if any(len(part) < 2 for part in items):
        raise Unforetold
    return [(int(who), line) for who, *line in items]


def in_order(items: list[Item]) -> list[Item]:
    """One thread after the other."""
    return sorted(items, key=lambda item: item[0])


def go_together(one: tuple, other: tuple) -> bool:
    if one[0] == other[0] == "range":
        return one[2] <= other[1] or other[2] <= one[1]
    return one == other and one != ALONE


def steps(line: list[str]) -> list[list[str]]:
    """The calls of a line, each with an effect of its own."""
    name, *words = line
    return [["fill_open", *words[:2]], ["fill_write", *words]] if name == "fill" else [line]


class Uses:
    """What is used by a line, in a state of the model."""

    def __init__(self, world: World, before: dict[int, int]) -> None:
        self.state, self.before = world.state, before  # before: sizes when all began

    def of(self, line: list[str]) -> list[Use]:
        name, *words = line
        if name == "cut":
            return []
        if name in BY_NAME:
            names = words[: 2 if name in OF_TWO_NAMES else 1]
            return [(UNOPENED, ("opens",)), *(use for word in names for use in self.name(word))]
        if name in BY_STREAM:
            stream = self.state.streams.get(int(words[0]))
            return self.alone(stream.description) if stream else _leave_out()
        if name not in BY_NUMBER:
            raise Unforetold
        number: Use = (("number", int(words[0])), ALONE if name == "close" else LOOK)
        found = self.state.descriptors.get(int(words[0]))
        return [number, *(self.data(name, words, found) if found else []), (UNOPENED, ("opens",) if found else LOOK)]

    def data(self, name: str, words: list[str], found: Description) -> list[Use]:
        node = id(found.node)
        if name.startswith("write") and found.writable and found.node.kind == "file":
            together = ("next", *words[1:], id(found))  # an append moves this description's position to the end
            return [(id(found), together), (node, together)]
        if name.startswith("pwrite") and found.writable and not found.append:
            return [(node, ("range", int(words[2]), int(words[2]) + int(words[1])))]
        if name.startswith("pread"):
            start, end = int(words[2]), int(words[2]) + int(words[1])
            if start >= 0 and end <= self.before.get(node, 0):
                return [(node, ("range", start, end))]
        return self.alone(found)

    def alone(self, found: Description) -> list[Use]:
        return [(id(found), ALONE), (id(found.node), ALONE)]

    def name(self, path: str) -> Iterator[Use]:
        """A name, the names that a symbolic link leads over, and the file behind."""
        for _ in range(41):
            yield path, ALONE
            try:
                node = self.state.names.own(path)[2]
            except Refused:
                return
            yield id(node), ALONE
            if node.kind == "folder":
                raise Unforetold
            if node.kind == "file":
                return
            path = node.target


def _leave_out() -> list[Use]:
    raise Unforetold


def answers_of(world: World, items: list[Item]) -> list[str]:
    """Leaves out what depends on the order."""
    before = {id(d.node): len(d.node.content) for d in world.state.descriptors.values()}
    used: dict[Hashable, list[tuple[int, tuple]]] = {}
    answers = [""] * len(items)
    for place in sorted(range(len(items)), key=lambda place: items[place][0]):
        who, line = items[place]
        if any(word.startswith("d") and "/" not in word for word in line[1:]):
            raise Unforetold  # folders come and go alone
        for key, how in Uses(world, before).of(line):
            others = used.setdefault(key, [])
            if any(other != who and not go_together(how, there) for other, there in others):
                raise Unforetold
            others.append((who, how))
        answer = world.apply(" ".join(line))
        if answer is None:
            raise Unforetold
        answers[place] = answer
    return answers


def possible(world: World, items: list[Item], tree: Callable[[], str]) -> frozenset[str]:
    """The trees that a cut may show: each thread some calls far, the one that asked for it exactly so far."""
    lines: dict[int, list[list[str]]] = {}
    exactly: dict[int, int] = {}
    for who, line in items:
        mine = lines.setdefault(who, [])
        if line[0] == "cut":
            exactly[who] = len(mine)
        else:
            mine += steps(line)
    everybody = sorted(lines)
    far = [[exactly[who]] if who in exactly else range(len(lines[who]) + 1) for who in everybody]
    found = set()
    for counts in product(*far):
        with world.trying():
            for who, count in zip(everybody, counts):
                answer = ""
                for line in lines[who][:count]:
                    if line[0] != "fill_write" or not answer.startswith("-1"):
                        answer = world.apply(" ".join(line)) or ""
            found.add(tree())
    return frozenset(found)


def fill_open(names: Names, path: str, flags: str) -> Description:
    """The first half of the driver's `fill`."""
    return names.open(path, set(flags.split(",")), 0o644)


def fill_write(node: Node, flags: str, length: str, seed: str) -> str:
    """The second half: at the end, or at the beginning."""
    if not set(flags.split(",")) & {"w", "rw"}:
        raise Unforetold
    node.write(len(node.content) if "append" in flags else 0, made(int(seed), int(length)))
    return length
