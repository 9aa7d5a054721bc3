"""The thesis's verification (5.2): five write patterns, reads and holes, a checkpoint after each step.

The files of every step are those of a native run of the same lines. Then every earlier checkpoint is gone
back to, and forward again, from inside the program and from the command line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from lab import Lab, Tree


@dataclass(frozen=True)
class Pattern:
    """Steps of driver lines on descriptor 3, after `opens`; a checkpoint is taken after each step."""

    name: str
    opens: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]


def _write(length: int, offset: int, seed: int, how: str) -> list[str]:
    """One write, by position or by seek."""
    if how == "pwrite":
        return [f"pwrite 3 {length} {offset} {seed}"]
    return [f"lseek 3 {offset} set", f"write 3 {length} {seed}"]


def _pattern(name: str, size: int, how: str, writes: list[list[tuple[int, int]]]) -> Pattern:
    """`writes`: per step, pairs of offset and length."""
    steps = []
    for number, step in enumerate(writes):
        lines = []
        for place, (offset, length) in enumerate(step):
            lines += _write(length, offset, 10 * number + place + 1, how)
        steps.append((*lines, f"pread 3 {size} 0", "fsize 3"))
    return Pattern(f"{name}, {size} bytes, {how}", ("open file rw,creat",), tuple(steps))


def patterns(size: int, how: str) -> list[Pattern]:
    """The thesis's five, over `size` bytes that the first step has written."""
    part = size // 10
    whole = [(0, size)]
    sequential = [[(i * 2 * part, part), (i * 2 * part + part, part)] for i in range(5)]
    interleaved = [whole, *([(i * part, part // 2)] for i in (0, 4, 8, 2, 6))]
    front = [whole, [(4 * part, 2 * part)], [(3 * part, 2 * part)], [(2 * part, 2 * part)], [(0, 3 * part)]]
    back = [whole, [(part, 2 * part)], [(2 * part, 2 * part)], [(3 * part, 2 * part)], [(4 * part, 5 * part)]]
    around = [whole, [(4 * part, part)], [(3 * part, 3 * part)], [(2 * part - 1, 6 * part)], [(0, size)]]
    named = {
        "sequential": sequential,
        "interleaved, not overlapping": interleaved,
        "overlapping at the front": front,
        "overlapping at the back": back,
        "encompassing": around,
    }
    return [_pattern(name, size, how, writes) for name, writes in named.items()]


READS = Pattern(
    "reads in sequence, from the middle, and of holes",
    ("open file rw,creat",),
    (
        ("write 3 10000 1", "lseek 3 0 set", "read 3 1000", "read 3 1000", "read 3 9000", "read 3 10"),
        ("lseek 3 5000 set", "read 3 100", "lseek 3 -50 cur", "read 3 100", "pread 3 300 9900"),
        ("lseek 3 40000 set", "write 3 10 2", "pread 3 40000 5000", "fsize 3", "mapread 3 40010"),
        ("ftruncate 3 70000", "pread 3 60000 30000", "pwrite 3 5 20000 3", "pread 3 70000 0"),
        ("ftruncate 3 7", "pread 3 70000 0", "pwrite 3 5 90 4", "pread 3 100 0", "mapread 3 95"),
    ),
)
MANY_FILES = Pattern(
    "files made at each step",
    ("open file rw,creat",),
    tuple(
        (f"write 3 {100 * n} {n}", f"open new{n} w,creat", f"write {3 + n} 5000 {n}", "tree")
        for n in range(1, 6)
    ),
)
COMPREHENSIVE = Pattern(
    "all five patterns in one file",
    ("open file rw,creat",),
    tuple(step for pattern in patterns(30000, "seek and write") for step in pattern.steps),
)
ALL = [
    *patterns(50, "pwrite"), *patterns(9000, "pwrite"), *patterns(100000, "seek and write"),
    READS, MANY_FILES, COMPREHENSIVE,
]  # fmt: skip


def natively(native: Lab, pattern: Pattern) -> tuple[list[list[str]], list[Tree]]:
    """Answers and files after each step of an uninterrupted native run."""
    program = native.start(native=True)
    program.must(pattern.opens)
    answers, trees = [], []
    for step in pattern.steps:
        answers.append(program.do(step))
        trees.append(native.state())
    assert program.end() == 0
    return answers, trees


def zigzag(count: int) -> list[int]:
    """Every step, far jumps back and forth among them: 0, last, 1, last but one, …"""
    order = []
    for near in range((count + 1) // 2):
        order += [near, count - 1 - near]
    return order


VARIANTS = [
    *((pattern, options) for pattern in ALL for options in ([], ["--isolate"])),
    *((pattern, ["--isolate", "--cache-size", "0"]) for pattern in ALL[9:]),
]


@pytest.mark.in_turn("pattern")
@pytest.mark.parametrize(
    ("pattern", "options"), VARIANTS, ids=lambda v: getattr(v, "name", None) or " ".join(v) or "default"
)
def test_any_checkpoint(lab: Lab, native_lab: Lab, pattern: Pattern, options: list[str]) -> None:
    answers, trees = natively(native_lab, pattern)
    program = lab.start(*options)
    program.must(pattern.opens)
    indexes, inside = [], []
    for step, answer in zip(pattern.steps, answers):
        assert program.do(step) == answer
        indexes.append(int(program.ask("checkpoint")))
        inside.append(program.ask("tree"))
    for at in zigzag(len(indexes)):
        assert program.ask(f"restore {indexes[at]}") == "0"
        assert program.ask("tree") == inside[at], f"restored {indexes[at]} inside the program"
    program.ask(f"restore {indexes[0]}")
    for step, answer in zip(pattern.steps[1:], answers[1:]):
        assert program.do(step) == answer, "the steps done again after going back to the first"
    assert program.end() == 0
    lab.assert_state(trees[-1], "after the run")
    for at in zigzag(len(indexes))[::3 if len(indexes) > 9 else 1]:
        lab.restore(indexes[at])
        lab.assert_state(trees[at], f"after restore {indexes[at]}")
    lab.verb("verify")


@pytest.mark.parametrize("pattern", [*patterns(9000, "pwrite"), READS, COMPREHENSIVE], ids=lambda p: p.name)
def test_single_mode_keeps_the_last(lab: Lab, native_lab: Lab, pattern: Pattern) -> None:
    """Each checkpoint commits; only the last can be restored, any other index is refused."""
    answers, trees = natively(native_lab, pattern)
    program = lab.start("--mode", "single")
    program.must(pattern.opens)
    indexes: list[int] = []
    for number, (step, answer) in enumerate(zip(pattern.steps, answers)):
        assert program.do(step) == answer
        indexes.append(int(program.ask("checkpoint")))
        lab.assert_state(trees[number], f"committed by checkpoint {indexes[-1]}")
        if number:
            assert program.ask(f"restore {indexes[0]}") == "-1 EINVAL"
        program.ask("pwrite 3 20 5 77")
        program.ask("open later w,creat")
        assert program.ask(f"restore {indexes[-1]}") == "0"
    picture = program.ask("tree")
    program.ask("pwrite 3 20 5 78")
    assert program.kill_program() == 128 + 9
    lab.assert_state(trees[-1], "a kill commits nothing in single mode")
    refused = lab.restore(indexes[0], code=13)
    assert refused.stderr.strip(), "the refusal says why"
    lab.restore(indexes[-1])
    lab.assert_state(trees[-1], f"after restore {indexes[-1]}")
    again = lab.start("--mode", "single")
    assert again.ask("tree") == picture
    assert again.end() == 0


def test_index_zero_and_the_end(lab: Lab, native_lab: Lab) -> None:
    """0 is the state before the run, the end of the run has an index of its own; both can be gone to."""
    for some in (lab, native_lab):
        (some.work / "old").write_bytes(b"old" * 3000)
        (some.work / "doomed").write_bytes(b"doomed" * 100)
    lines = ["open old rw", "write 3 5000 1", "unlink doomed", "open new w,creat", "write 4 7000 2"]
    before = lab.state()
    native = native_lab.start(native=True)
    native.must(lines)
    native.end()
    program = lab.start()
    program.must([*lines[:2], "checkpoint", *lines[2:]])
    assert program.end() == 0
    lab.assert_state(native_lab.state(), "after the run")
    log = lab.log()
    end = log["checkpoints"][-1]["index"]
    assert log["head"] == end
    assert log["checkpoints"][-1]["message"] == "end of run"
    lab.restore(0)
    lab.assert_state(before, "after restore 0")
    assert lab.log()["head"] == 0
    lab.restore(end)
    lab.assert_state(native_lab.state(), "after going to the end again")


def test_history_is_a_tree(lab: Lab) -> None:
    """After a restore the next checkpoint grows from there; no index is used twice, all stay restorable."""
    program = lab.start()
    program.must(["open file rw,creat", "write 3 5000 1"])
    trees, indexes, parents = {}, [], {}
    parent = 0
    for number in range(1, 9):
        program.must([f"pwrite 3 3000 {number * 700} {number}", f"open f{number} w,creat"])
        index = int(program.ask("checkpoint"))
        assert index > max(indexes, default=0)
        indexes.append(index)
        parents[index] = parent
        trees[index] = program.ask("tree")
        parent = index
        if number % 3 == 0:
            parent = indexes[number // 3]
            assert program.ask(f"restore {parent}") == "0"
            assert program.ask("tree") == trees[parent]
    assert program.end() == 0
    log = json.loads(lab.verb("log", "--json").stdout)
    found = {entry["index"]: entry["parent"] for entry in log["checkpoints"]}
    assert {index: found[index] for index in indexes} == parents
    reader = lab.start(native=True)
    for index in [*indexes[::2], *indexes[1::2]]:
        lab.restore(index)
        assert reader.ask("tree") == trees[index]
    lab.verb("verify")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=" ".join)
def test_a_second_run_goes_on_in_the_store(lab: Lab, options: list[str]) -> None:
    """Runs after each other: indexes of all can be restored, in any order."""
    trees = {}
    for turn in range(3):
        program = lab.start(*options)
        program.must(["open file rw,creat", f"pwrite 3 6000 {turn * 2000} {turn + 1}"])
        program.must([f"open f{turn} w,creat"])
        index = int(program.ask("checkpoint"))
        trees[index] = program.ask("tree")
        program.must([f"pwrite 3 100 {turn * 500} {turn + 7}"])
        if turn == 1:
            assert program.ask(f"restore {min(trees)}") == "-1 ESRCH", "an index of another process"
        assert program.end() == 0
        end = lab.log()["checkpoints"][-1]["index"]
        reader = lab.start(native=True)
        trees[end] = reader.ask("tree")
        reader.end()
    reader = lab.start(native=True)
    order = sorted(trees)
    for index in order[::-2] + order[::3] + order:
        lab.restore(index)
        assert reader.ask("tree") == trees[index], f"after restore {index}"
