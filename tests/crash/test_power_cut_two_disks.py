"""The power fails while the store is on another disk than the files: what reaches the one says nothing of the other, so
what the run touches first is noted durably before it changes (shim_c/src/names/note_links.c)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rewind import Times
from slices import PARTS, Tried
from test_failing_calls import failing
from test_power_cut_in_run import WAYS, TrialOf, Way, cut_at, times, trial_of

__all__ = ["times", "trial_of"]            # fixtures
NAMES = pytest.mark.parametrize("name", ["default", "isolate", "synced", "synced-isolate", "many"])
SAMPLE = 6
# files that no checkpoint has seen change, and that is durable at once
FIRST = """\
checkpoint; open log w,append; write 3 700 9; fsync 3; chmod d0/in 600; fsync 3; rename gone d0/gone; fsync 3
unlink l0; fsync 3; rename d0 d3; fsync 3; truncate old 100; fsync 3\
""".replace("\n", "; ").split("; ")


@pytest.fixture(autouse=True)
def store_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == tmp_path.stat().st_dev:
            pytest.skip("the data are on /dev/shm too")
        monkeypatch.setenv("METAMORI_TEST_STORES", folder)
        yield


@pytest.mark.in_turn("name", 2)
@NAMES
def test_power_cut_at_some_calls(trial_of: TrialOf, times: Times, name: str) -> None:
    trial = trial_of(WAYS[name])
    total = len(trial.run().calls)
    for nth in range(total // SAMPLE // 2, total + 1, total // SAMPLE):
        cut_at(trial, WAYS[name], times, nth, nth)


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize("options", ["", "--isolate"])
def test_what_was_first_touched_is_known(trial_of: TrialOf, times: Times, options: str) -> None:
    """Once the files kept what was fsynced, and a restore of the checkpoint before did not take it back."""
    way = Way(options, tuple(FIRST))
    trial = trial_of(way)
    syncs = [call.number for call in trial.run().calls if call.path == str(trial.work / "log") and call.name == "fsync"]
    assert len(syncs) >= 6
    for nth in syncs[:6]:
        cut_at(trial, way, times, nth + 1, nth)


@pytest.mark.parametrize("options", ["", "--isolate"])
def test_what_cannot_be_noted_durably_is_not_done(trial_of: TrialOf, options: str) -> None:
    """Once it was, for want of memory or of a descriptor."""
    trial = trial_of(Way(options, ("checkpoint", "chmod d0/in 600")))
    seen = trial.run(program=trial.driver.name, calls="any").calls
    opening = [call.number for call in seen if call.name == "openat" and call.path == str(trial.store / "run/notes")]
    done = trial.run(failing(opening[-1], "ENOMEM"), trial.driver.name, "any")
    assert b"ENOMEM" in done.stdout, done
    trial.check(trial.expected(done.stdout, ["ENOMEM"]))


@pytest.mark.slow
@NAMES
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_at_every_call(trial_of: TrialOf, tried: Tried, times: Times, name: str, part: int) -> None:
    trial = trial_of(WAYS[name])
    cuts = [(nth, 1000 * seed + nth) for seed in range(3) for nth in range(1, len(trial.run().calls) + 1)]
    tried(cuts, part, lambda cut: cut_at(trial, WAYS[name], times, *cut))
