"""The power fails again, while what a power cut left of a run is completed; and in `restore --to`: nothing to spoil.

The verb runs in this process: each call of Python's `os` that changes or syncs a file is a cut, as in rewind.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rewind import Times, Watched
from test_power_cut_in_run import WAYS, TrialOf, check, run_and_cut, times, trial_of
from tracing import Call, trace
from trial import Trial

__all__ = ["times", "trial_of"]            # fixtures
CHANGING = ("pwrite", "write", "fsync", "fdatasync", "ftruncate", "truncate", "rename", "replace", "link", "unlink",
            "remove", "rmdir", "mkdir", "symlink", "mkfifo", "chmod", "fchmod", "chown", "utime")


class PowerCut(BaseException):
    """Nothing after this happens."""


@contextmanager
def cutting(trial: Trial, nth: int) -> Iterator[Watched]:
    """The nth change and all later ones do not happen."""
    watched, count, was = Watched(trial.folders), 0, {name: getattr(os, name) for name in (*CHANGING, "open")}

    def step(name: str, target: object) -> None:
        nonlocal count
        count += 1
        if count >= nth:
            raise PowerCut
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
        watched.seen(Call(count, 0, name, 0, path, ""))

    def changing(name: str) -> Any:
        def call(target: Any, *words: Any, **more: Any) -> Any:
            step(name, target)
            return was[name](target, *words, **more)

        return call

    def opening(path: Any, flags: int, *words: Any, **more: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            step("open", path)
        fd: int = was["open"](path, flags, *words, **more)
        return fd

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, changing(name))
        patch.setattr(os, "open", opening)
        yield watched


def cut_twice(trial: Trial, times: Times, name: str, first: int, second: int) -> bool:
    """Whether the completion had that many changes."""
    done, expected, synced = run_and_cut(trial, times, first, first)
    finished = True
    with cutting(trial, second) as watched:
        try:
            assert trial.verb("log").code == 0
        except PowerCut:
            finished = False
    if finished:
        return False
    watched.cut_power(random.Random(first * 1000 + second), times)
    try:
        check(trial, WAYS[name], expected, synced, times)
    except BaseException:
        print(f"{name}: cut at {first}, {done.calls[-1]}, and at change {second} of the completion")
        raise
    return True


@pytest.mark.in_turn("name", 2)
@pytest.mark.parametrize("name", ["synced", "isolate"])
def test_cut_again_at_some_changes(trial_of: TrialOf, times: Times, name: str) -> None:
    trial = trial_of(WAYS[name])
    total = len(trial.run().calls)
    cuts = [second for second in (4, 13, 22, 31) if cut_twice(trial, times, name, total * 2 // 3, second)]
    assert len(cuts) >= 2


def test_the_next_run_sees_the_disk_that_is_played(trial_of: TrialOf, times: Times) -> None:
    """Once it saw the real times of a file whose only copy is in the store, and said that somebody had changed it."""
    trial = trial_of(WAYS["isolate"])
    first = len(trial.run().calls) // 2
    assert all([cut_twice(trial, times, "isolate", first, second) for second in range(31, 35)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "synced", "isolate", "single", "forking"])
@pytest.mark.parametrize("part", [.2, .5, .8])
def test_cut_again_at_every_change(trial_of: TrialOf, times: Times, name: str, part: float) -> None:
    trial = trial_of(WAYS[name])
    first = int(len(trial.run().calls) * part)
    second = 1
    while cut_twice(trial, times, name, first, second):
        second += 1
    assert second > 3


def test_a_copy_changes_nothing(trial_of: TrialOf) -> None:
    """So a power cut in it has nothing to spoil: no call of `restore --to` changes the store or the user's files."""
    trial = trial_of(WAYS["default"])
    trial.run()
    target = trial.folder / "copy"
    done = trace(trial.tracer, trial.lab.argv("restore", 2, "--to", target), trial.folder, cwd=trial.folder,
                 env=trial.lab.env, also=trial.elsewhere)
    work = str(trial.work).lstrip("/") if trial.elsewhere else "work"    # or below the store's folder
    assert done.status == 0 and (target / work / "old").exists(), done
    elsewhere = [str(call) for call in done.calls if not call.path.startswith(str(target))]
    named = f": fsync {target.parent}"     # its own name is durable by that
    assert not [call for call in elsewhere if not call.endswith(named)]
