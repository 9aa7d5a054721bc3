"""Objects of System V that processes share: they come back, or the checkpoint is refused and names them."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import picture, wait_until

pytestmark = pytest.mark.usefixtures("installed")
LIBC = ctypes.CDLL(None, use_errno=True)


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


KEPT = """
import ctypes, os, sys, time
libc, key = ctypes.CDLL(None), int(sys.argv[1])
made = {"memory": lambda: libc.shmget(key, 4096, 0o1600), "semaphores": lambda: libc.semget(key, 1, 0o1600),
        "a queue": lambda: libc.msgget(key, 0o1600)}[sys.argv[2]]()
assert made >= 0
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
again = {"memory": lambda: libc.shmget(key, 4096, 0), "semaphores": lambda: libc.semget(key, 1, 0),
         "a queue": lambda: libc.msgget(key, 0)}[sys.argv[2]]()
print(again == made)
"""


def made_by_us(what: str, key: int) -> Callable[[], int]:
    """With the program's key, and used by this process. What takes it away."""
    if what == "memory":
        number = LIBC.shmget(key, 4096, 0o1600)
        LIBC.shmat.restype = ctypes.c_void_p
        at = ctypes.c_void_p(LIBC.shmat(number, None, 0))
        return lambda: LIBC.shmdt(at) + LIBC.shmctl(number, 0, None)
    if what == "semaphores":
        number = LIBC.semget(key, 1, 0o1600)
        assert LIBC.semop(number, struct.pack("=Hhh", 0, 1, 0), 1) == 0
        return lambda: LIBC.semctl(number, 0, 0)
    number = LIBC.msgget(key, 0o1600)
    assert LIBC.msgsnd(number, struct.pack("=q8s", 1, b"ours"), 8, 0) == 0
    return lambda: LIBC.msgctl(number, 0, None)


@pytest.mark.parametrize("what", ["memory", "semaphores", "a queue"])
def test_somebody_has_the_key(tmp_path: Path, what: str) -> None:
    """Said before anything is touched; free again, the program goes on."""
    key = 0x4E000000 | os.getpid() & 0xFFFFFF
    case = Memory(tmp_path, ["/usr/bin/python3", "-c", KEPT, str(key), what], ends=False)
    case.is_saved_and_killed()
    assert case.log()
    left = {"memory": LIBC.shmget, "semaphores": LIBC.semget, "a queue": LIBC.msgget}[what]
    number = left(key, 0) if what == "a queue" else left(key, 0, 0)
    remove = {"memory": LIBC.shmctl, "a queue": LIBC.msgctl}.get(what)
    assert (remove(number, 0, None) if remove else LIBC.semctl(number, 0, 0)) == 0
    take_away = made_by_us(what, key)
    try:
        (case.work / "untouched").write_text("by nobody")
        before = picture(case.work)
        done = case.verb("restart", "--force", "1")
        assert done.returncode == 1 and b"is there and in use, or is not the program's own" in done.stderr, done
        assert b"System V" in done.stderr and picture(case.work) == before
    finally:
        assert take_away() == 0
    (case.work / "go").touch()
    done = case.verb("restart", "--force", "1")
    assert (done.returncode, done.stdout) == (0, b"True\n"), done
    number = left(key, 0) if what == "a queue" else left(key, 0, 0)
    assert (remove(number, 0, None) if remove else LIBC.semctl(number, 0, 0)) == 0
