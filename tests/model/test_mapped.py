"""One file, written through mappings and through descriptors at once, against an array of bytes.

Any number of shared and private mappings, readable and writable, outliving their descriptors, moved, cut, protected
anew, inherited by children; between them writes, truncations, checkpoints and restores inside the program. At the end
every checkpoint is restored from the command line.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field

import pytest
from files_model import made, told
from honest import assert_honest
from lab import Lab, Session

PAGE = 4096
LARGEST = 40 * PAGE


@dataclass
class View:
    """A mapping of the driver's. `own`: pages of a private mapping that were written, and show no more the file."""

    number: int
    start: int
    length: int
    shared: bool
    writes: bool
    could_write: bool
    own: set[int] = field(default_factory=set)


class File:
    """What the file must hold; `ask` goes to the driver."""

    def __init__(self, session: Session, random_: random.Random, restorable: bool) -> None:
        self.ask, self.random, self.restorable = session.ask, random_, restorable
        self.content = b""
        self.views: list[View] = []
        self.saved: dict[int, bytes] = {}
        self.read_only = int(self.ask("open old r"))
        self.fd = int(self.ask("open old rw"))

    def expect(self, line: str, want: str) -> str:
        have = self.ask(line)
        assert have == want or want == "*", f"{line}: have {have}, want {want}"
        return have

    def put(self, at: int, data: bytes) -> None:
        grown = self.content.ljust(at, b"\0")
        self.content = grown[:at] + data + grown[at + len(data):]

    def step(self) -> None:
        kinds = ["pwrite", "pread", "resize", "map", "peek", "poke", "childpoke", "msync", "cut", "remap", "protect",
                 "punch", "append", "checkpoint", "reopen"] + ["restore"] * self.restorable
        weights = [6, 3, 2, 4, 8, 12, 1, 1, 1, 2, 2, 1, 2, 4, 1] + [2] * self.restorable
        getattr(self, self.random.choices(kinds, weights)[0])()

    # through descriptors

    def place(self) -> tuple[int, int]:
        at = self.random.randrange(LARGEST)
        return at, min(self.random.choice([1, 100, PAGE, 3 * PAGE, 10 * PAGE]), LARGEST - at)

    def pwrite(self) -> None:
        (at, length), seed = self.place(), self.random.randrange(1000)
        self.expect(f"pwrite {self.fd} {length} {at} {seed}", str(length))
        self.put(at, made(seed, length))

    def append(self) -> None:
        length, seed = min(self.random.randrange(1, 2 * PAGE), LARGEST - len(self.content)), self.random.randrange(1000)
        if length > 0:
            self.expect(f"lseek {self.fd} 0 end", str(len(self.content)))
            self.expect(f"write {self.fd} {length} {seed}", str(length))
            self.put(len(self.content), made(seed, length))

    def pread(self) -> None:
        at, length = self.place()
        self.expect(f"pread {self.read_only} {length} {at}", told(self.content[at:at + length]))

    def resize(self) -> None:
        size = self.random.randrange(LARGEST)
        self.expect(f"ftruncate {self.fd} {size}", "0")
        self.content = self.content[:size].ljust(size, b"\0")
        for view in self.views:            # the kernel drops a private mapping's own pages beyond the end
            view.own = {page for page in view.own if view.start + page * PAGE < size}

    def reopen(self) -> None:
        """Mappings outlive their descriptor."""
        self.expect(f"close {self.fd}", "0")
        self.fd = int(self.ask("open old rw"))

    # through mappings

    def map(self) -> None:
        start = self.random.randrange(LARGEST // PAGE) * PAGE
        length = self.random.randrange(1, LARGEST - start + 1)
        shared, writes, write_only_later = (self.random.random() < p for p in (0.7, 0.5, 0.5))
        fd = self.fd if (shared and writes) or write_only_later else self.read_only
        kind = "shared" if shared else "private"
        number = int(self.ask(f"map {fd} {length} {'rw' if writes else 'r'} {kind} {start}"))
        assert number >= 0
        self.views.append(View(number, start, length, shared, writes, not shared or fd == self.fd))
        if len(self.views) > 6:
            self.drop(self.views[0])

    def drop(self, view: View) -> None:
        self.expect(f"unmap {view.number} {view.length} 0", "0")
        self.views.remove(view)

    def range_of(self, writes: bool = False) -> tuple[View, int, int] | None:
        """A mapping, and an offset and a length in it that lie in the file."""
        found = [view for view in self.views if view.start < len(self.content) and (view.writes or not writes)]
        if not found:
            return None
        view = self.random.choice(found)
        room = min(view.length, len(self.content) - view.start)
        at = self.random.randrange(room)
        return view, at, self.random.randrange(1, min(room - at, 3 * PAGE) + 1)

    def peek(self) -> None:
        found = self.range_of()
        if found:
            view, at, length = found
            if not view.own & {*range(at // PAGE, (at + length - 1) // PAGE + 1)}:
                here = view.start + at
                self.expect(f"peek {view.number} {length} {at}", told(self.content[here:here + length]))

    def poke(self, word: str = "poke") -> None:
        found = self.range_of(writes=True)
        if not found:
            return
        (view, at, length), seed = found, self.random.randrange(1000)
        self.expect(f"{word} {view.number} {length} {at} {seed}", "0")
        if view.shared:
            self.put(view.start + at, made(seed, length))
        elif word == "poke":
            view.own |= {*range(at // PAGE, (at + length - 1) // PAGE + 1)}

    def childpoke(self) -> None:
        self.poke("childpoke")

    def msync(self) -> None:
        if self.views:
            self.expect(f"msync {self.random.choice(self.views).number}", "0")

    def cut(self) -> None:
        """Unmap the second half of one, or all."""
        if self.views:
            view = self.random.choice(self.views)
            half = view.length // 2 // PAGE * PAGE
            if half and self.random.random() < 0.5:
                self.expect(f"unmap {view.number} {view.length - half} {half}", "0")
                self.expect(f"remap {view.number} {half}", "0")
                view.length = half
            else:
                self.drop(view)

    def remap(self) -> None:
        shared = [view for view in self.views if view.shared]
        if shared:
            view = self.random.choice(shared)
            length = self.random.randrange(1, LARGEST - view.start + 1)
            self.expect(f"remap {view.number} {length}", "0")
            view.length = length

    def protect(self) -> None:
        if self.views:
            view = self.random.choice(self.views)
            writes = self.random.random() < 0.7
            refused = writes and not view.could_write
            self.expect(f"protect {view.number} {'rw' if writes else 'r'}", "-1 EACCES" if refused else "0")
            view.writes = view.writes if refused else writes

    def punch(self) -> None:
        shared = [view for view in self.views if view.shared and view.writes and view.length > PAGE]
        if shared:
            view = self.random.choice(shared)
            at = self.random.randrange(view.length // PAGE) * PAGE
            self.expect(f"punch {view.number} {PAGE} {at}", "0")
            here = view.start + at
            if here < len(self.content):
                self.put(here, bytes(min(PAGE, len(self.content) - here)))

    # checkpoints

    def checkpoint(self) -> None:
        if self.restorable:
            self.saved[int(self.ask("checkpoint"))] = self.content

    def restore(self) -> None:
        if self.saved:
            index = self.random.choice([*self.saved])
            self.expect(f"restore {index}", "0")
            before, self.content = len(self.content), self.saved[index]
            for view in self.views:
                view.own = {page for page in view.own if view.start + page * PAGE < min(before, len(self.content))}


def play(lab: Lab, seed: int, length: int, native: bool, options: list[str]) -> File:
    (lab.work / "old").write_bytes(b"")
    session = lab.start(*options, native=native)
    file = File(session, random.Random(seed), not native)
    for _ in range(length):
        file.step()
    file.expect(f"pread {file.read_only} {LARGEST} 0", told(file.content))
    assert session.end() == 0, session.stderr()
    assert (lab.work / "old").read_bytes() == file.content, "after the end"
    return file


@pytest.mark.parametrize("seed", range(3))
def test_model_itself_natively(native_lab: Lab, seed: int) -> None:
    play(native_lab, seed, 2000, True, [])


@pytest.mark.in_turn("seed")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
@pytest.mark.parametrize("seed", range(4))
def test_mapped(lab: Lab, seed: int, options: list[str]) -> None:
    file = play(lab, seed, 250, False, options)
    assert_honest(lab.store, lab.work, {index: f"tree old:f:644:{len(old)}:1:{zlib.crc32(old):08x}"
                                        for index, old in file.saved.items()})
