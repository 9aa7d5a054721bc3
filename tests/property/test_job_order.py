"""Runs of a job that write one file at the same time, against a file whose every state is known: of each byte the entry
that counts is what the last checkpoint has, or it is lost; with all lines in the log of their order none is lost."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("zmq")

from metamori.runtime.job import order
from metamori.runtime.job.order import Noted, Order, Saved, earliest_first
from metamori.store.format.records import UndoEntry
from metamori.store.io import commit
from metamori.store.read.store import Store

BLOCK, BLOCKS = 4, 6
SIZE = BLOCK * BLOCKS
NOW = 10**6


class Run:
    """One of them: it saves blocks and writes over bytes of them, a step at a time."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.machine = world, number, f"machine {number % world.machines}"
        self.buffer = bytearray()
        self.steps: list[tuple[str, int, int]] = []    # of the call that is under way
        self.is_dead = False
        self.forget()

    def forget(self) -> None:
        """After a checkpoint."""
        self.saved: set[int] = set()
        self.wrote: dict[int, tuple[int, int]] = {}    # by block: from where, to where
        self.copied: list[tuple[int, int, int]] = []   # start, end, place in the buffer; each with
        self.noted: list[Noted | None] = []

    def call(self) -> None:
        """A write, of which blocks that have no pre-image are saved first, one by one or all at once."""
        start = self.world.random.randrange(SIZE)
        end = min(SIZE, start + self.world.random.choice([1, 2, 4, 7, 12]))
        first, last = start // BLOCK, -(-end // BLOCK)
        if self.world.random.random() < 0.3:           # as much around them
            first, last = 0, BLOCKS
        block = first
        while block < last:
            if block in self.saved:
                block += 1
                continue
            stop = block + 1
            while stop < last and stop not in self.saved and self.world.random.random() < 0.7:
                stop += 1
            self.steps += [("copy", block, stop), ("note", block, stop)]
            block = stop
        self.steps.append(("write", start, end))

    def step(self) -> None:
        what, start, end = self.steps.pop(0)
        world = self.world
        world.now += world.random.randrange(1, 20)
        if what == "copy":
            self.copied.append((start * BLOCK, end * BLOCK, len(self.buffer)))
            self.buffer += world.file[start * BLOCK:end * BLOCK]
            self.saved |= set(range(start, end))
        elif what == "note":
            world.lines += 1
            line = world.lines if world.random.random() < world.has_line else -1
            doubt = 0 if world.machines == 1 else world.doubt
            wrong = world.random.randint(-doubt, doubt) if doubt < NOW else world.wrong[self.number % world.machines]
            self.noted.append(Noted(world.now + wrong, max(doubt + 1, 1), self.machine, line))
        else:
            for at in range(start, end):
                world.file[at] = world.random.randrange(1, 256)
                low, high = self.wrote.get(at // BLOCK, (at, at))
                self.wrote[at // BLOCK] = min(low, at), max(high, at + 1)

    def rows(self) -> list[Saved]:
        """As a run that lives says them; of one that was killed nobody knows what it wrote over."""
        found: list[Saved] = []
        for (start, end, place), noted in zip(self.copied, self.noted, strict=False):
            for block in range(start // BLOCK, end // BLOCK):
                low, high = (block * BLOCK, (block + 1) * BLOCK) if self.is_dead else self.wrote.get(block, (0, 0))
                if low < high:
                    entry = UndoEntry(1, low, high, self.number + 1, place + low - start, 0)
                    found.append((noted, str(self.number), entry))
        return found


class World:
    def __init__(self, seed: int, has_line: float, doubt: int, machines: int) -> None:
        self.random = random.Random(seed)
        self.has_line, self.doubt, self.machines = has_line, doubt, machines
        self.wrong = [self.random.randrange(NOW) for _ in range(machines)]
        self.file = bytearray(self.random.randbytes(SIZE))
        self.lines, self.now = 0, NOW
        self.runs = [Run(self, number) for number in range(self.random.choice([2, 3, 4]))]
        self.at_last = bytes(self.file)
        self.seen: Counter[str] = Counter()

    def play(self, steps: int) -> None:
        for _ in range(steps):
            alive = [run for run in self.runs if not run.is_dead]
            run = self.random.choice(alive)
            if self.random.random() < 0.02 and len(alive) > 1:
                run.is_dead = True                     # in the midst of whatever
            elif self.random.random() < 0.03:
                self.checkpoint()
            elif run.steps:
                run.step()
            else:
                run.call()
        self.checkpoint()

    def checkpoint(self) -> None:
        """No call is under way."""
        for run in self.runs:
            while run.steps and not run.is_dead:
                run.step()
        rows = [row for run in self.runs for row in run.rows()]
        self.random.shuffle(rows)
        rows.sort(key=lambda row: row[1])              # each run's together; its own in no order
        back = bytearray(self.file)
        lost = set()
        for entry in reversed(earliest_first(rows, self.differing)):
            lost -= set(range(entry.start, entry.end))
            if entry.run:
                back[entry.start:entry.end] = self.bytes_of(entry, entry.start, entry.end)
            else:
                lost |= set(range(entry.start, entry.end))
        for at in range(SIZE):
            assert at in lost or back[at] == self.at_last[at], at
        self.seen["lost"] += len(lost)
        self.seen["saved by several"] += sum(
            len({run for _, run, entry in rows if entry.start <= at < entry.end}) > 1 for at in range(SIZE))
        self.runs = [run for run in self.runs if not run.is_dead]
        while len(self.runs) < 2:
            self.runs.append(Run(self, max(run.number for run in self.runs) + 1))
        for run in self.runs:
            run.forget()
        self.at_last = bytes(self.file)

    def bytes_of(self, entry: UndoEntry, start: int, end: int) -> bytes:
        place = entry.buffer_start + start - entry.start
        return next(bytes(run.buffer[place:place + end - start]) for run in self.runs if run.number + 1 == entry.run)

    def differing(self, one: UndoEntry, other: UndoEntry) -> list[UndoEntry]:
        start, end = max(one.start, other.start), min(one.end, other.end)
        return [UndoEntry(1, at, at + 1, 0, 0, 0) for at in range(start, end)
                if self.bytes_of(one, at, at + 1) != self.bytes_of(other, at, at + 1)]


@pytest.mark.parametrize("doubt", [5, 100, 2 * NOW])
@pytest.mark.parametrize("has_line", [1.0, 0.9, 0.0])
def test_each_byte_is_of_the_last_checkpoint_or_lost(has_line: float, doubt: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        world = World(seed, has_line, doubt, machines=4)
        world.play(300)
        seen += world.seen
    assert seen["saved by several"] > 1000
    assert bool(seen["lost"]) == (has_line < 1), seen


def test_on_one_machine_clocks_are_enough() -> None:
    for seed in range(100):
        world = World(seed, 0.0, 0, machines=1)
        world.play(300)
        assert not world.seen["lost"]


def test_lines_and_clocks_that_contradict_each_other_say_nothing() -> None:
    entries = [UndoEntry(1, 0, 8, run, 0, 0) for run in (1, 2)]
    lost = UndoEntry(1, 0, 8, 0, 0, 0)
    for shift, said in ((-1000, entries), (0, entries), (1000, [lost, *entries])):
        rows: list[Saved] = [(Noted(NOW, 5, "a", 24), "a", entries[0]),
                             (Noted(NOW - shift, 5, "b", 48), "b", entries[1])]
        assert earliest_first(rows[::-1], lambda one, other: [lost]) == said


@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_lines_that_are_torn_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(order, "_PIECE", piece)
    store = Store.create_or_open(str(tmp_path / "store"))
    reader = Order(store)
    assert reader.lines({(1, 2)}) == {}                # of a job of before
    os.mkdir(store.layout.nodes)
    random_ = random.Random(4)
    data, stand = b"", {}
    for stamp in range(1, 400):
        line = order.ORDER.pack(0x7264726f, 0, 7, stamp)
        line = order.ORDER.pack(0x7264726f, order.zlib.crc32(line[8:]), 7, stamp)
        if random_.random() < 0.2:
            cut = random_.randrange(1, len(line))
            data += random_.choice([line[:cut], bytes(cut), line[:cut] + b"\xff" + line[cut + 1:], b"ordr" * 3])
        else:
            stand[7, stamp] = len(data)
            data += line
    commit.write_file(store.door, store.layout.order, data[:len(data) // 2 + 5], durable=False)
    first = reader.lines(set(stand))
    assert reader.lines(set(stand)) == first   # the checkpoint has failed, and is tried again
    reader.folded()
    commit.write_file(store.door, store.layout.order, data, durable=False)
    assert reader.lines(set(stand) - first.keys()) == {key: stand[key] for key in stand.keys() - first.keys()}
    assert first == {key: stand[key] for key in first} and 100 < len(first) < len(stand) - 100
    assert Order(store).lines({(7, 1), (8, 1)}).keys() <= {(7, 1)}


def test_lines_of_checkpoints_that_are_there_are_not_read_again(tmp_path: Path) -> None:
    store = Store.create_or_open(str(tmp_path / "store"))
    os.mkdir(store.layout.nodes)
    reader, line = Order(store), b""
    for stamp in range(1, 4):
        said = order.ORDER.pack(0x7264726f, 0, 7, stamp)
        line += order.ORDER.pack(0x7264726f, order.zlib.crc32(said[8:]), 7, stamp)
        commit.write_file(store.door, store.layout.order, line, durable=False)
        assert reader.lines({(7, stamp)}) == {(7, stamp): (stamp - 1) * order.ORDER.size}
        reader.folded()
    assert reader.lines({(7, 1), (7, 3)}) == {(7, 3): 2 * order.ORDER.size}
