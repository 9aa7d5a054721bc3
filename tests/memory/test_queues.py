"""Message queues of POSIX: they come back, or the checkpoint is refused and names them."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from comeback import Memory, built, comes_back
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")
LIBC = ctypes.CDLL(None, use_errno=True)
NO_WAIT = os.O_NONBLOCK | os.O_CLOEXEC


@pytest.mark.parametrize("what", ["work", "told"])
def test_they_come_back(tmp_path: Path, what: str) -> None:
    """With messages in their order; named, nameless, closed; processes wait for a message, for a place, to be told."""
    case = Memory(tmp_path, [built(tmp_path, "queues.c"), what])
    case.may_refuse = lambda line: "waits to be told of the first" in line
    comes_back(case, "100ms")


CASES = {"first": "holds messages, and a process waits to be told of the first (mq_notify)",
         "open": "is open in another process, ",
         "mode": "cannot come back: its user, or its mode, is another than usual"}


def started(case: Memory) -> tuple[subprocess.Popen[bytes], bytes]:
    """It waits for the file "go"; the name of its queue."""
    (case.work / "go").unlink()
    out, run = case.folder / "out", case.start()
    wait_until(lambda: b"ready" in out.read_bytes() or run.poll() is not None, "it is ready")
    return run, out.read_bytes().split()[0]


def inode(name: bytes) -> int:
    """Of the queue that has this name; 0: none has."""
    fd = LIBC.mq_open(name, NO_WAIT)
    if fd < 0:
        return 0
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


@pytest.mark.parametrize("what", CASES)
def test_what_cannot_is_named(tmp_path: Path, what: str) -> None:
    """No message is lost by it."""
    case = Memory(tmp_path, [built(tmp_path, "queues.c"), what], setup={"go": b""})
    run, name = started(case)
    try:
        mine = LIBC.mq_open(name, NO_WAIT) if what == "open" else -1
        assert (mine >= 0) == (what == "open")
        done = case.verb("checkpoint")
        said = "may not be looked at" if what == "mode" and os.geteuid() else CASES[what]      # root may
        assert done.returncode == 1 and said in done.stderr.decode(), done
        assert (name if "looked at" in said else b"the POSIX message queue '" + name) in done.stderr
        if mine >= 0:
            os.close(mine)
        (case.work / "go").touch()
        assert run.wait(300) == 0, case.errors()
        assert (tmp_path / "out").read_bytes().splitlines()[1:] == case.native.output.splitlines()[1:]
    finally:
        run.kill()
    assert case.images() == []


def _comes_back_under(case: Memory, name: bytes, seen: set[int]) -> None:
    again = case.restart_in_background(1)
    try:
        wait_until(lambda: inode(name) not in {0, *seen} or again.poll() is not None, "it is back")
        case.kill_with(again)
        again.wait(300)
    finally:
        again.kill()


def test_somebody_has_the_name(tmp_path: Path) -> None:
    """Found out before anything is touched. What the killed program left, and an earlier restart, is replaced."""
    case = Memory(tmp_path, [built(tmp_path, "queues.c"), "kept"], setup={"go": b""})
    run, name = started(case)
    try:
        assert case.verb("checkpoint").returncode == 0, case.errors()
        case.kill(run)
        run.wait(300)
    finally:
        run.kill()
    seen = {inode(name)}
    for _ in range(2):                     # the second replaces what the first made
        _comes_back_under(case, name, seen)
        seen.add(inode(name))
    assert len(seen) == 3 and LIBC.mq_unlink(name) == 0
    other = LIBC.mq_open(name, NO_WAIT | os.O_CREAT | os.O_RDWR, 0o600, None)
    try:
        done = case.verb("restart", "1")
        assert done.returncode == 1 and b"is there and in use, or is not the program's own" in done.stderr, done
        assert name in done.stderr and os.fstat(other).st_nlink == 1
    finally:
        LIBC.mq_unlink(name)
        os.close(other)
    (case.work / "go").touch()
    done = case.verb("restart", "--force", "1")
    assert done.returncode == 0 and done.stdout.splitlines() == case.native.output.splitlines()[2:], done
    assert LIBC.mq_open(name, NO_WAIT) < 0
