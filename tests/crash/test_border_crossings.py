"""Files are renamed and linked across the border of the scope while a run is killed, its calls fail, or the power does:
every index comes back, what is out of the scope is as the program left it, and nothing touches that.

`make test` takes some of the calls, `make kills` every one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Compile
from crossing import LINES, Crossing, said
from rewind import Times, Watched, another_boot
from slices import PARTS, Tried
from test_failing_calls import NUMBER, errors, every, failing
from test_kill_points import killing
from test_power_cut_in_run import times
from tracing import Call

__all__ = ["times"]                        # a fixture
Make = Callable[..., Crossing]
WAYS = pytest.mark.parametrize("options", ["", "--isolate"], ids=["default", "isolate"])
NAMES = pytest.mark.parametrize("name", LINES)


@pytest.fixture
def crossing(tmp_path: Path, compiled: Compile, installed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.delenv("METAMORI_TRACK")
    yield lambda name, options: Crossing(tmp_path, compiled("driver"), compiled("tracer"), options.split(), LINES[name])


def killed_at(trial: Crossing, nth: int, how: str) -> None:
    done = trial.run(killing(nth, how))
    try:
        if (trial.store / "format").exists():
            trial.hold(trial.left(done.stdout))
    except BaseException:
        print(said(done, nth, f"killed ({how})"))
        raise


def failed_at(trial: Crossing, nth: int, error: str, calls: str) -> None:
    done = trial.run(failing(nth, error), trial.driver.name, calls)
    try:
        assert done.status == 0, done
        if b"is not tracked" not in done.stderr:
            trial.hold(trial.left(done.stdout, list(NUMBER)))
    except BaseException:
        print(said(done, nth, error))
        raise


def cut_at(trial: Crossing, times: Times, nth: int, seed: int) -> None:
    trial.prepare()
    watched: list[Watched] = []

    def decide(call: Call) -> str:
        if not watched:
            watched.append(Watched(trial.folders))
        if call.number >= nth:
            return "k"
        watched[0].seen(call)
        return "g"

    done = trial.run(decide)
    watched[0].cut_power(random.Random(seed), times)
    try:
        if (trial.store / "format").exists():
            trial.hold_after_cut(trial.left(done.stdout))
    except BaseException:
        print(said(done, nth, f"power cut (seed {seed})"))
        raise


def across(trial: Crossing) -> list[int]:
    """The calls that cross the border."""
    found = [call.number for call in trial.run().calls if call.other and "/store/" not in call.path + call.other
             and ("/../out/" in call.path) != ("/../out/" in call.other)]
    assert len(found) == sum("../out" in line for line in trial.script if line.startswith(("rename", "link", "exch")))
    return found


@pytest.mark.in_turn("name")
@WAYS
@NAMES
def test_killed_beside_some_crossings(crossing: Make, name: str, options: str) -> None:
    trial = crossing(name, options)
    for nth in across(trial)[1 if options else 2::2]:
        killed_at(trial, nth, "x")


@pytest.mark.in_turn("name", 2)
@NAMES
def test_some_calls_of_crossings_fail(crossing: Make, name: str) -> None:
    trial = crossing(name, "")
    seen = trial.run(program=trial.driver.name).calls
    step = len(seen) // 2
    for turn, call in enumerate(seen[step // 2::step]):
        which = errors(call, "change")
        failed_at(trial, call.number, which[turn % len(which)], "change")


def test_a_rename_that_cannot_look_is_none(crossing: Make) -> None:
    """It looks up once more the folder that is not in the scope. Once it went on, and no index heard of it."""
    trial = crossing("links", "--isolate")
    seen = trial.run(program=trial.driver.name, calls="any").calls
    looks = next(call.number for call in seen if call.name == "statx" and call.path == str(trial.work / "f"))
    nth = max(call.number for call in seen[:looks] if call.path == f"{trial.work}/../out/")
    failed_at(trial, nth, "EIO", "any")


@pytest.mark.in_turn("name", 2)
@NAMES
def test_power_cut_beside_some_crossings(crossing: Make, times: Times, name: str) -> None:
    trial = crossing(name, "")
    for nth in across(trial)[1 if name == "links" else 2::2]:
        cut_at(trial, times, nth + 1, nth)


def test_killed_while_one_is_written_back_to_leave(crossing: Make) -> None:
    """Isolated, and it has another name here: the end takes back what was written. Once it stayed."""
    trial = crossing("links", "--isolate")
    nth = next(call.number for call in trial.run().calls
               if call.name == "copy_file_range" and call.path.startswith(f"{trial.work}/"))
    killed_at(trial, nth, "x")


@WAYS
def test_a_second_name_goes_and_the_power_fails(crossing: Make, times: Times, options: str) -> None:
    """The one that an index knew has gone before. Once nothing durable said that there had been another."""
    trial = crossing("links", options)
    trial.script = ["open e rw", "pwrite 3 3000 100 1", "close 3", "checkpoint", "rename e ../out/e",
                    "unlink ../out/e", "rename f g", "checkpoint"]
    gone = next(call.number for call in trial.run().calls if call.path == f"{trial.work}/f" and call.other)
    done = trial.run(killing(gone, "x"))
    journal = trial.store / "run" / "journal"
    journal.write_bytes(bytes(journal.stat().st_size))
    another_boot(trial.folders[-1])
    trial.hold_after_cut(trial.left(done.stdout))


@pytest.mark.in_turn("size")
@pytest.mark.parametrize("size", [3000, 9000])
@WAYS
def test_killed_when_one_has_just_left_by_one_of_its_names(crossing: Make, options: str, size: int) -> None:
    """No index knows its other name, by which the next run meets it: the completion finds it by the store's link. That
    was made afterwards; isolated, what had been written to it stayed."""
    trial = crossing("links", options)
    trial.script = ["open e rw", f"ftruncate 3 {size}", "close 3", "checkpoint", "rename e ../out/e", "checkpoint"]
    trial.run(killing(across(trial)[0], "x"))
    assert trial.lab.run("rm f").returncode == 0
    for index in 2, 1, 0, 1:
        done = trial.lab.verb("restore", index, code=None)
        there = [name for name in "ef" if (trial.work / name).exists()]
        sizes = {(trial.work / name).stat().st_size for name in there}
        assert (done.returncode, sizes) == (0, {size if index else 6000}) or (
            done.returncode == 12 and "lost" in done.stderr), (index, done)


@pytest.mark.slow
@WAYS
@NAMES
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("how", ["k", "p", "x", "y"])
def test_killed_at_every_call(
    crossing: Make, tried: Tried, name: str, options: str, how: str, part: int,
) -> None:
    trial = crossing(name, options)
    calls = range(1, len(trial.run().calls) + 1)
    tried(calls, part, lambda nth: killed_at(trial, nth, how))


@pytest.mark.slow
@WAYS
@NAMES
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("calls", ["change", "any"])
def test_every_call_fails(crossing: Make, tried: Tried, name: str, options: str, calls: str, part: int) -> None:
    trial = crossing(name, options)
    points = list(every(trial.run(program=trial.driver.name, calls=calls).calls, calls))
    tried(points, part, lambda point: failed_at(trial, *point, calls))


@pytest.mark.slow
@WAYS
@NAMES
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_at_every_call(
    crossing: Make, tried: Tried, times: Times, name: str, options: str, part: int,
) -> None:
    trial = crossing(name, options)
    cuts = [(nth, 1000 * seed + nth) for seed in range(2) for nth in range(1, len(trial.run().calls) + 1)]
    tried(cuts, part, lambda cut: cut_at(trial, times, *cut))
