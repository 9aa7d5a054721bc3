"""Descriptors that are not the program's doing: what the C library does to its own, and those of the run."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab, wait_until

DAEMON = """
import ctypes, os
fd = os.open("log", os.O_RDWR)
os.dup2(fd, 1)
os.write(1, b"before")
if ctypes.CDLL(None).daemon(1, 0) == 0:
    os.write(1, b"after")
    os.write(fd, b"last")
    os.close(fd)
    open("done", "w").close()
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]])
def test_a_daemon_s_standard_descriptors_are_no_files(lab: Lab, options: list[str]) -> None:
    found = []
    for native in (True, False):
        (lab.work / "log").write_bytes(b"old " * 10)
        (lab.work / "done").unlink(missing_ok=True)
        assert lab.run(["/usr/bin/python3", "-c", DAEMON], *options, native=native).returncode == 0
        wait_until(lambda: (lab.work / "done").exists(), "the daemon is done")
        if not native:
            wait_until(lambda: "no run is alive" in lab.verb("status").stdout, "the daemon ends")
        found.append((lab.work / "log").read_bytes())
    assert found[0] == found[1]


TERMINAL = """
import os, pty, sys
fd = os.open("log", os.O_RDWR)
os.dup2(fd, 1)
os.write(1, b"before")
if sys.argv[1] == "forkpty":
    child, _ = pty.fork()
else:
    _, slave = os.openpty()
    child = os.fork()
    if not child:
        os.login_tty(slave)
if not child:
    os.write(1, b"on the terminal")
    os._exit(0)
os.waitpid(child, 0)
os.write(1, b"after")
"""


@pytest.mark.parametrize("call", ["forkpty", "login_tty"])
def test_standard_descriptors_on_a_terminal_are_no_files(lab: Lab, call: str) -> None:
    found = []
    for native in (True, False):
        (lab.work / "log").write_bytes(b"old " * 10)
        assert lab.run(["/usr/bin/python3", "-c", TERMINAL, call], native=native).returncode == 0
        found.append((lab.work / "log").read_bytes())
    assert found[0] == found[1]


APART = """
import ctypes, os, sys, threading
fd = os.open("old", os.O_RDWR)
close = lambda: ctypes.CDLL(None).close_range(fd, ctypes.c_uint(0xffffffff), int(sys.argv[1]))
thread = threading.Thread(target=close)
thread.start()
thread.join()
os.pwrite(fd, b"X" * 4096, 4096)
"""


@pytest.mark.parametrize("flags", [2, 6, 10], ids=["close", "close-on-exec", "refused"])
def test_a_thread_that_closes_in_a_table_of_its_own(lab: Lab, flags: int) -> None:
    """What another thread overwrote then was in no checkpoint."""
    (lab.work / "old").write_bytes(bytes(range(256)) * 64)
    before = lab.state()
    done = lab.run(["/usr/bin/python3", "-c", APART, str(flags)])
    assert done.returncode == 0
    said = b"metamori: a thread or process has a table of descriptors that is not its memory's: it is not tracked\n"
    assert done.stderr == (said if flags < 8 else b"")
    assert (lab.work / "old").read_bytes()[4096:8192] == b"X" * 4096
    lab.restore(0)
    lab.assert_state(before, "restore 0")


ALONE = APART.partition("thread = ")[0] + "close()\n"


def test_a_program_of_one_thread_may_do_so(lab: Lab) -> None:
    (lab.work / "old").write_bytes(b"old")
    done = lab.run(["/usr/bin/python3", "-c", ALONE, "2"])
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
def test_the_run_s_own_descriptors_are_none_to_the_program(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """A write or a cut by number went into the store's buffer, and took the bytes of checkpoints with it."""
    (lab.work / "f").write_bytes(b"o" * 20)
    done = lab.run([compiled("own_numbers")], *options)
    assert done.stdout == b"0 wrong; 20: overwritten" + b"o" * 9 + b"\n"
    assert int(done.stderr.split()[0]) >= 5, "the buffer, the run area, and what is kept for a moment of need"
    lab.verb("verify")


def test_a_program_that_takes_every_number(lab: Lab, compiled: Compile) -> None:
    """Where the run has to have one of them it does not get it; else that would be where redirected bytes go."""
    (lab.work / "f").write_bytes(b"o" * 9000)
    done = lab.run(["sh", "-c", 'ulimit -n 64 && exec "$0"', compiled("fills_numbers")])
    assert (done.returncode, done.stdout) == (0, b"0 bytes more\n"), done
    lab.verb("verify")
