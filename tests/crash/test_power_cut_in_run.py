"""The power goes while a run is alive: every checkpoint that was answered restores, and the files are none the worse.

Each call of the run that changes or syncs a file is a cut. What was not synced is lost, kept or torn (rewind.py), and
what was mapped may hold anything. What the program fsynced is there, byte for byte (synced.py). `make test` takes some
of the calls, `make kills` every one of them, several times.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Compile
from rewind import Times, Watched, another_boot
from slices import PARTS, Tried
from synced import Fact, facts, hold
from tracing import Call, Traced
from trial import SCRIPT, Expected, Trial, tree_of

SAMPLE = 6
# what is fsynced, in every way that a file can be in a run, and changed again afterwards
SYNCING = """\
open old rw; pwrite 3 5000 3000 5; fsync 3; pwrite 3 100 100 6; fsync 3; checkpoint; pwrite 3 4096 4096 7; fdatasync 3
pwrite 3 600 4000 8; ftruncate 3 6000; fsync 3; open log w,append; write 4 700 9; fsync 4; write 4 300 10
open new rw,creat,trunc; write 5 6000 11; fsync 5; open gone w,trunc; write 6 5000 12; fsync 6; pwrite 6 500 1000 13
checkpoint; pwrite 5 1000 0 14; fsync 5; rename new d0/new; fsync 5; open d0/in w,trunc; write 7 100 15; fsync 7
pwrite 3 3000 2000 16; fsync 3; pwrite 6 4096 4000 17; fsync 6; checkpoint; pwrite 3 10 5 18; write 4 10 19\
""".replace("\n", "; ").split("; ")
# stores through a mapping, which stays in place from then on, and calls on the same file
MAPPED = """\
open old rw; mapwrite 3 3000 5000 5; fsync 3; pwrite 3 100 100 6; fsync 3; checkpoint; mapwrite 3 6000 10 7; fsync 3
pwrite 3 4096 4096 8; ftruncate 3 9000; mapwrite 3 500 8000 9; open new rw,creat; write 4 5000 10; mapwrite 4 100 50 11
fsync 4; checkpoint; pwrite 4 1000 0 12; mapwrite 4 2000 3000 13; fsync 4; mapwrite 3 50 60 14; checkpoint\
""".replace("\n", "; ").split("; ")
# children write by descriptors that they have inherited
FORKING = """\
open old rw; open log w,append; forkwrite 3 3000 5; fsync 3; forkwrite 4 700 6; checkpoint; forkwrite 3 5000 7; fsync 4
open new w,creat; forkwrite 5 6000 8; write 5 100 9; fsync 5; checkpoint; forkwrite 3 100 10; forkwrite 5 900 11\
""".replace("\n", "; ").split("; ")
# so many files that a checkpoint makes the filesystem durable as a whole (adr/0020)
MANY = [*(word for n in range(70) for word in (f"open m{n} w,creat", f"write 3 {500 + n} {n % 64}", "close 3")),
        *["checkpoint", "open old rw", "pwrite 3 100 100 6", "rename m3 d0/m3", "rename m4 m5", "unlink m6", "fsync 3"],
        *(word for n in range(7, 74) for word in (f"open m{n} w,append,creat", f"write 4 700 {n % 60}", "close 4")),
        *["checkpoint", "pwrite 3 500 0 7", "truncate m9 100", "rename d0 d3", "checkpoint", "restore @1", "unlink m8"],
        "checkpoint", "open m7 rw", "pwrite 4 50 3 8"]
# so short that every cut of it can be tried in minutes
SMALL = """\
open old rw; pwrite 3 3000 2000 5; fsync 3; checkpoint; pwrite 3 100 2500 6; open log w,append; write 4 300 7
unlink gone; rename d0 d3; checkpoint; pwrite 3 50 10 8\
""".replace("\n", "; ").split("; ")
# old bytes written over in sequence, in place (engine/overwrite.c): the checked build calls three blocks a long one
SEQUENCES = """\
open old rw; write 3 4096 5; write 3 4096 6; write 3 8000 7; fsync 3; write 3 5000 8; pwrite 3 900 500 9; checkpoint
pwrite 3 16384 0 10; pwrite 3 3000 9000 11; checkpoint; pwrite 3 4096 4096 12; pwrite 3 12288 8192 13; fsync 3
restore @1; pwrite 3 20480 0 14; checkpoint; pwrite 3 16384 4096 15\
""".replace("\n", "; ").split("; ")
STRAIGHT = [line for line in (*SCRIPT, *SYNCING[1:9]) if not line.startswith("restore")]   # single mode has one way


@dataclass(frozen=True)
class Way:
    options: str = ""
    script: tuple[str, ...] = tuple(SCRIPT)
    durable: bool = True                   # its checkpoints
    checked: bool = False                  # in the build with assertions

    @property
    def isolated(self) -> bool:
        """Nothing is written back before a commit."""
        return self.options.endswith(("--isolate", "--mode single"))


WAYS = {
    "default": Way(), "isolate": Way("--isolate"), "synced": Way(script=tuple(SYNCING)),
    "synced-isolate": Way("--isolate", tuple(SYNCING)), "mapped": Way(script=tuple(MAPPED)),
    "forking": Way(script=tuple(FORKING)), "forking-isolate": Way("--isolate", tuple(FORKING)),
    "many": Way(script=tuple(MANY)),
    "small": Way(script=tuple(SMALL)), "small-isolate": Way("--isolate", tuple(SMALL)),
    "overwriting": Way(script=tuple(SEQUENCES), checked=True),
    "single": Way("--mode single", tuple(STRAIGHT)), "process": Way("--durability process", tuple(SYNCING), False),
}
TrialOf = Callable[[Way], Trial]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    return Times().play(monkeypatch)


@pytest.fixture
def trial_of(tmp_path: Path, compiled: Compile, installed: None, monkeypatch: pytest.MonkeyPatch) -> TrialOf:
    def trial(way: Way) -> Trial:
        if way.checked:
            monkeypatch.setenv("METAMORI_CHECKED", "1")
        return Trial(tmp_path, compiled("driver"), compiled("tracer"), way.options.split(), way.script)

    return trial


def words(tree: str) -> dict[str, str]:
    return {word.partition(":")[0]: word for word in tree.split(" ")[1:]}


def made_later(expected: Expected, tree: str) -> set[str]:
    """Names that the run made and this tree does not have: a note of one may be lost, and then it stays."""
    return {name for each in (*expected.indexes.values(), *expected.present) for name in words(each)} - {*words(tree)}


def run_and_cut(trial: Trial, times: Times, nth: int, seed: int) -> tuple[Traced, Expected, list[Fact]]:
    """The run as far as its nth call, and the disk that the power cut left."""
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
    return done, trial.expected(done.stdout), facts(trial, done.stdout)


def cut_at(trial: Trial, way: Way, times: Times, nth: int, seed: int) -> None:
    done, expected, synced = run_and_cut(trial, times, nth, seed)
    try:
        check(trial, way, expected, synced, times)
    except BaseException:
        print(f"power cut at call {nth}, seed {seed}: {done.calls[min(nth, len(done.calls)) - 1]}; {done.stderr!r}")
        raise


def check(trial: Trial, way: Way, expected: Expected, synced: list[Fact], times: Times) -> None:
    if not (trial.store / "format").exists():
        hold(synced, trial.work, "without a store")
        return
    looked = trial.verb("verify")
    assert looked.code == 0 or not way.durable, looked
    log = trial.verb("log", "--json")
    assert log.code == 0 or (log.code == 12 and not way.durable), log    # what is lost is named
    indexes = {each["index"]: each["message"] for each in json.loads(log.out)["checkpoints"]}
    if way.isolated:                       # exactly as at the last commit: the run's start, a checkpoint, its end
        assert tree_of(trial.work) in commits(way, expected)
    else:
        hold(synced, trial.work, "when the run was completed")
    if way.durable:
        assert expected.indexes.keys() - {0} <= indexes.keys(), (expected.indexes.keys(), indexes, log)
        restored(trial, way, expected, indexes)
    if way.durable and synced:             # and the state that the power cut left stays an index
        newest = max(indexes)
        done = trial.verb("restore", newest, "--to", trial.folder / "copy")
        assert done.code == 0, f"restore {newest}: {done}"
        noted = synced if way.isolated else [fact for fact in synced if known(fact, expected)]
        work = str(trial.work).lstrip("/") if trial.elsewhere else "work"    # or below the store's folder
        hold(noted, trial.folder / "copy" / work, f"at checkpoint {newest}")
    looked = trial.verb("verify")
    assert (looked.code == 0 and not looked.err) or not way.durable, looked
    starts = times.elsewhere(trial.lab.argv("run"), trial.folder / "times")
    again = subprocess.run([*starts, "--", "true"], cwd=trial.work, env=_env(trial), capture_output=True, check=False)
    assert (again.returncode, again.stderr) == (0, b""), again.stderr


def _env(trial: Trial) -> dict[str, str]:
    """For a process that needs this folder's modules."""
    return trial.lab.env | {"PYTHONPATH": os.pathsep.join([trial.lab.env["PYTHONPATH"], str(Path(__file__).parent)])}


def known(fact: Fact, expected: Expected) -> bool:
    """Whether it was there before the run, or a checkpoint has seen it: of another new file the note may be lost."""
    return any(fact.paths & words(tree).keys() for tree in expected.indexes.values())


def commits(way: Way, expected: Expected) -> set[str]:
    """What the user's files may be, where nothing is written back before a commit."""
    ended = set() if expected.pending else expected.present
    if way.options != "--mode single":
        return {expected.indexes[0], *ended}
    # of a checkpoint that was asked for and not answered nobody knows on which side of its commit it was
    last = expected.indexes[max(expected.indexes)]
    return {last, *ended, *(expected.present if expected.pending == "checkpoint" else ())}


def restored(trial: Trial, way: Way, expected: Expected, indexes: dict[int, str]) -> None:
    """Every index that was answered, exactly; in single mode the last one, or what was about to become the last."""
    known = sorted(expected.indexes.items(), reverse=True)
    if way.options == "--mode single":
        last = max((index for index, message in indexes.items() if message != "power cut"), default=0)
        if last > known[0][0]:             # its checkpoint, or the run's end, was written and not answered
            done = trial.verb("restore", last)
            assert done.code == 0 and tree_of(trial.work) in expected.present, f"restore {last}: {done}"
            return
        known = known[:1]
    for index, tree in known:
        if index == 0 and (0 not in indexes or len(expected.indexes) == 1):
            continue                       # nobody was told of a checkpoint
        done = trial.verb("restore", index)
        assert done.code == 0, f"restore {index}: {done}"
        have, want = words(tree_of(trial.work)), words(tree)
        extra = have.keys() - want.keys()
        assert all(have.get(name) == want[name] for name in want), f"restore {index}:\n have {have}\n want {want}"
        assert extra <= made_later(expected, tree), f"restore {index}: {extra}"


def last_cut(trial: Trial, way: Way) -> int:
    """All of a run. Its commit is durable also where its checkpoints are not."""
    return len(trial.run().calls)


@pytest.mark.in_turn("name", 3)
@pytest.mark.parametrize("name", WAYS)
def test_power_cut_at_some_calls(trial_of: TrialOf, times: Times, name: str) -> None:
    trial = trial_of(WAYS[name])
    total = last_cut(trial, WAYS[name])
    for nth in range(total // SAMPLE // 2, total + 1, total // SAMPLE):
        cut_at(trial, WAYS[name], times, nth, nth)


@pytest.mark.parametrize("part", [.85, pytest.param(.95, marks=pytest.mark.slow)])
def test_power_cut_in_single_mode_after_a_commit_began(trial_of: TrialOf, times: Times, part: float) -> None:
    """The index that was about to be the last is the last: the one before it is of the past."""
    trial = trial_of(WAYS["single"])
    calls = trial.run().calls
    commits = [call.number for call in calls if call.path.endswith("/store/intent") and call.name == "unlink"]
    nth = commits[-2] if part < .9 else commits[-1]
    for seed in range(2):
        cut_at(trial, WAYS["single"], times, nth, seed)


@pytest.mark.parametrize("longer", ["{}; fsync 3; ftruncate 3 20000", "{}; checkpoint; ftruncate 3 20000",
                                    "checkpoint; {}; fsync 3; restore @0"], ids=["log", "index", "went back"])
@pytest.mark.parametrize("before", [[], ["pwrite 3 100 50 5"]], ids=["not written to", "redirected"])
def test_synced_when_it_was_longer_for_a_while(
    trial_of: TrialOf, times: Times, before: list[str], longer: str
) -> None:
    """In isolation its size is what is in place again, but the log or an index has it as longer."""
    lines = longer.format("ftruncate 3 30000").split("; ")
    way = Way("--isolate", ("open old rw", *before, *lines, "fsync 3", "mkdir last"))
    trial = trial_of(way)
    last = next(call.number for call in trial.run().calls if call.path.endswith("/last"))
    cut_at(trial, way, times, last, 0)


MOVING = ["open old rw", "pwrite 3 100 100 6", "checkpoint", "rename d0 d3", "mkdir d0", "open d0/new w,creat",
          "write 4 10 3"]
MOVED = ["checkpoint", "rename gone d0/gone", "open d0/new w,creat", "write 3 10 3"]   # a file that no index knows


@pytest.mark.in_turn("script")
@pytest.mark.parametrize("options", ["", "--isolate"])
@pytest.mark.parametrize("script", [MOVING, MOVED], ids=["a folder", "a file"])
def test_what_was_moved_is_found_again(trial_of: TrialOf, times: Times, options: str, script: list[str]) -> None:
    """All that is left of it is the note that it was to be changed; an index before it has it where it was."""
    way = Way(options, tuple(script))
    trial = trial_of(way)
    total = trial.run().calls
    last = max(call.number for call in total if call.path.endswith("/d0/new"))
    done = trial.run(lambda call: "k" if call.number > last else "g")
    journal = trial.store / "run" / "journal"
    journal.write_bytes(bytes(journal.stat().st_size))
    another_boot(trial.folders[-1])
    assert (trial.work / ("d3/in" if script is MOVING else "d0/gone")).exists()
    check(trial, way, trial.expected(done.stdout), [], times)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_at_every_call(trial_of: TrialOf, tried: Tried, times: Times, name: str, part: int) -> None:
    trial = trial_of(WAYS[name])
    cuts = [(nth, 1000 * seed + nth) for seed in range(3) for nth in range(1, last_cut(trial, WAYS[name]) + 1)]
    tried(cuts, part, lambda cut: cut_at(trial, WAYS[name], times, *cut))


OVERWRITING = ["open old rw", "pwrite 3 3000 2000 5", "checkpoint", "pwrite 3 9000 2500 6", "open log w,append",
               "write 4 300 7", "rename d0 d3", "open l0 rw", "checkpoint", "pwrite 3 50 10 8", "checkpoint",
               "pwrite 3 50 30 9"]


@pytest.mark.in_turn("kept")
@pytest.mark.parametrize("kept", ["nothing", "the first half", "every other block"])
@pytest.mark.parametrize("options", ["--durability process", "--durability process --isolate"])
def test_a_buffer_that_never_reached_the_disk(trial_of: TrialOf, times: Times, options: str, kept: str) -> None:
    """Once its zeros were written over old bytes that were intact. Now what is there stays, what went is named, and an
    index that is left comes back exactly or is refused."""
    way = Way(options, tuple(OVERWRITING), False)
    trial = trial_of(way)
    commit = ("/store/intent", "/store/leaving", ".undo.")
    end = [call.number for call in trial.run().calls if any(name in call.other + call.path for name in commit)]
    done = trial.run(lambda call: "k" if end and call.number >= end[0] else "g")
    expected = trial.expected(done.stdout)
    buffer = trial.store / "buffer" / "1"
    data = buffer.read_bytes()
    blocks = len(data) // 4096
    lost = {"nothing": range(blocks), "the first half": range(blocks // 2, blocks),
            "every other block": range(0, blocks, 2)}[kept]
    with buffer.open("r+b") as file:
        for block in lost:
            file.seek(block * 4096)
            file.write(bytes(4096))
    another_boot(trial.folders[-1])
    homes = {path: path.read_bytes() for path in trial.work.rglob("*") if path.is_file()}
    told = trial.verb("log", "--json")
    assert told.code == 0 and "the machine went down" in told.err, told
    left = {each["index"] for each in json.loads(told.out)["checkpoints"]}
    gone = expected.indexes.keys() - left
    assert not gone and ("had not reached the disk" in told.err or way.isolated), told
    if kept == "nothing":
        for path, content in homes.items():
            assert not path.exists() or path.read_bytes() == content, path
    assert trial.verb("verify").code == 12
    good = []
    for index in sorted(left & expected.indexes.keys()):
        before = tree_of(trial.work)
        answer = trial.verb("restore", index)
        if answer.code == 12:
            assert tree_of(trial.work) == before, (index, answer)
        else:
            good.append(index)
            assert answer.code == 0, answer
            have, want = words(tree_of(trial.work)), words(expected.indexes[index])
            assert all(have.get(name) == want[name] for name in want), (index, have, want)
    assert {0} <= {*good} < {*left}, [trial.verb("restore", index) for index in sorted(left)]


def test_what_was_fsynced_is_durable_at_home_before_the_run_area_goes(trial_of: TrialOf) -> None:
    """Of checkpoints `--durability process` promises nothing; of the program's fsync all the same."""
    trial = trial_of(WAYS["process"])
    trial.prepare()
    calls = trial.run(lambda call: "g").calls
    gone = next(n for n, call in enumerate(calls) if call.path.endswith("/store/run") and call.name == "rename")
    for name in ("old", "gone", "d0/new"):
        of_it = [(n, call.name) for n, call in enumerate(calls[:gone]) if call.path == str(trial.work / name)]
        written = max(n for n, call in of_it if call in ("pwrite", "copy_file_range"))
        assert any(call in ("fsync", "fdatasync") for n, call in of_it if n > written), (name, of_it)
