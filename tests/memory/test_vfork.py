"""A checkpoint that comes while a process waits for its child to become another program: vfork, posix_spawn."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built, running
from lab import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("installed")


def ways(daily: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("what", [pytest.param(each, marks=[] if each == daily else pytest.mark.slow)
                                            for each in ("vfork", "clone", "raw", "spawn", "thread")])


@contextmanager
def amid(folder: Path, what: str) -> Iterator[Memory]:
    """It stands in the middle; afterwards it has gone on to its end, as natively."""
    case = Memory(folder, [built(folder, "vforks.c"), what], setup={"go": b"", "end": b""})
    assert case.native.status == 5, case.native
    for name in ("go", "end"):
        (case.work / name).unlink()
    with running(case.start()) as run:
        wait_until(lambda: (case.work / "amid").exists() or run.poll() is not None, f"it is amid: {case.errors()}")
        yield case
        (case.work / "go").touch()
        (case.work / "end").touch()
        assert run.wait(PATIENCE) == 5, case.errors()
    assert (folder / "out").read_bytes() == case.native.output


def comes_back(case: Memory, index: int) -> None:
    for _ in range(2):
        case.goes_on(index, "--force")     # "go" and "end" are no part of the run
    assert case.verb("verify").returncode == 0


@ways("clone")
def test_it_is_waited_for(tmp_path: Path, what: str) -> None:
    """By the C library's vfork, which is a fork, nobody waits."""
    with amid(tmp_path, what) as case:
        asked = subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.9)
        assert what == "vfork" or asked.poll() is None
        (case.work / "go").touch()
        out, err = asked.communicate(timeout=PATIENCE)
        assert asked.returncode == 0, (err, case.errors())
    comes_back(case, int(out))


@pytest.mark.slow
@ways("clone")
def test_one_that_stays_there(tmp_path: Path, what: str) -> None:
    """Said soon, and the program goes on; a child of the C library's vfork is saved like any other."""
    with amid(tmp_path, what) as case:
        begins = time.monotonic()
        done = case.verb("checkpoint")
        took = time.monotonic() - begins
        if what != "vfork":
            assert done.returncode == 1 and took < 8, (done, took)
            assert b"waits for a child that has not become another program yet (vfork, posix_spawn)" in done.stderr
            assert case.images() == []
    if what == "vfork":
        comes_back(case, int(done.stdout))


def test_shells_by_popen(tmp_path: Path) -> None:
    """Who has just started one waits for the end of a freeze, and keeps no image from being made."""
    case = Memory(tmp_path, [built(tmp_path, "popens.c")])
    case.goes_on(case.run_and_kill("20ms", 6)[-1])
