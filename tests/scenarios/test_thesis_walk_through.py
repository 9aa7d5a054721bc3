"""The two walk-throughs of the thesis (4.3.7): a.txt of 5 MB, b.txt of 3 MB, a cache of 3 MB, step by step.

What is looked at: the records that `show` prints (AMLs in the offset file, FIT and PIF entries), the disk
buffer's size while the program runs (the cache's bound), and the files in place.
"""

from __future__ import annotations

import json

import pytest
from lab import Lab, Session

KB, MB = 1024, 1024 * 1024
CACHE = ["--cache-size", "3M"]


def in_blocks(program: Session, descriptor: int, size: int) -> None:
    """Writes `size` bytes in blocks of 1 KB, each of its own seed."""
    program.must(f"write {descriptor} {KB} {n % 900 + 1}" for n in range(size // KB))


def records(lab: Lab, index: int) -> dict[str, dict]:
    """The thesis's records of a checkpoint, by their names."""
    shown = json.loads(lab.verb("show", "--json", index).stdout)
    return {record["name"]: record for record in shown["records"]}


def of_file(entries: dict[str, dict], key: str, name: str) -> list[dict]:
    """Entries with `key` whose file name ends so."""
    return [entry for entry in entries.values() if key in entry and entry.get("filename", "").endswith(name)]


def ranges(entries: dict[str, dict], inode: int) -> list[tuple[int, int]]:
    """A file's AMLs as the checkpoint's offset file has them: start and end in the file."""
    return [
        (start, end) for name, entry in entries.items() if name.startswith(f"{inode}.offset.")
        for start, end, _, _ in entry["ranges"]
    ]  # fmt: skip


def on_disk(lab: Lab) -> int:
    """Bytes of the disk buffers that exist by now."""
    return sum(path.stat().st_blocks * 512 for path in (lab.store / "buffer").iterdir())


def test_single(lab: Lab, native_lab: Lab) -> None:
    program = lab.start("--mode", "single", *CACHE)
    program.must(["open a.txt rw,creat", "open b.txt rw,creat"])
    in_blocks(program, 3, 5 * MB)
    assert on_disk(lab) >= 2 * MB - 64 * KB, "what the cache cannot hold is swapped to the disk buffer"
    assert (lab.work / "a.txt").stat().st_size == 0, "nothing comes home before a checkpoint"
    program.must(["checkpoint"])
    assert (lab.work / "a.txt").stat().st_size == 5 * MB
    assert (lab.work / "b.txt").stat().st_size == 0
    in_blocks(program, 4, 3 * MB)
    assert (lab.work / "b.txt").stat().st_size == 0
    program.must(["checkpoint"])
    assert (lab.work / "b.txt").stat().st_size == 3 * MB
    program.must(["close 4", "unlink b.txt"])
    assert program.ask("exists b.txt") == "-1 ENOENT", "to the program it is gone at once"
    program.must(["open b.txt rw,creat,excl", "close 4", "unlink b.txt"])
    program.must(["checkpoint"])
    assert program.end() == 0
    assert set(lab.state()) == {"a.txt"}
    native = native_lab.start(native=True)
    native.must(["open a.txt rw,creat"])
    in_blocks(native, 3, 5 * MB)
    assert (lab.work / "a.txt").read_bytes() == (native_lab.work / "a.txt").read_bytes()


def test_incremental(lab: Lab) -> None:
    program = lab.start("--isolate", *CACHE)
    program.must(["open a.txt rw,creat"])
    in_blocks(program, 3, 5 * MB)
    assert on_disk(lab) >= 2 * MB - 64 * KB
    program.must(["checkpoint", "open b.txt rw,creat"])
    in_blocks(program, 4, 3 * MB)
    program.must(["checkpoint", "close 4", "unlink b.txt", "checkpoint"])
    first, second, third = (records(lab, index) for index in (1, 2, 3))

    (a,) = of_file(first, "was_created", "a.txt")[-1:]
    assert first["1.meta.1"]["inodes"] == [a["inode"]]
    assert ranges(first, a["inode"]) == [(0, 5 * MB)], "neighbouring AMLs are one"
    (fit,) = of_file(first, "seek_pointer", "a.txt")
    assert (fit["descriptor"], fit["seek_pointer"]) == (3, 5 * MB)

    b = next(entry for entry in of_file(second, "size", "b.txt"))
    assert ranges(second, b["inode"]) == [(0, 3 * MB)]
    assert not ranges(second, a["inode"]), "only what changed is written"
    assert (b["was_created"], b["was_deleted"], b["count"]) == (2, 0, 1)
    assert second["2.meta.1"]["descriptors"] == [3, 4]

    gone = next(entry for entry in of_file(third, "size", "b.txt"))
    assert (gone["was_deleted"], gone["count"]) == (3, 0)
    assert third["3.meta.1"]["descriptors"] == [3]
    assert not ranges(third, b["inode"])

    assert program.ask("restore 2") == "0"
    assert program.do(["size b.txt", "lseek 4 0 cur"]) == [f"{3 * MB} 644 1", str(3 * MB)]
    assert program.ask("restore 1") == "0"
    assert program.ask("exists b.txt") == "-1 ENOENT", "created after 1, so it is gone"
    assert program.ask("close 4") == "-1 EBADF"
    assert program.end() == 0
    assert set(lab.state()) == {"a.txt"}


@pytest.mark.parametrize("cache", ["0", "256K", "3M"])
def test_the_cache_is_bounded(lab: Lab, cache: str) -> None:
    """Scattered blocks in a file: at most the budget is missing from the disk buffer at any time."""
    budget = {"0": 0, "256K": 256 * KB, "3M": 3 * MB}[cache]
    (lab.work / "old").write_bytes(b"o" * 8 * MB)
    program = lab.start("--isolate", "--cache-size", cache)
    program.must(["open old rw"])
    for round_ in range(4):
        program.must(f"pwrite 3 {KB} {(n * 37 + round_) % 2048 * 4 * KB} {n % 900}" for n in range(500))
        written = (round_ + 1) * 500 * KB
        assert written - on_disk(lab) <= budget + 128 * KB
    assert program.end() == 0
