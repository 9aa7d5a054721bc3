"""Random programs for the driver, from a seed; each a list of lines that make sense most of the time."""

from __future__ import annotations

import random
from collections.abc import Callable

from cuts import moments
from files_model import Names, Unforetold
from together import BY_NAME, BY_NUMBER, BY_STREAM, OUTSIDE, Item, process_of
from world import World

FILES = ["f0", "f1", "f2", "f3", "d0/a", "d0/b", "d1/a"]
STREAM_FILES = ["s0", "s1", "s2"]
ANY = [*FILES, "l0", "l1", "d0", "d1"]
MODES = ["r", "r+", "r+", "w", "w+", "a", "a+"]
WHENCE = ["set", "cur", "end"]
WRITES = ["fwrite", "fputs", "fprintf"]
SIZES = [0, 1, 7, 100, 511, 4095, 4096, 4097, 8192, 10000, 12288, 40000]
Write = Callable[["Author"], str]


class Author:
    """Chooses the next line by looking at the model's world: open descriptors, living streams."""

    def __init__(self, rng: random.Random, world: World, deadly: bool = True) -> None:
        self.rng, self.world, self.slot = rng, world, 0
        self.deadly = deadly  # amid a crowd one may be killed, and somebody asks from outside

    def path(self) -> str:
        return self.rng.choice(FILES)

    def any(self) -> str:
        return self.rng.choice(ANY)

    def number(self) -> int:
        """A descriptor, nearly always an open one."""
        taken = {s.descriptor for s in self.world.state.streams.values()}
        free = sorted(set(self.world.state.descriptors) - taken)
        return self.rng.choice(free) if free and self.rng.random() < 0.97 else self.rng.randrange(3, 12)

    def few(self) -> str:
        return self.rng.choice(["f0", "f1", "f2", "f3", "d0/a", "d0/b"])

    def long(self) -> int:
        return 70000 if self.rng.random() < 0.1 else self.length()

    def length(self) -> int:
        pick = self.rng.choice(SIZES)
        return pick if self.rng.random() < 0.6 else self.rng.randrange(pick + 1)

    def offset(self) -> int:
        if self.rng.random() < 0.3:
            return 4096 * self.rng.randrange(12)
        return self.rng.randrange(60000)

    def seed(self) -> int:
        return self.rng.randrange(1, 1000)

    def mode(self) -> str:
        return self.rng.choice(["644", "600", "640", "755"])

    def flags(self) -> str:
        access = self.rng.choice(["r", "w", "rw", "rw", "rw"])
        extra = [f for f, p in (("creat", 0.6), ("trunc", 0.15), ("append", 0.2), ("excl", 0.05))
                 if self.rng.random() < p]  # fmt: skip
        if "excl" in extra and "creat" not in extra:
            extra.remove("excl")
        return ",".join([access, *extra])

    def stream(self) -> int:
        return self.rng.choice(sorted(self.world.state.streams) or [0])

    def fresh(self) -> int:
        self.slot += 1
        return self.slot

    def saved(self) -> int:
        return self.rng.randrange(max(1, len(self.world.saved)))

    def line(self) -> str:
        return self.rng.choices(_WRITERS, _WEIGHTS)[0](self)

    def line_of_threads(self) -> str:
        """Most lines are done by one of the living threads, some by several at once."""
        living, chance = sorted(self.world.threads), self.rng.random()
        if len(living) < 4 and chance < 0.1:
            return f"thread {self.rng.choice([n for n in range(6) if n not in living])}"
        if not living or chance > 0.85:
            return self.line()
        if chance < 0.13:
            return f"{self.rng.choice(['endthread', 'cancelthread'])} {self.rng.choice(living)}"
        if chance < 0.25 and len(living) > 1:
            return Crowd(self, [str(n) for n in living]).line()
        return f"on {self.rng.choice(living)} {self.line()}"

    def line_of_several(self, threads: bool = False) -> str:
        """Most lines are done by one of the living twins; now and then one comes or goes."""
        living = sorted(self.world.twins)
        chance = self.rng.random()
        if len(living) < 3 and chance < 0.06:
            return f"twin {self.rng.choice([n for n in range(4) if n not in living])}"
        if living and chance > 0.9:
            return Crowd(self, self.everybody()).line()
        if not living or chance > 0.7:
            return self.line_of_threads() if threads else self.line()
        which = self.rng.choice(living)
        if chance < 0.08:
            return f"{self.rng.choice(['endtwin', 'killtwin'])} {which}"
        with self.world.as_twin(which):
            return f"in {which} {self.line_of_threads() if threads else self.line()}"

    def everybody(self) -> list[str]:
        """The threads of all processes, and the first one of each."""
        world = self.world
        processes = {"m": world.threads} | {str(n): world.twins_threads[n] for n in world.twins}
        return [f"{p}.{t}" for p in processes for t in ["m", *sorted(processes[p])]]


def _vector(a: Author, name: str) -> str:
    return name + ("v" if a.rng.random() < 0.2 else "")


_CHOICES: list[tuple[int, Write]] = [
    (60, lambda a: f"{a.rng.choice(['open', 'open', 'openat'])} {a.path()} {a.flags()} {a.mode()}"),
    (4, lambda a: f"open {a.any()} {a.flags()}"),
    (4, lambda a: f"creat {a.path()} {a.mode()}"),
    (34, lambda a: f"close {a.number()}"),
    (10, lambda a: f"dup {a.number()}"),
    (6, lambda a: f"{a.rng.choice(['dup2', 'dup3'])} {a.number()} {a.rng.randrange(3, 20)}"),
    (3, lambda a: f"dupfd {a.number()} {a.rng.randrange(3, 40)}"),
    (50, lambda a: f"{_vector(a, 'read')} {a.number()} {a.length()}"),
    (40, lambda a: f"{_vector(a, 'pread')} {a.number()} {a.length()} {a.offset()}"),
    (70, lambda a: f"{_vector(a, 'write')} {a.number()} {a.length()} {a.seed()}"),
    (60, lambda a: f"{_vector(a, 'pwrite')} {a.number()} {a.length()} {a.offset()} {a.seed()}"),
    (30, lambda a: f"lseek {a.number()} {a.rng.randrange(-3000, 30000)} {a.rng.choice(WHENCE)}"),
    (16, lambda a: f"ftruncate {a.number()} {a.offset()}"),
    (10, lambda a: f"truncate {a.path()} {a.offset()}"),
    (8, lambda a: f"mapread {a.number()} {a.length()}"),
    (4, lambda a: f"mapwrite {a.number()} {a.length()} {a.rng.randrange(20000)} {a.seed()}"),
    (2, lambda a: f"forkwrite {a.number()} {a.length()} {a.seed()}"),
    (14, lambda a: f"fsize {a.number()}"),
    (3, lambda a: f"{a.rng.choice(['fsync', 'fdatasync'])} {a.number()}"),
    (4, lambda a: f"fchmod {a.number()} {a.mode()}"),
    (18, lambda a: f"{a.rng.choice(['unlink', 'unlink', 'unlinkat', 'remove'])} {a.path()}"),
    (16, lambda a: f"{a.rng.choice(['rename', 'rename', 'renameat'])} {a.path()} {a.path()}"),
    (3, lambda a: f"rename {a.any()} {a.any()}"),
    (8, lambda a: f"link {a.path()} {a.path()}"),
    (3, lambda a: f"symlink {a.rng.choice(FILES[:4])} l{a.rng.randrange(2)}"),
    (2, lambda a: f"unlink {a.any()}"),
    (8, lambda a: f"mkdir d{a.rng.randrange(2)}"),
    (3, lambda a: f"rmdir d{a.rng.randrange(2)}"),
    (5, lambda a: f"chmod {a.path()} {a.mode()}"),
    (10, lambda a: f"{a.rng.choice(['size', 'exists', 'readlink'])} {a.any()}"),
    (14, lambda a: f"fopen {a.fresh()} {a.rng.choice(STREAM_FILES)} {a.rng.choice(MODES)}"),
    (2, lambda a: f"fdopen {a.fresh()} {a.number()} {a.rng.choice(['r', 'r+'])}"),
    (2, lambda a: f"freopen {a.stream()} {a.rng.choice(STREAM_FILES)} {a.rng.choice(MODES)}"),
    (8, lambda a: f"fclose {a.stream()}"),
    (20, lambda a: f"{a.rng.choice(WRITES)} {a.stream()} {a.length() % 9000} {a.seed()}"),
    (16, lambda a: f"fread {a.stream()} {a.length()}"),
    (10, lambda a: f"{a.rng.choice(['fgetc', 'getc', 'getline'])} {a.stream()}"),
    (6, lambda a: f"fgets {a.stream()} {a.rng.randrange(2, 200)}"),
    (6, lambda a: f"{a.rng.choice(['fputc', 'putc'])} {a.stream()} {a.rng.randrange(256)}"),
    (10, lambda a: f"ungetc {a.stream()} {a.rng.randrange(256)}"),
    (24, lambda a: f"fseek {a.stream()} {a.rng.randrange(-50, 9000)} {a.rng.choice(WHENCE)}"),
    (12, lambda a: f"{a.rng.choice(['ftell', 'feof', 'ferror', 'fileno', 'fflush'])} {a.stream()}"),
    (4, lambda a: f"{a.rng.choice(['clearerr', 'rewind', 'fgetpos', 'fsetpos'])} {a.stream()}"),
    (1, lambda a: f"rename {a.rng.choice(STREAM_FILES)} {a.rng.choice(STREAM_FILES)}"),
    (1, lambda a: f"unlink {a.rng.choice(STREAM_FILES)}"),
    (26, lambda a: "checkpoint"),
    (18, lambda a: f"restore @{a.saved()}"),
]  # fmt: skip
_WEIGHTS = [weight for weight, _ in _CHOICES]
_WRITERS = [write for _, write in _CHOICES]

# Few files, much going back and forth: what a rollback leaves behind is what the next one starts from.
_BRANCHES: list[tuple[int, Write]] = [
    (24, lambda a: f"open {a.few()} {a.rng.choice(['rw,creat', 'rw,creat', 'rw', 'r', 'w,append', 'rw,creat,trunc'])}"),
    (10, lambda a: f"close {a.number()}"),
    (6, lambda a: f"dup {a.number()}"),
    (24, lambda a: f"write {a.number()} {a.long()} {a.seed()}"),
    (24, lambda a: f"pwrite {a.number()} {a.long()} {a.offset()} {a.seed()}"),
    (8, lambda a: f"pread {a.number()} {a.length()} {a.offset()}"),
    (8, lambda a: f"ftruncate {a.number()} {a.offset()}"),
    (6, lambda a: f"truncate {a.few()} {a.offset()}"),
    (14, lambda a: f"unlink {a.few()}"),
    (12, lambda a: f"rename {a.few()} {a.few()}"),
    (4, lambda a: f"link {a.few()} {a.few()}"),
    (12, lambda a: "checkpoint"),
    (14, lambda a: f"restore @{a.saved()}"),
]  # fmt: skip


class Crowd:
    """What several do at once. Any line is tried that one of them may do; the model says which go together."""

    def __init__(self, author: Author, living: list[str]) -> None:
        self.author, self.rng, self.world = author, author.rng, author.world
        self.living = self.rng.sample(living, self.rng.randrange(2, min(len(living), 8) + 1))
        with self.world.as_process(process_of(self.rng.choice(self.living))):
            found = self.world.state.descriptors
            self.arena = found.get(author.number())  # all write to it
            self.node = self.arena.node if self.arena else None
        self.record = f"{self.rng.choice([32, 100, 4096, 5000])} {author.seed()}"
        self.stripe = self.rng.choice([100, 1000, 4096, 6000])

    def line(self) -> str:
        items: list[Item] = []
        several = "." in self.living[0]
        cut = self.rng.random() < 0.4
        outside = cut and several and self.author.deadly and self.rng.random() < 0.5
        ends = self.end() if several and self.author.deadly and self.rng.random() < 0.3 else None
        dead = ""
        if outside:
            items.append(OUTSIDE)
        for _ in range(40):
            if len(items) == 16 or (cut and (len(items) == 9 or moments(items) > 150)):
                break
            who = self.rng.choice(self.living)
            if dead and who == dead:
                continue
            if ends and len(items) >= 4:
                who, line = ends
            elif cut and not outside and len(items) == 3:
                line = ["cut"]
            elif several and self.rng.random() < 0.06:
                line = self.other()
            else:
                line = self.one(who)
            try:
                self.world.foretold([*items, (who, line)])
            except Unforetold:
                ends = None if line in (["die"], ["kill"]) else ends
                continue
            items.append((who, line))
            if ends and (who, line) == ends:
                dead, ends = who if line == ["die"] else "", None
        return "together " + " ; ".join(f"{who} {' '.join(line)}" for who, line in items)

    def end(self) -> Item:
        """Of a process, by itself or by another one."""
        who = self.rng.choice(self.living)
        if process_of(who) != "m" and self.rng.random() < 0.5:
            return who, ["die"]
        return who, ["kill", str(self.rng.choice(sorted(self.world.twins)))]

    def other(self) -> list[str]:
        if self.rng.random() < 0.5:
            return ["restore", f"@{self.author.saved()}"]
        return ["nap", str(self.rng.randrange(1500))]

    def number(self) -> int:
        """By which the one that acts knows the arena; seldom another."""
        numbers = self.world.state.descriptors
        same = [n for n, d in numbers.items() if d is self.arena]
        file = [n for n, d in numbers.items() if self.node and d.node is self.node]
        found = same if same and self.rng.random() < 0.8 else file
        return self.rng.choice(sorted(found)) if found else self.author.number()

    def one(self, who: str) -> list[str]:
        with self.world.as_process(process_of(who)):
            return self.call(self.living.index(who))

    def call(self, place: int) -> list[str]:
        a, chance = self.author, self.rng.random()
        if chance < 0.3:
            at = (self.rng.randrange(6) * len(self.living) + place) * self.stripe
            return f"pwrite {self.number()} {self.stripe} {at} {a.seed()}".split()
        if chance < 0.5:
            return f"write {self.number()} {self.record}".split()
        if chance < 0.6:
            return f"fill {a.path()} {a.flags()} {a.length()} {a.seed()}".split()
        for _ in range(50):
            line = a.line().split()
            if line[0] in BY_NUMBER | BY_NAME | BY_STREAM:
                return line
        return ["fsize", str(self.number())]


def program(
    seed: int, length: int, restorable: bool = True, several: bool = False, threads: bool = False, deadly: bool = True
) -> list[str]:
    """`length` lines; a `tree` after every tenth and after every checkpoint and restore. several: processes.
    deadly: one of several may be killed amid what they do, so that the player has to ask what it had done."""
    rng = random.Random(seed)
    world = World(restorable)
    author = Author(rng, world, deadly)
    lines: list[str] = ["mkdir d0", "mkdir d1"]
    for line in lines:
        world.apply(line)
    while len(lines) < length:
        line = author.line_of_several(threads) if several else author.line_of_threads() if threads else author.line()
        if world.apply(line) is None:
            continue
        lines.append(line)
        if line.startswith(("checkpoint", "restore", "together")) or len(lines) % 10 == 0:
            world.apply("tree")
            lines.append("tree")
    return lines


BEFORE = [
    "mkdir d0", "open f0 rw,creat", "write 3 5000 1", "open f1 rw,creat", "write 4 70000 2", "open d0/a rw,creat",
    "write 5 12288 3"]


def branches(seed: int, length: int, names: Names | None = None) -> list[str]:
    """`length` lines of which a history grows that is a tree: many checkpoints, and restores to any of them. Played
    where BEFORE was played before the run, or where there is what names say."""
    rng = random.Random(seed)
    world = World(True, names=names) if names else World(True, before=BEFORE)
    author = Author(rng, world)
    lines: list[str] = []
    weights = [weight for weight, _ in _BRANCHES]
    while len(lines) < length:
        line = rng.choices(_BRANCHES, weights)[0][1](author)
        if world.apply(line) is not None:
            lines.append(line)
            if line.startswith("restore"):
                lines.append("tree")
    return lines
