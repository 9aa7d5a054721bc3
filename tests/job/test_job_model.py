"""A job of three runs against plain trees: what they do to files, checkpoints and kills amid it, every index back."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Tree, difference, picture
from ranks import Rank, end

pytest.importorskip("zmq")

NAMES = ["a", "b", "c", "d/a", "d/b", "e/a"]
STEPS = 40


def seen_in(folder: Path) -> Tree:
    """Of links only those that have a name there: while a job runs it keeps what its runs have taken away, and one run
    does not know of a name that another has given."""
    tree = picture(folder)
    files = {path: (folder / path).stat().st_ino for path, entry in tree.items() if entry.kind == "file"}
    names = Counter(files.values())
    return tree | {path: replace(tree[path], links=names[ino]) for path, ino in files.items()}


def checkpoint(lab: Lab, seen: dict[int, Tree]) -> None:
    seen[int(lab.verb("checkpoint", cwd=lab.work).stdout)] = seen_in(lab.work)


def act(random_: random.Random, ranks: list[Any], held: dict[Any, set[str]], where: Sequence[str] = ("",)) -> None:
    """One thing, by one of them; it may well be refused by the kernel.

    where: folders, each with the names.
    """
    def chosen(names: list[str]) -> str:
        return os.path.join(random_.choice(where), random_.choice(names)) if len(where) > 1 else random_.choice(names)

    rank, name = random_.choice(ranks), chosen(NAMES)
    data = "".join(random_.choice("abcdefgh") for _ in range(random_.choice([1, 7, 100, 5000])))
    what = random_.choice(["write"] * 8 + ["append"] * 3 + ["truncate", "anew", "close", "unlink", "rename", "rename",
                                                           "link", "mkdir", "mkdir", "rmdir", "chmod", "symlink",
                                                           "move", "utime"])
    if what == "write":
        rank.do("write", name, random_.choice([0, 3, 4096, 9000, 20000]), data)
        held[rank].add(name)
    elif what in ("append", "anew"):
        rank.do(what, name, data)
    elif what == "truncate":
        rank.do(what, name, random_.choice([0, 10, 4097, 30000]))
    elif what == "close":
        if name in held[rank]:
            rank.do("close", name)
            held[rank].discard(name)
    elif what in ("rename", "link"):
        rank.do(what, name, chosen(NAMES))
    elif what in ("mkdir", "rmdir"):
        rank.do(what, chosen(["d", "e"]))
    elif what == "move":
        rank.do("rename", chosen(["d", "e"]), chosen(["d", "e", "f"]))
    elif what == "chmod":
        rank.do(what, name, random_.choice([0o600, 0o644, 0o755]))
    elif what == "utime":                  # as a copy has it, or another machine's clock
        rank.do(what, name, random_.choice([5 * 10**8, 4 * 10**9]))
    elif what == "symlink":
        rank.do(what, "target", name)
    else:
        rank.do(what, name)


def play(lab: Lab, seed: int, kills: bool, jobs: int = 1, ends: bool = False) -> dict[int, Tree]:
    """jobs: one after another, each from any index. ends: runs do while their job goes on."""
    random_ = random.Random(seed)
    if random_.random() < 0.5:             # the files are older than the job
        (lab.work / "d").mkdir()
        for name in NAMES[:4]:
            (lab.work / name).write_bytes(os.urandom(10000))
        os.utime(lab.work / "b", (4 * 10**9,) * 2)
    seen = {0: seen_in(lab.work)}
    for number in range(jobs):
        if number:
            lab.restore(random_.choice(sorted(seen)))
        play_one(lab, random_, kills, seen, ends)
    return seen


def play_one(lab: Lab, random_: random.Random, kills: bool, seen: dict[int, Tree], ends: bool = False) -> None:
    ranks = [Rank(lab) for _ in range(3)]
    held: dict[Rank, set[str]] = {rank.ready(): set() for rank in ranks}
    for _ in range(STEPS):
        if random_.random() < 0.12:
            checkpoint(lab, seen)
        elif kills and len(ranks) > 1 and random_.random() < 0.04:
            ranks.pop(random_.randrange(len(ranks))).kill()
        elif ends and len(ranks) > 1 and random_.random() < 0.06:
            ranks.pop(random_.randrange(len(ranks))).end()
        elif random_.random() < 0.03:
            ranks.append(Rank(lab).ready())
            held[ranks[-1]] = set()
        else:
            act(random_, ranks, held)
    if kills and random_.random() < 0.5:
        for rank in ranks:
            rank.kill()
    else:
        said = end(ranks)
        assert "Traceback" not in said, said
    seen[max(index["index"] for index in lab.log()["checkpoints"])] = seen_in(lab.work)


def orders(seed: int, indexes: list[int]) -> Iterator[int]:
    random_ = random.Random(seed)
    yield from sorted(indexes)
    yield from random_.sample(indexes, len(indexes))


def back(lab: Lab, what: str, seed: int, seen: dict[int, Tree]) -> None:
    """Every index, beside the files and in their place."""
    for index, tree in seen.items():
        there = lab.folder / f"copy.{index}"
        lab.verb("restore", index, "--to", there)
        untouched = {path: entry for path, entry in tree.items()
                     if all(each.get(path) == entry for each in seen.values())}
        have = untouched | seen_in(there / "work")
        for path, entry in have.items():   # a folder around them that no run has touched
            if entry.kind == "folder" and entry.mode == 0o700 and path in tree:
                have[path] = tree[path]
        assert not difference(have, tree), f"{what}, --to of {index}: {difference(have, tree)}"
    for index in orders(seed, list(seen)):
        lab.restore(index)
        lab.assert_state(seen[index], f"{what}, restore {index}")
    lab.verb("verify")


def check(lab: Lab, seed: int, kills: bool, jobs: int = 1, ends: bool = False) -> None:
    seen = play(lab, seed, kills, jobs, ends)
    back(lab, f"seed {seed}", seed, seen)
    random_ = random.Random(seed)
    lab.verb("prune", "--keep-last", random_.randint(1, len(seen)))
    left = {index["index"] for index in lab.log()["checkpoints"]} - {0}
    for index in random_.sample(sorted(left), len(left)):
        lab.restore(index)
        lab.assert_state(seen[index], f"seed {seed}, pruned, restore {index}")
    lab.verb("verify")


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(4))
def test_every_index_of_a_job(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=False)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(100, 103))
def test_every_index_of_a_job_whose_runs_are_killed(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_many_jobs(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6000, 6060))
def test_many_jobs_whose_runs_end(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 4 > 0, ends=True)


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", [200, 201])
def test_jobs_one_after_another(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 2 == 1, jobs=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4000, 4040))
def test_many_jobs_one_after_another(lab: Lab, seed: int) -> None:
    check(lab, seed, kills=seed % 2 == 1, jobs=3)
