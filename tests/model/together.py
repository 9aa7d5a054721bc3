"""Lines that several threads do at once: which have one result whatever the order, and what a cut amid them may show.

`0 pwrite 5 100 0 7 ; 1 pwrite 5 100 100 8 ; 0 fill f1 w,creat 10 3`: items, each an actor and its line; an actor does
its own in order. Actors are threads of the process that acts (`2`), or of several (`m.2`, `0.2`: the first process,
twin 0), or such a process's first thread (`m.m`, `0.m`). `x outside`: a checkpoint by the command line amid it all.
Each item says what it uses (a descriptor's number, an open description, a file, a name) and how; what two actors
use must go together: disjoint ranges of a file, or the same bytes appended, or written at a position that both share.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from files_model import Description, Names, Node, Refused, Unforetold, made

if TYPE_CHECKING:
    from world import World

ALONE = ("alone",)  # nobody else's while it lasts
LOOK = ("look",)
UNOPENED = "a number that is not open"  # `fill` has it for a moment, and Metamori in a change of names (docs/limits.md)
Use = tuple[Hashable, tuple]
Item = tuple[str, list[str]]
BY_NUMBER = {
    "read", "readv", "pread", "preadv", "write", "writev", "pwrite", "pwritev", "lseek", "ftruncate", "fsize", "fsync",
    "fchmod", "mapread", "close",
}  # fmt: skip
BY_NAME = {"unlink", "unlinkat", "remove", "rename", "renameat", "link", "symlink", "chmod", "truncate", "size",
           "exists", "readlink", "fill"}  # fmt: skip
OF_TWO_NAMES = {"rename", "renameat", "link", "symlink"}
BY_STREAM = {"fwrite", "fputs", "fread", "fgetc", "fputc", "ungetc", "fseek", "ftell", "fflush"}
OF_THE_CROWD = {"cut", "outside", "kill", "die", "nap", "restore"}  # they use nothing and change nothing
OUTSIDE: Item = ("x", ["outside"])


def split(words: Sequence[str]) -> list[Item]:
    """Items as (actor, words of its line)."""
    items = [part.split() for part in " ".join(words).split(" ; ")]
    if any(len(part) < 2 for part in items):
        raise Unforetold
    return [(who, line) for who, *line in items]


def in_order(items: list[Item]) -> list[Item]:
    """One actor after the other."""
    return sorted(items, key=lambda item: item[0])


def process_of(actor: str) -> str:
    """`m`, a twin's number, or nothing: the one that acts."""
    process, dot, _ = actor.partition(".")
    return process if dot else ""


def victims(items: list[Item]) -> set[str]:
    """Processes that are killed amid it."""
    return {process_of(who) if line[0] == "die" else line[1] for who, line in items if line[0] in ("die", "kill")}


def go_together(one: tuple, other: tuple) -> bool:
    if one[0] == other[0] == "range":
        return one[2] <= other[1] or other[2] <= one[1]
    return one == other and one != ALONE


def steps(line: list[str]) -> list[list[str]]:
    """The calls of a line, each with an effect of its own."""
    name, *words = line
    if name in OF_THE_CROWD:
        return []
    return [["fill_open", *words[:2]], ["fill_write", *words]] if name == "fill" else [line]


class Uses:
    """What is used by a line, in a state of the model."""

    def __init__(self, world: World, process: str, before: dict[int, int]) -> None:
        self.state, self.process, self.before = world.state, process, before  # before: sizes when all began

    def of(self, line: list[str]) -> list[Use]:
        name, *words = line
        if name in OF_THE_CROWD:
            return []
        unopened = (UNOPENED, self.process)
        if name in BY_NAME:
            names = words[: 2 if name in OF_TWO_NAMES else 1]
            return [(unopened, ("opens",)), *(use for word in names for use in self.name(word))]
        if name in BY_STREAM:
            stream = self.state.streams.get(int(words[0]))
            return self.alone(stream.description) if stream else _leave_out()
        if name not in BY_NUMBER:
            raise Unforetold
        number: Use = (("number", self.process, int(words[0])), ALONE if name == "close" else LOOK)
        found = self.state.descriptors.get(int(words[0]))
        return [number, *(self.data(name, words, found) if found else []), (unopened, ("opens",) if found else LOOK)]

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
    tables = [world.state.descriptors, *world.twins.values()]
    before = {id(d.node): len(d.node.content) for table in tables for d in table.values()}
    used: dict[Hashable, list[tuple[str, tuple]]] = {}
    answers = [""] * len(items)
    for place in sorted(range(len(items)), key=lambda place: items[place][0]):
        who, line = items[place]
        if any(word.startswith("d") and "/" not in word for word in line[1:]):
            raise Unforetold  # folders come and go alone
        with world.as_process(process_of(who)):
            for key, how in Uses(world, process_of(who), before).of(line):
                others = used.setdefault(key, [])
                if any(other != who and not go_together(how, there) for other, there in others):
                    raise Unforetold
                others.append((who, how))
            answer = _of_the_crowd(world, who, line) if line[0] in OF_THE_CROWD else world.apply(" ".join(line))
        if answer is None:
            raise Unforetold
        answers[place] = answer
    return answers


def _of_the_crowd(world: World, who: str, line: list[str]) -> str | None:
    if line[0] == "restore":
        return _refused(world, who, line[1])
    return {"cut": "index" if world.restorable else "-1 ENOSYS", "die": "?", "outside": "-"}.get(line[0], "0")


def _refused(world: World, who: str, which: str) -> str | None:
    """EBUSY: others live; a twin took part in none of the checkpoints that the first process knows by number."""
    number = int(which.removeprefix("@"))
    if not world.restorable or world.window or process_of(who) == "" or number >= len(world.saved):
        return None
    return "-1 EBUSY" if process_of(who) == "m" else "-1 ESRCH"


def fill_open(names: Names, path: str, flags: str) -> Description:
    """The first half of the driver's `fill`."""
    return names.open(path, set(flags.split(",")), 0o644)


def fill_write(node: Node, flags: str, length: str, seed: str) -> str:
    """The second half: at the end, or at the beginning."""
    if not set(flags.split(",")) & {"w", "rw"}:
        raise Unforetold
    node.write(len(node.content) if "append" in flags else 0, made(int(seed), int(length)))
    return length
