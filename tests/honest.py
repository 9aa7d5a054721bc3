"""Whether a store is honest: each index comes back exactly, or it was named as lost before anybody asked for it.

One question for every test that may have lost something: random programs, kills, external modification. For each index
either `restore --to` gives exactly the bytes of the model, or `verify` or `log` have named it before; and the same is
true of a restore in place, which then touches nothing. A wrong byte with status 0 is never allowed, nor is a traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metamori.cli.main import main

DAMAGED, NO_SUCH = 12, 13
Trees = Mapping[int, str | Collection[str]]  # of an index: the tree that it has, or those that it may have


@dataclass(frozen=True)
class Verb:
    """What a verb, run in this process, answered."""

    code: int
    out: str
    err: str


def verb(store: Path, name: str, *words: object) -> Verb:
    """An uncaught exception comes through: it is a bug."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([name, "--store", str(store), *map(str, words)])
    return Verb(code, out.getvalue(), err.getvalue())


def tree_of(folder: Path) -> str:
    """As the driver answers `tree`."""
    parts = ["tree"]

    def draw(where: Path, prefix: str) -> None:
        for name in sorted(os.listdir(where)):
            found, path = os.lstat(where / name), prefix + name
            if stat.S_ISLNK(found.st_mode):
                parts.append(f"{path}:l:777:0:0:00000000")
            elif stat.S_ISDIR(found.st_mode):
                parts.append(f"{path}:d:{stat.S_IMODE(found.st_mode):o}:0:0:00000000")
                draw(where / name, path + "/")
            else:
                crc, mode = zlib.crc32((where / name).read_bytes()), stat.S_IMODE(found.st_mode)
                parts.append(f"{path}:f:{mode:o}:{found.st_size}:{found.st_nlink}:{crc:08x}")

    draw(folder, "")
    return " ".join(parts)


@dataclass
class Told:
    """What was said of a store before any index was asked for."""

    listed: set[int]           # by `log`
    lost: set[int]             # named by `verify` or `log` as not to be had exactly
    problems: list[str]


def told(store: Path) -> Told:
    """Asks `verify` and `log`; their statuses must agree with what they say."""
    looked, log = verb(store, "verify", "--json"), verb(store, "log", "--json")
    assert looked.code in (0, DAMAGED), looked
    assert log.code in (0, DAMAGED), log
    found = json.loads(looked.out)
    assert (looked.code == DAMAGED) == bool(found["problems"]) == (not found["ok"]), looked
    entries: list[dict[str, Any]] = json.loads(log.out)["checkpoints"] if log.out else []
    lost = {int(number) for text in found["problems"] for number in re.findall(r"checkpoint (\d+)", text)}
    lost |= {each["index"] for each in found.get("lost", [])}
    lost |= {entry["index"] for entry in entries if entry.get("lost")}
    return Told({entry["index"] for entry in entries}, lost, found["problems"])


def assert_honest(
    store: Path, work: Path, trees: Trees, *, lossless: bool = True, gone: bool = False, moving: bool = True,
    untracked: str = "", rng: random.Random | None = None,
) -> Told:
    """Every index of `trees`, by `restore --to`, then (moving) in place, from the last to the first and back, or in
    any order that rng gives.

    lossless: nothing may be lost at all. gone: indexes may be refused as pruned, or as the past of single mode.
    untracked: the tree of what was there before any run; a copy has only what the runs have touched.
    """
    said = told(store)
    assert not (lossless and (said.lost or said.problems)), f"lost: {sorted(said.lost)}: {said.problems}"
    assert gone or set(trees) <= said.listed, f"not in the log: {sorted(set(trees) - said.listed)}"
    for index in sorted(trees):
        _copied(store, work, index, _allowed(trees[index]), said, gone, untracked)
    order = sorted(trees, reverse=True)
    order += order[:1]
    if rng:
        rng.shuffle(order)
    for index in order if moving else ():
        _moved(store, work, index, _allowed(trees[index]), said, gone)
    after = told(store)
    assert after.lost <= said.lost, f"lost by looking: {sorted(after.lost - said.lost)}: {after.problems}"
    return said


def _allowed(tree: str | Collection[str]) -> Collection[str]:
    return {tree} if isinstance(tree, str) else tree


def _refused(done: Verb, index: int, said: Told, gone: bool) -> bool:
    """With reason, and as was foretold."""
    return (done.code == DAMAGED and index in said.lost) or (done.code == NO_SUCH and gone)


def _copied(
    store: Path, work: Path, index: int, allowed: Collection[str], said: Told, gone: bool, untracked: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="honest-", dir=work.parent) as folder:
        done = verb(store, "restore", index, "--to", folder)
        if _refused(done, index, said, gone):
            return
        what = f"restore {index} --to"
        assert done.code == 0, f"{what} ended with {done.code}, and nobody had said so: {done.err}"
        inside = work.relative_to(store.parent) if work.is_relative_to(store.parent) else str(work)[1:]
        copy = Path(folder, inside)
        have = tree_of(copy) if copy.is_dir() else "tree"
        if untracked:                          # a copy lacks some names, so that the others have fewer links
            have, allowed = _unlinked(have), {_unlinked(tree) for tree in allowed}
        _require(have, allowed, what, _unlinked(untracked))
        for each in Path(folder).rglob("*"):   # to be removed by an ordinary user too
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o700)
        shutil.rmtree(folder)
        os.mkdir(folder)


def _moved(store: Path, work: Path, index: int, allowed: Collection[str], said: Told, gone: bool) -> None:
    before = tree_of(work)
    done = verb(store, "restore", index)
    if _refused(done, index, said, gone):
        assert tree_of(work) == before, f"restore {index} ended with {done.code} and touched files"
        return
    assert done.code == 0, f"restore {index} ended with {done.code}, and nobody had said so: {done.err}"
    _require(tree_of(work), allowed, f"restore {index}")


def _require(have: str, allowed: Collection[str], what: str, untracked: str = "") -> None:
    for word in untracked.split(" "):          # folders that no run has touched are private in a copy
        path, _, rest = word.partition(":")
        if rest.startswith("d:"):
            have = have.replace(f" {path}:d:700:", f" {path}:{rest[:-len('0:0:00000000')]}")
    there = {word for word in untracked.split(" ") if word not in have.split(" ")}
    if have in allowed or any(_without(want, there) == have for want in allowed):
        return
    near = min(allowed, key=lambda want: len(set(want.split()) ^ set(have.split())))
    mine, theirs = have.split(), near.split()
    raise AssertionError(f"{what}\n  have {_but(mine, theirs)}\n  want {_but(theirs, mine)}")


def _unlinked(tree: str) -> str:
    return re.sub(r"(:f:[0-7]+:\d+):\d+:", r"\1:0:", tree)


def _without(tree: str, words: Collection[str]) -> str:
    return " ".join(word for word in tree.split(" ") if word not in words)


def _but(words: Iterable[str], others: Collection[str]) -> str:
    return " ".join(word for word in words if word not in others) or "(nothing of its own)"
