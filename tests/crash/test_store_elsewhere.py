"""The store on another filesystem than the data: a file that loses its name is there as a copy, another inode, and one
that a restore inside the program brings back is one more. Whoever completes the run has to know which is whose."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from test_kill_points import killing
from trial import Trial

WAYS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
SAMPLE = 5


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == tmp_path.stat().st_dev:
            pytest.skip("the data are on /dev/shm too")
        monkeypatch.setenv("METAMORI_TEST_STORES", folder)
        yield


@pytest.mark.usefixtures("shm", "installed")
@WAYS
def test_killed_at_some_calls(tmp_path: Path, compiled: Compile, options: list[str]) -> None:
    """The restore inside the program is among them."""
    trial = Trial(tmp_path, compiled("driver"), compiled("tracer"), options)
    total = len(trial.run().calls)
    for nth in range(total // SAMPLE, total, total // SAMPLE):
        done = trial.run(killing(nth, "k"))
        trial.check(trial.expected(done.stdout), present=not options)
