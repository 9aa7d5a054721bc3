"""The power goes while a run is alive: every checkpoint that was answered restores, and the files are none the worse.

Each call of the run that changes or syncs a file is a cut. What was not synced is lost, kept or torn (rewind.py), and
what was mapped may hold anything. `make test` takes some of the calls, `make kills` every one of them, several times.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from conftest import Compile
from rewind import Watched
from tracing import Call
from trial import Expected, Trial, tree_of

from metamori.runtime import powercut
from metamori.runtime.ahead import Record
from metamori.store import founding
from metamori.store.door import REAL
from metamori.store.layout import Layout

SAMPLE = 6


@pytest.fixture
def trial_of(tmp_path: Path, compiled: Compile, installed: None, monkeypatch):  # type: ignore[no-untyped-def]
    def was_cut(record: Record, st: os.stat_result) -> bool:
        # the time of the last change cannot be put back; the driver sets no times, so that of the last write is as good
        return st.st_size <= record.length_after or st.st_mtime_ns > record.home_ctime_ns

    monkeypatch.setattr(powercut, "was_cut", was_cut)
    return lambda *options, **more: Trial(tmp_path, compiled("driver"), compiled("tracer"), options, **more)


def words(tree: str) -> dict[str, str]:
    return {word.partition(":")[0]: word for word in tree.split(" ")[1:]}


def made_later(expected: Expected, tree: str) -> set[str]:
    """Names that the run made and this tree does not have: a note of one may be lost, and then it stays."""
    return {name for each in (*expected.indexes.values(), *expected.present) for name in words(each)} - {*words(tree)}


def cut_at(trial: Trial, nth: int, seed: int, isolated: bool) -> None:
    trial.prepare()
    watched: list[Watched] = []

    def decide(call: Call) -> str:
        if not watched:
            watched.append(Watched(trial.folder))
        if call.number >= nth:
            return "k"
        watched[0].seen(call)
        return "g"

    done = trial.run(decide)
    expected = trial.expected(done.stdout)
    watched[0].cut_power(random.Random(seed))
    layout = Layout(str(trial.store))
    if (trial.store / "format").exists():  # known by a time of change that cannot be put back either
        founding.note_place(REAL, layout)
    try:
        check(trial, expected, isolated)
    except BaseException:
        print(f"power cut at call {nth}, seed {seed}: {done.calls[min(nth, len(done.calls)) - 1]}; {done.stderr!r}")
        raise


def check(trial: Trial, expected: Expected, isolated: bool) -> None:
    if not (trial.store / "format").exists():
        return
    looked = trial.verb("verify")
    assert looked.code == 0, looked
    log = trial.verb("log", "--json")
    assert log.code == 0, log
    indexes = {each["index"] for each in json.loads(log.out)["checkpoints"]}
    assert expected.indexes.keys() - {0} <= indexes, (expected.indexes.keys(), indexes, log)
    if isolated:                           # exactly as at the last commit: the run's start, or its end
        ended = set() if expected.pending else expected.present
        assert tree_of(trial.work) in {expected.indexes[0], *ended}
    for index, tree in sorted(expected.indexes.items(), reverse=True):
        if index == 0 and (0 not in indexes or len(expected.indexes) == 1):
            continue                       # nobody was told of a checkpoint
        done = trial.verb("restore", index)
        assert done.code == 0, f"restore {index}: {done}"
        have, want = words(tree_of(trial.work)), words(tree)
        extra = have.keys() - want.keys()
        assert all(have.get(name) == want[name] for name in want), f"restore {index}:\n have {have}\n want {want}"
        assert extra <= made_later(expected, tree), f"restore {index}: {extra}"
    looked = trial.verb("verify")
    assert looked.code == 0 and not looked.err, looked
    again = trial.lab.run("true")
    assert (again.returncode, again.stderr) == (0, b""), again.stderr


def last_cut(trial: Trial) -> int:
    """Before head notes the files' times of change, which cannot be put back here (test_power_disk.py goes on)."""
    return max(call.number for call in trial.run().calls if call.other.endswith("/head"))


@pytest.mark.parametrize("options", ["", "--isolate"], ids=["default", "isolate"])
def test_power_cut_at_some_calls(trial_of, options: str) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    total = last_cut(trial)
    for nth in range(total // SAMPLE // 2, total, total // SAMPLE):
        cut_at(trial, nth, nth, bool(options))


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "--isolate"], ids=["default", "isolate"])
@pytest.mark.parametrize("part", range(8))
def test_power_cut_at_every_call(trial_of, options: str, part: int) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(*options.split())
    for nth in range(1 + part, last_cut(trial) + 1, 8):
        for seed in range(3):
            cut_at(trial, nth, 1000 * seed + nth, bool(options))
