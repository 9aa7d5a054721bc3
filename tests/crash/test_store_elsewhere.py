"""The store on another filesystem than the data: a file that loses its name is there as a copy, another inode, and one
that comes back is one more, often with the number of a third that has gone. Whoever looks has to know which is whose.

`make test` takes some of the calls, `make kills` every one of them (slices.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from honest import assert_honest
from slices import PARTS, Tried
from test_kill_points import NAMES, killing
from tracing import trace
from trial import Expected, Trial

WAYS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
SAMPLE = 5
# of a second run, after the files went back to the first checkpoint of the first one; numbers of the removed are used
# again at once by what is made next
SECOND = """\
open old rw; open log w,append; pwrite 3 5000 3000 66; write 4 700 77; unlink gone; fsync 3; open d0/in rw
pwrite 5 10 10 4; checkpoint; open new2 w,creat; write 6 100 1; unlink d0/in; open late2 w,creat; fsync 5
checkpoint; pwrite 3 50 1 1\
""".replace("\n", "; ").split("; ")


@pytest.fixture
def trial_of(tmp_path: Path, compiled: Compile, monkeypatch: pytest.MonkeyPatch, installed: None) -> Iterator:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == tmp_path.stat().st_dev:
            pytest.skip("the data are on /dev/shm too")
        monkeypatch.setenv("METAMORI_TEST_STORES", folder)
        yield lambda options: Trial(tmp_path, compiled("driver"), compiled("tracer"), options)


@pytest.mark.in_turn("options", 2)
@WAYS
def test_killed_at_some_calls(trial_of, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    """The restore inside the program is among them."""
    trial = trial_of(options)
    total = len(trial.run().calls)
    for nth in range(total // SAMPLE, total, total // SAMPLE):
        done = trial.run(killing(nth, "k"))
        trial.check(trial.expected(done.stdout), present=not options)


@pytest.mark.in_turn("options", 2)
@WAYS
def test_killed_while_a_file_comes_home(trial_of, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    """Before it is copied: what an earlier checkpoint had in the buffer was taken to be in place already."""
    trial = trial_of(options)
    home = [call.number for call in trial.run().calls
            if call.name in ("copy_file_range", "pwrite") and call.path.endswith("/old")]
    assert home
    for nth in home[:8]:
        done = trial.run(killing(nth, "k"))
        trial.check(trial.expected(done.stdout), present=not options)


def cut_header(trial: Trial) -> None:
    """Nothing that was mapped is trusted then: the run is completed as after a power cut."""
    header = trial.store / "run" / "header"
    if header.exists():
        os.truncate(header, header.stat().st_size // 2)


def all_there(trial: Trial, trees: dict[int, str]) -> None:
    """What was reported is restored, and nothing was lost on the way."""
    log = trial.verb("log", "--json")
    assert log.code == 0 and "not found" not in log.err, log
    known = {each["index"] for each in json.loads(log.out)["checkpoints"]}
    assert trees.keys() <= known | {0}, log
    assert_honest(trial.store, trial.work, trees, untracked=trial.model().state.names.tree())
    looked = trial.verb("verify")
    assert looked.code == 0 and not looked.err, looked


def damaged_at(trial: Trial, nth: int) -> None:
    done = trial.run(killing(nth, "k"))
    if (trial.store / "format").exists():
        cut_header(trial)
        all_there(trial, trial.expected(done.stdout).indexes)


@pytest.mark.in_turn("options", 2)
@WAYS
def test_killed_and_the_area_is_not_believed(trial_of, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    """Around the file that is made after another was removed (its inode number is used again), and at some more."""
    trial = trial_of(options)
    calls = trial.run().calls
    late = next(call.number for call in calls if call.path.endswith("d0/in") and call.name == "unlinkat")
    for nth in (late, late + 1, *range(len(calls) // SAMPLE, len(calls), len(calls) // SAMPLE)):
        damaged_at(trial, nth)


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("part", range(PARTS))
def test_every_call_and_the_area_is_not_believed(trial_of, tried: Tried, options: list[str], part: int) -> None:  # type: ignore[no-untyped-def]
    trial = trial_of(options)
    tried(range(1, len(trial.run().calls) + 1), part, lambda nth: damaged_at(trial, nth))


def again_at(trial: Trial, nth: int, damaged: bool) -> int:
    """A whole run, back to its first checkpoint, and a second run that is killed; how many calls that made."""
    trees = trial.expected(trial.run().stdout).indexes
    trial.restored(1, trees[1])
    text = "".join(f"{line}\n" for line in SECOND)
    done = trace(trial.tracer, [*trial.lab.argv("run", *trial.options), "--", trial.driver], trial.folder,
                 killing(nth, "k"), cwd=trial.work, env=trial.lab.env, stdin=text.encode(), also=trial.elsewhere)
    if damaged:
        cut_header(trial)
    all_there(trial, trees | second(trial, done.stdout).indexes)
    return len(done.calls)


def second(trial: Trial, stdout: bytes) -> Expected:
    """By the model, from the first checkpoint on."""
    world, found = trial.model(), Expected()
    for line in trial.script[:trial.script.index("checkpoint")]:
        world.apply(line)
    world.state.descriptors.clear()
    for line, answer in zip(SECOND, stdout.decode().split("\n")[:-1]):
        want = world.apply(line)
        if want == "index":
            found.indexes[int(answer)] = world.state.names.tree()
        else:
            assert answer == want, f"{line}: {answer}, wanted {want}"
    return found


@pytest.mark.in_turn("options", 2)
@WAYS
def test_a_second_run_after_a_restore(trial_of, options: list[str]) -> None:  # type: ignore[no-untyped-def]
    """Files that the restore made anew are still the ones that the records speak of."""
    trial = trial_of(options)
    total = again_at(trial, 1 << 20, damaged=False)
    for nth in range(total // SAMPLE, total, total // SAMPLE):
        again_at(trial, nth, damaged=True)


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("damaged", [False, True], ids=["killed", "damaged"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_second_run_killed_at_every_call(
    trial_of, tried: Tried, options: list[str], damaged: bool, part: int,  # type: ignore[no-untyped-def]
) -> None:
    trial = trial_of(options)
    total = again_at(trial, 1 << 20, damaged=False)
    tried(range(1, total + 1), part, lambda nth: again_at(trial, nth, damaged))


def test_killed_when_a_new_file_has_the_number_of_one_that_is_gone(trial_of) -> None:  # type: ignore[no-untyped-def]
    """Only the store has the old file, as a copy; what the program has just made is not it. (A filesystem may give the
    number again, or not.)"""
    trial = trial_of([])
    trial.script = NAMES
    opened = [call for call in trial.run().calls if call.path == str(trial.work / "b") and call.name == "openat"]
    assert len(opened) == 2
    for call in opened:
        trial.check(trial.expected(trial.run(killing(call.number, "x")).stdout))
