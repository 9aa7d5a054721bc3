"""Runs of a job, the one that counts and the verbs are killed: at each of their operations, and at any moment.

No file changes while a checkpoint is asked for, so an index that came to be meanwhile, by whomever, is of that state.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import killing
import pytest
from lab import Lab, Tree, gone, picture, wait_until
from ranks import Rank
from ring import COUNT, RING, assert_one_instant
from test_job import counter
from test_job_model import act, back

pytest.importorskip("zmq")

KILLED = -9


def tree(folder: Path) -> Tree:
    """What is there; a file's links are its names here: the live stores keep others."""
    found = picture(folder)
    numbers = {path: os.lstat(folder / path).st_ino for path in found}
    count = Counter(numbers.values())
    return {path: replace(entry, links=count[numbers[path]]) if entry.kind == "file" else entry
            for path, entry in found.items()}


class Crew:
    """Three runs, of which some are killed. `seen`: what each index must give back."""

    def __init__(self, lab: Lab, seed: int, every: int, env: Mapping[str, str] | None = None) -> None:
        self.every = every                 # so manyth operation of what completes the job
        self.lab, self.random, self.env = lab, random.Random(seed), env
        self.seen: dict[int, Tree] = {0: picture(lab.work)}
        self.ranks: list[Rank] = []
        self.held: dict[Rank, set[str]] = {}
        self.orders: dict[Rank, Path] = {}
        self.pids: dict[Rank, int] = {}
        self.kills = 0
        self.fill()

    def fill(self) -> None:
        """What is missing of three."""
        new = []
        while len(self.ranks) < 3:
            order = self.lab.folder / f"order.{len(self.orders)}"
            rank = Rank(self.lab, order=order, env=self.env)
            self.ranks.append(rank)
            new.append(rank)
            self.held[rank], self.orders[rank] = set(), order
        for rank in new:
            self.pids[rank] = rank.ready().program()

    def act(self, count: int) -> None:
        for _ in range(count):
            act(self.random, self.ranks, self.held)

    def bury(self) -> None:
        """The programs of the runs that were killed die too."""
        for rank in [rank for rank in self.ranks if rank.process.poll() is not None]:
            assert rank.process.returncode == KILLED, rank.process.stderr and rank.process.stderr.read()
            with suppress(ProcessLookupError):
                os.kill(self.pids[rank], 9)
            wait_until(lambda pid=self.pids[rank]: gone(pid), "the program is still there")
            self.ranks.remove(rank)
            self.kills += 1
            assert rank.process.stderr and "Traceback" not in (said := rank.process.stderr.read()), said

    def there(self) -> set[int]:
        """The indexes that the store has."""
        return {int(name.split(".")[0]) for name in os.listdir(self.lab.store / "checkpoints")
                if name.split(".")[1:2] == ["meta"] and not name.endswith(".tmp")}

    def note(self) -> None:
        """Nothing has changed since the last were asked for."""
        now = tree(self.lab.work)
        for index in self.there() - self.seen.keys():
            self.seen[index] = now

    def checkpoint(self) -> None:
        done = self.lab.verb("checkpoint", code=None, cwd=self.lab.work)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        self.note()
        assert done.returncode or int(done.stdout) in self.seen

    def end(self) -> None:
        """All are killed, some of them while they end; then the verb that completes the job, until it is through."""
        before = self.there()
        for rank in self.ranks:
            killing.order(self.orders[rank], self.random.randrange(1, 120))
        for rank in self.ranks:
            if self.random.random() < 0.5:
                with suppress(BrokenPipeError):
                    rank.ask("exit", "0")
            else:
                rank.process.kill()
        for rank in self.ranks:
            rank.process.wait()
            with suppress(ProcessLookupError):
                os.kill(self.pids[rank], 9)
            wait_until(lambda pid=self.pids[rank]: gone(pid), "the program is still there")
        order = self.lab.folder / "order.log"
        for nth in range(1, 1000, self.every):
            killing.order(order, nth)
            done = subprocess.run(killing.argv(self.lab.argv("log")), env=self.lab.env | {"KILL_ORDER": str(order)},
                                  capture_output=True, text=True, check=False)
            self.note()
            if done.returncode != KILLED:
                break
            self.kills += 1
        assert done.returncode == 0, done.stderr
        assert len(self.there() - before) <= 1, "it was completed twice"
        assert not list(self.lab.store.glob("nodes*"))


def steps(lab: Lab, seed: int, first: int, step: int, last: int, every: int) -> None:
    """Of every `step`th operation of the one that counts, and of another, in a checkpoint."""
    crew = Crew(lab, seed, every)
    for at, nth in enumerate(range(first, last, step)):
        crew.act(4)
        one = counter(lab, crew.ranks)
        if at % 3 == 2:
            one = crew.random.choice([rank for rank in crew.ranks if rank is not one])
        killing.order(crew.orders[one], nth)
        crew.checkpoint()
        killing.order(crew.orders[one], killing.NEVER)
        crew.bury()
        if crew.random.random() < 0.3:
            crew.act(2)
            crew.checkpoint()
        crew.fill()
    crew.end()
    back(lab, f"seed {seed}", seed, crew.seen)
    print(f"seed {seed}: {crew.kills} kills")


def test_killed_at_some_operations(lab: Lab) -> None:
    steps(lab, 5, 2, 29, 130, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_every_operation(lab: Lab, seed: int) -> None:
    steps(lab, seed, 1 + seed, 10, 150, 1)


STEPS = 1500


def runs(lab: Lab) -> list[subprocess.Popen[str]]:
    env = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
    return [subprocess.Popen([*lab.argv("run", "--job", "--resume", "--every", "100ms"), "--", sys.executable, "-c",
                              RING, str(me), str(COUNT), str(STEPS), "0"], cwd=lab.work, env=env, text=True,
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for me in range(COUNT)]


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        wait_until(lambda pid=pid: gone(pid), f"{pid} is still there")


def strike(random_: random.Random, ranks: list[subprocess.Popen[str]]) -> int:
    """A node, or a part of it; how many were killed."""
    alive = [rank for rank in ranks if rank.poll() is None]
    if not alive:
        return 0
    rank = random_.choice(alive)
    programs = children(rank.pid)
    what = random_.choice(["node", "run first", "program first", "program"])
    if what == "program":
        kill(programs)
    elif what == "program first":
        kill(programs)
        kill([rank.pid])
    else:
        os.kill(rank.pid, signal.SIGKILL)
        if what == "run first":
            time.sleep(random_.random() / 5)
        kill([*programs, rank.pid])
    return 1


def resumed(lab: Lab, seed: int, wanted: int) -> int:
    """A job that is killed again and again, and continued, has the files of one that was not; how many kills."""
    random_, kills = random.Random(seed), 0
    (lab.work / "turn").touch()
    (lab.work / "grid").touch()
    while True:
        ranks = runs(lab)
        ends, before = time.monotonic() + 0.4 + random_.random() * 1.5, kills
        while kills < wanted and time.monotonic() < ends:
            if random_.random() < 0.5:
                lab.verb("checkpoint", cwd=lab.work, code=None)
            time.sleep(random_.random() / 3)
            kills += strike(random_, ranks)
        if kills != before:                # what a launcher does when a task of it has died
            pids = [pid for rank in ranks for pid in (*children(rank.pid), rank.pid)]
            kills += sum(rank.poll() is None for rank in ranks)
            kill(pids)
        said = "".join(rank.communicate()[1] for rank in ranks)
        assert "Traceback" not in said and "lost" not in said, said
        if all(rank.returncode == 0 for rank in ranks):
            break
    assert assert_one_instant(lab.work, "the end") == [STEPS] * COUNT
    indexes = [entry["index"] for entry in lab.log()["checkpoints"] if entry["index"]]
    for index in random_.sample(indexes, min(len(indexes), 12)):
        lab.verb("restore", index, "--to", lab.folder / f"copy.{index}")
        assert_one_instant(lab.folder / f"copy.{index}" / "work", f"index {index}")
    lab.verb("verify")
    return kills


def test_killed_at_any_moment_and_resumed(lab: Lab) -> None:
    print(resumed(lab, 1, 4), "kills")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_hundred_kills_at_any_moment(lab: Lab, seed: int) -> None:
    print(resumed(lab, seed, 12), "kills")
