"""Objects of System V that processes share: they come back, or the checkpoint is refused and names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")


@pytest.mark.parametrize("what", ["work", "new"])
def test_they_come_back(tmp_path: Path, what: str) -> None:
    """Semaphores, a queue that holds messages, memory that is mapped, was removed, or nobody maps; by the numbers and
    keys that the program knows."""
    case = Memory(tmp_path, [built(tmp_path, "sysv.c"), what])
    case.everywhere(case.run_and_kill("200ms", 3))


def unreachable() -> set[str]:
    """Shared memory as large as this program's, that has no key."""
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {words[1] for words in lines if words[0] == "0" and words[3] == "300012"}


def test_what_nobody_can_find_goes_with_the_killed_program(tmp_path: Path) -> None:
    """It comes back as new; whether all was killed, or the program alone, or one that had come back."""
    before = unreachable()
    case = Memory(tmp_path, [built(tmp_path, "sysv.c"), "private"])
    found = case.run_and_kill("200ms", 2)
    assert unreachable() == before
    case.goes_on(found[0])
    run = case.restart_in_background(found[-1])
    try:
        wait_until(lambda: unreachable() != before or run.poll() is not None, "it is back")
        case.kill_with(run)
        run.wait(300)
    finally:
        run.kill()
    assert case.log() and unreachable() == before
    case.goes_on(found[-1])
    assert unreachable() == before


CASES = {"undo": "cannot come back: the kernel is to undo operations on it (SEM_UNDO)",
         "part": "is mapped in part, which cannot come back",
         "mode": "cannot come back: its user, or its mode, is another than usual"}


@pytest.mark.parametrize("what", CASES)
def test_what_cannot_is_named(tmp_path: Path, what: str) -> None:
    case = Memory(tmp_path, [built(tmp_path, "sysv.c"), what], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes() or run.poll() is not None, "it is ready")
        done = case.verb("checkpoint")
        said = "cannot be looked at" if what == "mode" and os.geteuid() else CASES[what]      # root may
        assert done.returncode == 1 and said in done.stderr.decode(), done
        assert b"System V" in done.stderr
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes() == case.native.output
    finally:
        run.kill()
    assert case.images() == []
