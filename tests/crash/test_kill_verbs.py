"""A verb is killed at each of its system calls that change a file: a restore, a prune, the completion of a killed run,
a checkpoint from outside. Afterwards every index is there, and the next verb and the run go on.

`make test` takes some of the calls, `make kills` every one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from honest import assert_honest
from lab import Lab
from test_kill_points import killing
from tracing import Traced, trace
from trial import Trial, tree_of

from metamori.store.io.os_io import REAL

KILLED = 9
# each so manyth call of a verb, before it happens (k) or when it has been done (x); in make test not every one
EVERY = pytest.mark.parametrize(("step", "how"), [
    (13, "k"), (17, "x"), pytest.param(1, "k", marks=pytest.mark.slow), pytest.param(1, "x", marks=pytest.mark.slow),
], ids=["some", "some-after", "every", "every-after"])


@pytest.fixture
def trial(tmp_path: Path, compiled: Compile, installed: None) -> Trial:
    return Trial(tmp_path, compiled("driver"), compiled("tracer"))


def traced(trial: Trial, nth: int, how: str, *words: object) -> Traced:
    """A verb that is killed at its nth call; one with fewer calls ends by itself."""
    return trace(trial.tracer, trial.lab.argv(str(words[0]), *words[1:]), trial.folder, killing(nth, how),
                 cwd=trial.folder, env=trial.lab.env, also=trial.elsewhere)


def each_kill(trial: Trial, step: int, how: str, *words: object) -> Iterator[tuple[int, Traced]]:
    """The verb, killed at each stepth call, until it lives to its end. Between two, the caller puts things back."""
    for nth in range(1 + step // 2, 100_000, step):
        done = traced(trial, nth, how, *words)
        yield nth, done
        if done.status != KILLED:
            assert done.status == 0, done
            return


def all_there(trial: Trial, trees: dict[int, str], what: object) -> None:
    """Looking is harmless, every index restores exactly, nothing is left over."""
    try:
        assert_honest(trial.store, trial.work, trees, untracked=trial.model().state.names.tree())
    except AssertionError as wrong:
        raise AssertionError(f"{what}: {wrong}") from wrong
    looked = trial.verb("verify")
    assert (looked.code, looked.err) == (0, ""), (what, looked)


def ended(trial: Trial) -> dict[int, str]:
    """A whole run; the trees of its indexes, its end among them."""
    done = trial.run()
    trees = dict(trial.expected(done.stdout).indexes)
    return trees | {max(trees) + 1: tree_of(trial.work)}


@pytest.mark.in_turn("target", 2)
@EVERY
@pytest.mark.parametrize("target", [0, 1, 3])
def test_a_killed_restore(trial: Trial, target: int, step: int, how: str) -> None:
    trees = ended(trial)
    for kills, (nth, done) in enumerate(each_kill(trial, step, how, "restore", target)):
        if done.status != KILLED:
            assert tree_of(trial.work) == trees[target]
        others = [max(trees), *sorted(trees)][kills % len(trees)]
        all_there(trial, {others: trees[others]} if nth % 10 else trees, (nth, done.calls[-1]))
        assert trial.verb("restore", max(trees)).code == 0
    assert kills > 2
    print(f"restore {target} ({how}): {kills} kills")


@pytest.mark.in_turn("gone")
@EVERY
@pytest.mark.parametrize("gone", [False, True], ids=["replaced", "removed"])
def test_somebody_works_on_after_a_killed_restore(trial: Trial, step: int, how: str, gone: bool) -> None:
    """The next verb completes it, but not over a file that an editor has put in another's place, or somebody removed:
    that stays, and no index is silently another."""
    said = kills = 0
    for nth in range(1 + step // 2, 100_000, step):
        trees = ended(trial)           # from the beginning: what is lost by now says nothing about the next
        done = traced(trial, nth, how, "restore", 1)
        if done.status != KILLED:
            break
        if not (trial.store / "intent").exists():
            continue
        files = sorted(path for path in trial.work.rglob("*") if path.is_file() and not path.is_symlink())
        theirs, kills = files[kills % len(files)], kills + 1
        (trial.folder / "new").write_bytes(b"theirs" * 5000)
        theirs.unlink() if gone else os.replace(trial.folder / "new", theirs)
        looked = trial.verb("log")
        if looked.code == 14:              # a file is to come where it stands
            assert "is in the way" in looked.err, (nth, looked)
            os.replace(theirs, trial.folder / "new")
            looked = trial.verb("log")
        else:
            assert gone or theirs.read_bytes() == b"theirs" * 5000, (nth, theirs, done.calls[-1])
        assert looked.code in (0, 12), (nth, looked)
        said += "meanwhile, and left so" in looked.err
        try:
            assert_honest(trial.store, trial.work, trees, lossless=False, moving=False,
                          untracked=trial.model().state.names.tree())
        except AssertionError as wrong:
            raise AssertionError(f"{nth}, {theirs}, {done.calls[-1]}, {looked}: {wrong}") from wrong
    assert kills and said


def half_restored(lab: Lab, compiled: Compile, target: int = 1) -> Iterator[int]:
    """A restore that was killed, again and again, when it had just written: to g, or at 2 to f, which comes back."""
    script = """import os, metamori
with open("f", "wb") as file: file.write(b"a" * 300000)
with open("g", "wb") as file: file.write(b"a" * 300000)
metamori.checkpoint()
for name in "fg":
    with open(name, "r+b") as file:
        for at in 9000, 100000: file.seek(at); file.write(b"bbbb")
metamori.checkpoint()
os.unlink("f")"""
    assert lab.run([sys.executable, "-c", script]).returncode == 0
    lab.restore(1)
    lab.restore(3)
    for nth in range(1, 100_000):
        killed = trace(compiled("tracer"), lab.argv("restore", target), lab.folder, killing(nth, "x"), cwd=lab.folder,
                       env=lab.env, also=[lab.store.parent])
        if killed.status != KILLED:
            return
        last = killed.calls[-1]
        if (lab.store / "intent").exists() and last.path.startswith(str(lab.work)) and "write" in last.name:
            yield nth
        lab.restore(3, "--force")


def test_a_copy_that_is_being_written_is_the_restores_own(elsewhere: Lab, compiled: Compile) -> None:
    """It comes from another filesystem, so it is another file than the one that was removed."""
    kills = 0
    for nth in half_restored(elsewhere, compiled, 2):
        kills += 1
        assert "meanwhile" not in elsewhere.verb("log").stderr, nth
        assert (elsewhere.work / "f").read_bytes() == (elsewhere.work / "g").read_bytes(), nth
    assert kills > 1


@pytest.mark.parametrize("name", ["f", "g"], ids=["written-to", "made-anew"])
def test_theirs_with_the_number_that_was_noted_counts_as_modified(lab: Lab, compiled: Compile, name: str) -> None:
    """One that has come back is written to; one that was being written is removed, and made anew."""
    next(half_restored(lab, compiled))
    theirs = lab.work / name
    if name == "g":
        theirs.unlink()                    # the filesystem gives its number again, as a rule
    theirs.write_bytes(b"theirs")
    born = REAL.birth_ns(bytes(theirs))
    os.utime(lab.store / "intent", ns=(born, born))        # in one step of the clock, at worst
    assert f"left so: work/{name}\n" in lab.verb("log").stderr
    assert theirs.read_bytes() == b"theirs"
    assert f"modified outside Metamori: work/{name}; --force" in lab.restore(3, code=14).stderr


def test_in_a_copy_a_killed_restore_is_completed(lab: Lab, compiled: Compile) -> None:
    next(half_restored(lab, compiled))
    lab.work.rename(lab.folder / "before")
    subprocess.run(["cp", "-a", lab.folder / "before", lab.work], check=True)
    lab.store.rename(lab.folder / "store.before")
    subprocess.run(["cp", "-a", lab.folder / "store.before", lab.store], check=True)
    assert "meanwhile" not in lab.restore(1).stderr
    assert (lab.work / "f").read_bytes() == b"a" * 300000 == (lab.work / "g").read_bytes()


@EVERY
def test_a_killed_prune(trial: Trial, step: int, how: str) -> None:
    trees, kills = ended(trial), 0
    for nth, done in each_kill(trial, step, how, "prune", "--keep-last", 2):
        kills += done.status == KILLED
        there = known(trial)
        kept = {index: tree for index, tree in trees.items() if index in there}
        assert set(sorted(trees)[-2:]) <= set(kept), (nth, kept)
        all_there(trial, kept, (nth, done.calls[-1]))
        assert trial.verb("prune", "--keep-last", 2).code == 0
        if done.status == KILLED:
            trees = ended(trial)
    assert kills > 2
    print(f"prune ({how}): {kills} kills")


@EVERY
def test_a_killed_restore_of_some_paths(lab: Lab, compiled: Compile, step: int, how: str) -> None:
    """Each file is as before or as asked for, the others are not touched, and every index is there."""
    trial = Trial(lab.folder, lab.driver, compiled("tracer"))
    trial.lab, trial.folder, trial.work, trial.store = lab, lab.folder, lab.work, lab.store
    trial.elsewhere = [lab.store.parent] if lab.store.parent != lab.folder else []
    trees, kills = {}, 0
    for line in ("mkdir d; seq 3000 > d/a; echo 1 > d/b; ln d/b hard; echo 1 > f; echo 1 > other",
                 "echo 2 >> d/a; echo 2 > d/b; rm f; mkdir f; echo 2 > f/x; echo 2 > other; echo 2 > d/new"):
        lab.run(["sh", "-c", line])
        trees[len(trees) + 1] = tree_of(lab.work)
    for nth, done in each_kill(trial, step, how, "restore", 1, lab.work / "d", lab.work / "f"):
        looked = trial.verb("log")         # what was begun is carried through
        assert looked.code == 0, looked
        want = {"d/a": {2, 1}, "hard": {2}, "other": {2}}
        for path, states in want.items():
            words = {word for word in tree_of(lab.work).split() if word.startswith(f"{path}:")}
            assert any(words <= set(trees[state].split()) for state in states) or path == "hard", (nth, path, words)
        assert (lab.work / "hard").read_text() == "2\n" == (lab.work / "other").read_text(), nth
        assert trial.verb("restore", 1, lab.work / "d", lab.work / "f").code == 0
        assert (lab.work / "f").read_text() == "1\n" == (lab.work / "d" / "b").read_text(), nth
        assert not (lab.work / "d" / "new").exists() and (lab.work / "hard").read_text() == "2\n", nth
        kills += done.status == KILLED
        if nth % 10 == 0 or done.status != KILLED:
            all_there(trial, trees, (nth, done.calls[-1]))
        assert trial.verb("restore", 2).code == 0
    assert kills > 2
    print(f"restore of some paths ({how}): {kills} kills")


def known(trial: Trial) -> set[int]:
    return {each["index"] for each in trial.lab.log()["checkpoints"] if not each["message"].endswith("(pruned)")}


@pytest.mark.in_turn("options")
@EVERY
@pytest.mark.parametrize("options", ["", "--isolate"], ids=["default", "isolate"])
def test_a_killed_completion(tmp_path: Path, compiled: Compile, installed: None, options: str, step: int,
                             how: str) -> None:
    """Everything was killed near the end of a run; the verb that completes it is killed too."""
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"), options.split())
    last = len(trial.run().calls) * 3 // 4
    kills = 0
    for nth in range(1 + step // 2, 100_000, 2 * step if step > 1 else 1):   # twice as many calls as the others
        died = trial.run(killing(last, "k"))
        done = traced(trial, nth, how, "restore", 1)
        trial.check(trial.expected(died.stdout), present=False)
        if done.status != KILLED:
            break
        kills += 1
    assert kills > 2
    print(f"completion ({options or 'default'}, {how}): {kills} kills")


@pytest.mark.parametrize("options", ["--keep-last 2", "--keep-last 2 --isolate"], ids=["default", "isolate"])
def test_killed_completions_leave_what_the_run_continues_from(
        tmp_path: Path, compiled: Compile, installed: None, options: str) -> None:
    """Each recorded anew how the run was left, and soon these were all that --keep-last kept. Killed in the second one
    when its index is there, when it is about to prune, and at the end."""
    script = ["open old rw", "pwrite 3 300 0 1", "checkpoint", "pwrite 3 300 100 2", "checkpoint", "open late w,creat"]
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"), options.split(), script=script)
    last = next(call.number for call in trial.run().calls if call.path.endswith("work/late"))

    def killed() -> int:
        return max(trial.expected(trial.run(killing(last, "k")).stdout).indexes)

    assert killed() == 2
    calls = traced(trial, 1 << 30, "k", "log").calls
    points = [max(call.number for call in calls if word in call.other + call.path) for word in (".meta.", "/head", "")]
    for nth in points:
        assert killed() == 2
        for _ in range(2):
            traced(trial, nth, "x", "log")
        assert trial.verb("log").code == 0
        assert 2 in known(trial), nth
        assert trial.verb("restore", 2).code == 0


@EVERY
def test_a_killed_checkpoint_from_outside(lab: Lab, compiled: Compile, step: int, how: str) -> None:
    """The run goes on; its next checkpoint holds what the killed one saw."""
    session = lab.start()
    trial = Trial(lab.folder, lab.driver, compiled("tracer"))
    trial.lab, trial.folder, trial.work, trial.store = lab, lab.folder, lab.work, lab.store
    trial.elsewhere = [lab.store.parent] if lab.store.parent != lab.folder else []
    trees, kills = {}, 0
    session.must(["open f0 rw,creat", "write 3 20000 1", "checkpoint"])
    for nth, done in each_kill(trial, -(-step // 6), how, "checkpoint"):
        kills += done.status == KILLED
        session.must([f"pwrite 3 700 {nth * 300 % 18000} {nth}", f"open n{nth % 3} rw,creat,trunc", "close 4"])
        index = int(session.must(["checkpoint"])[0])
        trees[index] = session.ask("tree")
        assert session.must([f"pwrite 3 5000 {nth * 100 % 9000} {nth + 1}"])
    assert session.end() == 0
    all_there(trial, trees, "after the run")
    assert kills > 2
    print(f"checkpoint ({how}): {kills} kills")
