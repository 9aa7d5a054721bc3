"""What a restart needs is refused: it says so and ends, and the same restart works when it has it again."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory
from conftest import Compile
from stops import Stops

pytestmark = [pytest.mark.usefixtures("installed"),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls")]
MMAP, BRK, CLONE, FCNTL, TIMER_CREATE, MQ_NOTIFY, INOTIFY_ADD_WATCH = 9, 12, 56, 72, 222, 244, 254
ADD_SEALS, CLONE3 = 1033, 435
SHARED, FIXED, NOREPLACE, THREAD = 1, 0x10, 0x100000, 0x10000

PROGRAM = """
import mmap, threading
import metamori
event = threading.Event()
thread = threading.Thread(target=event.wait)
thread.start()
program = open("program", "r+b")
mapped = mmap.mmap(program.fileno(), 4096)
metamori.checkpoint()
event.set()
thread.join()
print("done")
"""
LOCKS = """
import fcntl
locked = open("program", "r+b")
fcntl.lockf(locked, fcntl.LOCK_EX)
"""

WATCHES = """
import ctypes
libc = ctypes.CDLL(None)
watcher = libc.inotify_init1(0)
assert libc.inotify_add_watch(watcher, b"program", 0x400) == 1
"""
IS_TOLD = """
import atexit, ctypes, os
libc, name = ctypes.CDLL(None), b"/metamori-told-%d" % os.getpid()
queue, event = libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None), (ctypes.c_int * 16)(0, 0, 10)
atexit.register(libc.mq_unlink, name)
assert libc.mq_notify(queue, event) == 0
"""
TIMES = """
import ctypes
how, timer = (ctypes.c_uint64 * 8)(0, 1 << 32), ctypes.c_void_p()
assert ctypes.CDLL(None).timer_create(1, how, ctypes.byref(timer)) == 0
"""
SEALED = """
import fcntl, os
sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
fcntl.fcntl(sealed, 1033, 16)
"""


CHILD = """
import os, threading
import metamori
started, go_on = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    threading.Thread(target=lambda: os.read(go_on[0], 1)).start()
    os.write(started[1], b"x")
else:
    os.read(started[0], 1)
    metamori.checkpoint()
    os.write(go_on[1], b"x")
    print("done", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def ended(tmp_path: Path) -> Memory:
    return ran(tmp_path)


def ran(tmp_path: Path, added: dict[str, str] | None = None, program: str = PROGRAM) -> Memory:
    """A run that has come to its end; its checkpoint 1 has memory. added: to the environment that the program has."""
    script = tmp_path / "program.py"
    script.write_text(program)
    setup = {"program": Path("/bin/sleep").read_bytes()}
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup=setup, ends=False)
    case.added = added or {}
    case.work.joinpath("program").chmod(0o755)
    done = case.verb("run", "--memory", "--", *case.command)
    assert done.returncode == 0, done
    return case


def no_clone3(compiled: Compile) -> list[object]:
    """As below a kernel or a filter that has none: by it threads are made with the numbers that they had."""
    return [compiled("refuse"), *map(str, (CLONE3, errno.ENOSYS, 0, 0, 0))]


def check(case: Memory, done: subprocess.CompletedProcess[bytes], said: str, *options: str) -> None:
    assert done.returncode == 125, done
    assert said in done.stderr.decode()
    again = case.verb("restart", *options, "1")
    assert (again.returncode, again.stdout) == (0, b"done\n"), again


@pytest.mark.in_turn("call", 2)
@pytest.mark.parametrize(("call", "error", "mask", "value", "said"), [
    (MMAP, errno.ENOMEM, FIXED | SHARED, FIXED | SHARED, "a mapping cannot be made: "),
    (MMAP, errno.ENOMEM, NOREPLACE, NOREPLACE, "there is no room for what brings it back"),
    (BRK, 0, 0, 0, "the heap cannot be as large as it was"),
    (CLONE, errno.EAGAIN, THREAD, THREAD, "a thread cannot be made"),
])
def test_a_call_fails(ended: Memory, compiled: Compile, call: int, error: int, mask: int, value: int,
                      said: str) -> None:
    argument = 3 if call == MMAP else 0
    refuse = [compiled("refuse"), *map(str, (call, error, argument, mask, value))]
    command = [*no_clone3(compiled), *refuse, *METAMORI, "restart", "1"]
    done = subprocess.run(command, cwd=ended.work, env=ended.environment(), capture_output=True, check=False)
    check(ended, done, said)


@pytest.mark.in_turn("call", 2)
@pytest.mark.parametrize(("call", "second", "program", "said"), [
    (INOTIFY_ADD_WATCH, 0, WATCHES, "it cannot watch again: "),
    (MQ_NOTIFY, 0, IS_TOLD, "it cannot be told of messages again"),
    (TIMER_CREATE, 0, TIMES, "a timer that it had cannot be made again"),
    (FCNTL, ADD_SEALS, SEALED, "a memory file cannot be sealed again"),
])
def test_what_it_asked_for_is_refused(tmp_path: Path, compiled: Compile, call: int, second: int, program: str,
                                      said: str) -> None:
    case = ran(tmp_path, program=program + PROGRAM)
    command = [compiled("refuse"), *map(str, (call, errno.ENOSPC, 1, 0xffff if second else 0, second)), *METAMORI,
               "restart", "1"]
    done = subprocess.run(command, cwd=case.work, env=case.environment(), capture_output=True, check=False)
    check(case, done, said)


@pytest.mark.parametrize(("call", "argument", "mask", "program", "said"), [
    (CLONE, 0, THREAD, CHILD, "a thread cannot be made"),
    (TIMER_CREATE, 1, 0, CHILD.replace("if child == 0:", f"if child == 0:{TIMES}".replace("\n", "\n    ")),
     "a timer that it had cannot be made again"),
])
def test_none_runs_when_one_cannot(tmp_path: Path, compiled: Compile, call: int, argument: int, mask: int,
                                   program: str, said: str) -> None:
    """The parent lacks nothing; its child does, last of all."""
    case = ran(tmp_path, program=program)
    refuse = [compiled("refuse"), *map(str, (call, errno.EAGAIN, argument, mask, mask))]
    command = [*no_clone3(compiled), *refuse, *METAMORI, "restart", "1"]
    done = subprocess.run(command, cwd=case.work, env=case.environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"") and said in done.stderr.decode(), done
    again = case.verb("restart", "1")
    assert (again.returncode, again.stdout) == (0, b"done 0\n"), again


def test_a_run_without_room_for_it(ended: Memory, compiled: Compile) -> None:
    """Its checkpoints have files only, and it says so."""
    command = [compiled("refuse"), *map(str, (MMAP, errno.ENOMEM, 3, NOREPLACE, NOREPLACE)), *METAMORI,
               "run", "--memory", "--", *ended.command]
    done = subprocess.run(command, cwd=ended.work, env=ended.environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"done\n"), done
    assert done.stderr.decode().count(
        "there is no room for what saves the program's memory: checkpoints are of files only") == 1


def test_a_file_is_a_program_by_now(ended: Memory) -> None:
    """Nobody can open it for writing while it is executed: the message names it."""
    with subprocess.Popen([ended.work / "program", "600"]) as busy:
        done = ended.verb("restart", "1")
        busy.kill()
    check(ended, done, f"{ended.work}/program: Text file busy")


@pytest.mark.parametrize("what", ["plan", "proc"])
def test_what_it_needs_goes_at_the_last_moment(tmp_path: Path, what: str) -> None:
    """After `metamori restart` has looked, and before the new process does."""
    stops = Stops(tmp_path / "stops")
    ended = ran(tmp_path, added=stops.env)
    stops.arm("restore.begins")
    own = ["unshare", "--mount"] if what == "proc" else []
    if own and os.geteuid() != 0:
        pytest.skip("only root can unmount /proc")
    process = subprocess.Popen([*own, *METAMORI, "restart", "1"], cwd=ended.work, env=ended.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        stops.wait("restore.begins")
        if what == "plan":
            next(ended.store.joinpath("run").glob("comeback.*")).unlink()
        else:
            every_one = "umount -l /proc && while umount -l /proc 2>/dev/null; do :; done"
            subprocess.run(["nsenter", "-m", "-t", str(process.pid), "sh", "-c", every_one], check=True)
    finally:
        stops.go("restore.begins")
    out, err = process.communicate()
    check(ended, subprocess.CompletedProcess([], process.returncode, out, err),
          "nothing says how: " if what == "plan" else "the present mappings cannot be read")


def held_at(case: Memory, stops: Stops, point: str) -> subprocess.Popen[bytes]:
    """`metamori restart 1`, whose new process stands there."""
    stops.arm(point)
    process = subprocess.Popen([*METAMORI, "restart", "1"], cwd=case.work, env=case.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stops.wait(point)
    return process


def test_a_mapped_file_goes_at_the_last_moment(tmp_path: Path) -> None:
    stops = Stops(tmp_path / "stops")
    ended = ran(tmp_path, added=stops.env)
    process = held_at(ended, stops, "restore.begins")
    program, aside = ended.work / "program", tmp_path / "aside"
    program.rename(aside)
    stops.go("restore.begins")
    out, err = process.communicate()
    aside.rename(program)
    check(ended, subprocess.CompletedProcess([], process.returncode, out, err),
          f"a file that it had mapped cannot be opened: {program}", "--force")


def test_a_lock_is_taken_at_the_last_moment(tmp_path: Path) -> None:
    """A lock of the process goes with any descriptor of the file: it is free until the program takes it again."""
    stops = Stops(tmp_path / "stops")
    ended = ran(tmp_path, added=stops.env, program=LOCKS + PROGRAM)
    process = held_at(ended, stops, "restore.locks")
    with (ended.work / "program").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stops.go("restore.locks")
        out, err = process.communicate()
    check(ended, subprocess.CompletedProcess([], process.returncode, out, err),
          "another process has taken a lock that it had")
