"""A store whose files were changed, cut, removed or swapped: it is found and named, and never restored in silence."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Compile
from trial import Trial, tree_of, verb

from metamori.store.read.store import Store

SECOND = ["open old rw", "pwrite 3 3000 2000 21", "checkpoint", "truncate old 4000", "unlink new", "checkpoint"]


@dataclass
class Made:
    """A store with two runs and a branch, at its newest index; the trees of all indexes."""

    work: Path
    store: Path
    trees: dict[int, str]
    head: int
    folders: list[Path]                    # all of it, one on each filesystem

    def files(self) -> list[Path]:
        aside = ("lock", ".gitignore", "spare")   # nothing depends on what is in them
        found = [path for path in sorted(self.store.rglob("*")) if path.is_file() and path.name not in aside]
        return [path for path in found if path.stat().st_size]

    def vouched(self, path: Path) -> set[int]:
        """Bytes of a file that mean something: all, but of a buffer those that a record signs."""
        if path.parent.name != "buffer":
            return set(range(path.stat().st_size))
        signed: set[int] = set()
        with Store.open(str(self.store)) as store:
            for index in store.indexes[1:]:
                offsets = store.offsets(index)
                for redo in offsets.entries:
                    if (redo.run or offsets.run) == int(path.name):
                        signed.update(range(redo.buffer_start, redo.buffer_end))
            for record in store.undos:
                for undo in record.entries:
                    if undo.run == int(path.name):
                        signed.update(range(undo.buffer_start, undo.buffer_start + undo.end - undo.start))
        return signed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, compiled: Compile, installed: None) -> Iterator[Made]:
    trial = Trial(tmp_path_factory.mktemp("damage"), compiled("driver"), compiled("tracer"))
    first = trial.run()
    trees = dict(trial.expected(first.stdout).indexes)
    newest = max(trees)
    trees[newest + 1] = tree_of(trial.work)
    trial.restored(2, trees[2])
    text = "".join(f"{line}\n" for line in SECOND).encode()
    again = trial.lab.run([trial.driver], stdin=text)
    assert again.returncode == 0, again.stderr
    made = Made(trial.work, trial.store, trees, 0, trial.folders)
    with Store.open(str(trial.store)) as store:
        made.head = store.head.index
        for index in range(newest + 2, made.head + 1):
            trees[index] = ""
    trees[made.head] = tree_of(trial.work)
    for index in sorted(trees):
        assert trial.verb("restore", index).code == 0
        trees[index] = trees[index] or tree_of(trial.work)
    assert trial.verb("restore", made.head).code == 0
    assert trial.verb("verify").code == 0
    yield made


def found(made: Made, path: Path) -> None:
    """verify says so, with the name of the file; of a kept one that no index needs it is no more than a note."""
    answer = verb(made.store, "verify")
    is_spare = path.parent.name == "kept" and "all of it is elsewhere in the store" in answer.err
    assert answer.code == (0 if is_spare else 12), (path, answer)
    index, _, rest = path.name.partition(".")
    kind, _, number = rest.partition(".")
    names = (path.name, f"{index}.{kind}.*", f"*.{kind}.{number}")
    assert any(name in answer.err for name in names), (path, answer.err)


def never_in_silence(made: Made, what: object) -> int:
    """Every index restores exactly or is refused, and then the files are as they were; how many restored."""
    good = 0
    for index, tree in made.trees.items():
        before = tree_of(made.work)
        answer = verb(made.store, "restore", index)
        if answer.code == 0:
            good += 1
            assert tree_of(made.work) == tree, (what, index)
        else:
            assert answer.code == 12 and answer.err, (what, index, answer)
            assert tree_of(made.work) == before, (what, index)
    return good


class Hurt:
    """The laboratory as it was, whatever was done to it inside."""

    def __init__(self, made: Made) -> None:
        self.made, self.saved = made, [(each, each.with_name(f"{each.name}-saved")) for each in made.folders]

    def __enter__(self) -> Hurt:
        for folder, saved in self.saved:
            shutil.rmtree(saved, ignore_errors=True)
            subprocess.run(["cp", "-a", str(folder), str(saved)], check=True)
        self._identities()
        return self

    def __exit__(self, *_: object) -> None:
        for folder, saved in self.saved:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
            subprocess.run(["cp", "-a", str(saved), str(folder)], check=True)
        self._identities()

    def _identities(self) -> None:
        """A copy has other inode numbers: head notes them anew."""
        with Store.open(str(self.made.store)) as store:
            store.set_head(store.head.index, store.head.kept)


def flip(path: Path, at: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def flips(made: Made, rng: random.Random, most: int, part: int = 0, parts: int = 1) -> Iterator[tuple[Path, int]]:
    for path in made.files():
        places = sorted(made.vouched(path))[part::parts]
        yield from ((path, at) for at in sorted(rng.sample(places, min(most, len(places)))))


def flipped_and_found(made: Made, most: int, part: int = 0, parts: int = 1) -> int:
    rng, count = random.Random(12), 0
    for path, at in flips(made, rng, most, part, parts):
        bit = rng.randrange(8)
        flip(path, at, bit)
        found(made, path)
        flip(path, at, bit)
        if path.parent.name == "kept":     # its times are part of what it was
            with Store.open(str(made.store)) as store:
                store.set_head(store.head.index, store.head.kept)
        count += 1
    return count


def test_flipped_bytes_are_found(made: Made) -> None:
    assert flipped_and_found(made, 25) > 200
    assert verb(made.store, "verify").code == 0


PARTS = 16


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_flipped_byte_is_found(made: Made, part: int) -> None:
    with Hurt(made):
        print(f"{flipped_and_found(made, 10**9, part, PARTS)} flips, all found")


def test_flipped_bytes_are_never_restored_in_silence(made: Made) -> None:
    rng = random.Random(13)
    restored = 0
    for path, at in flips(made, rng, 1):
        with Hurt(made):
            flip(path, at, rng.randrange(8))
            restored += never_in_silence(made, (path, at))
    assert restored > 0                    # what does not need the damaged part


@pytest.mark.in_turn("sizes", 2)
@pytest.mark.parametrize("sizes", [(20, -1, None), (0, 1, .5)])
def test_cut_and_removed_files(made: Made, sizes: tuple[float | None, ...]) -> None:
    """Cut to so many bytes, or but for one, or to half; or removed."""
    for path in made.files():
        whole = path.stat().st_size
        for size in (whole // 2 if size == .5 else whole - 1 if size == -1 else size for size in sizes):
            if path.name == "scope" and size is None:
                continue               # without it, as in earlier stores, everything is tracked
            with Hurt(made):
                if size is None:
                    path.unlink()
                else:
                    os.truncate(path, size)
                if path.parent.name == "buffer" and size is not None and size > max(made.vouched(path)):
                    continue
                found(made, path)
                if size in (20, None):
                    never_in_silence(made, (path, size))


def test_swapped_files(made: Made) -> None:
    files = [path for path in made.files() if path.parent.name == "checkpoints"]
    for kind in ("meta", "offset", "undo"):
        some = [path for path in files if path.name.split(".")[1] == kind]
        for one, other in itertools.pairwise(some):
            with Hurt(made):
                middle = one.with_name("swapped")
                one.rename(middle)
                other.rename(one)
                middle.rename(other)
                found(made, one)
                never_in_silence(made, (one, other))


def test_files_of_another_store(made: Made, tmp_path: Path, compiled: Compile) -> None:
    """The same program in another laboratory: the same names, another store."""
    other = Trial(tmp_path, compiled("driver"), compiled("tracer"))
    other.run()
    common = [path for path in made.files() if (other.store / path.relative_to(made.store)).exists()]
    assert len(common) > 6
    for path in common:
        theirs = (other.store / path.relative_to(made.store)).read_bytes()
        if theirs == path.read_bytes():
            continue                       # a buffer that is the same in every byte is no damage
        with Hurt(made):
            path.write_bytes(theirs)
            if path.name == "format":      # then it is all the others that do not belong to it
                assert verb(made.store, "verify").code == 12
            else:
                found(made, path)
            never_in_silence(made, path)


def copies_as_told(made: Made, folder: Path, what: object, log_too: bool = True) -> int:
    """A copy of each index is exact, or `verify` named something before, and `log` where it is no byte in a buffer; how
    many were not."""
    told = [verb(made.store, "verify")] + [verb(made.store, "log")] * log_too
    refused = 0
    for index, tree in made.trees.items():
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        answer = verb(made.store, "restore", index, "--to", copy)
        if answer.code == 0:
            found = Path(f"{copy}{made.work}") if made.work.parent != made.store.parent else copy / made.work.name
            assert tree_of(found) == tree, (what, index)
            continue
        refused += 1
        assert answer.code in (10, 12, 13) and answer.err, (what, index, answer)
        assert all(each.code == answer.code or each.code == 12 for each in told), (what, index, answer, told)
    return refused


def test_copies_of_a_damaged_store(made: Made, tmp_path: Path) -> None:
    refused = 0
    for path in made.files():
        for size in (None, path.stat().st_size // 2):
            with Hurt(made):
                if size is None:
                    path.unlink()
                else:
                    os.truncate(path, size)
                refused += copies_as_told(made, tmp_path, (path, size))
    assert refused > 20


def test_copies_of_a_store_with_flipped_bytes(made: Made, tmp_path: Path) -> None:
    for path, at in flips(made, random.Random(14), 1):
        with Hurt(made):
            flip(path, at, 5)
            copies_as_told(made, tmp_path, (path, at), log_too=path.parent.name != "buffer")


def test_copies_without_some_records(made: Made, tmp_path: Path) -> None:
    """Of an index all that there is, or every undo record, or several indexes: `log` names each."""
    records = made.store / "checkpoints"
    indexes = sorted({int(path.name.split(".")[0]) for path in records.glob("*.meta.*")})
    cases = [[f"{index}.meta.*", f"{index}.offset.*"] for index in indexes] + [["*.undo.*"], ["*.offset.*"]]
    cases += [[f"{each}.meta.*" for each in indexes[-count:]] for count in (1, 2, len(indexes))]
    for case in cases:
        with Hurt(made):
            gone = [path for name in case for path in records.glob(name)]
            for path in gone:
                path.unlink()
            copies_as_told(made, tmp_path, case)
            answer = verb(made.store, "log")
            assert answer.code == 12, (case, answer)
            for path in gone:
                index, kind, _ = path.name.split(".")
                if kind == "meta":
                    assert f"{index}.meta." in answer.err or f"checkpoint {index}:" in answer.err, (case, answer)


def test_a_future_version(made: Made) -> None:
    with Hurt(made):
        (made.store / "format").write_bytes(b"metamori store 3\n")
        answer = verb(made.store, "log")
        assert answer.code == 1 and "version 3" in answer.err
    for path in made.files():
        if path.parent.name in ("checkpoints", "store"):
            with Hurt(made):
                raw = bytearray(path.read_bytes())
                raw[8] += 1
                path.write_bytes(bytes(raw))
                found(made, path)
