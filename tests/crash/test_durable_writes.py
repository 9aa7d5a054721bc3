"""A write that is to be durable when it answers (O_SYNC, RWF_DSYNC): what of it is in place is synced there."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Compile
from trial import Trial

CASES = {                                  # `old` has 20,000 bytes that an index knows
    "behind the old end": ["open old rw", "checkpoint", "pwritesync 3 4096 24576 5"],
    "over the old end": ["open old rw", "checkpoint", "pwritesync 3 8000 18000 5"],
    "the length alone": ["open old rw,sync", "checkpoint", "pwrite 3 200 19900 5"],
    "of a mapped file": ["open old rw", "checkpoint", "mapread 3 4096", "pwritesync 3 4096 0 5"],
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_in_place_is_synced(tmp_path: Path, compiled: Compile, installed: None, name: str) -> None:
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"), script=[*CASES[name], "mkdir answered"])
    done = trial.run()
    assert done.stdout.split()[-2:] == [CASES[name][-1].split()[2].encode(), b"0"], done
    calls = [(call.name, Path(call.path).name) for call in done.calls]
    calls = calls[:next(i for i, (_, path) in enumerate(calls) if path == "answered")]
    changed = max(calls.index((name, "old")) for name in ("pwrite", "pwritev2", "ftruncate") if (name, "old") in calls)
    assert ("fdatasync", "old") in calls[changed:], calls
