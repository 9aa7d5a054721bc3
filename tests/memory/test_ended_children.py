"""Children that have ended, and that nobody has waited for yet: the program finds them so in its first moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built, comes_back
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")

SEES = """
import os, signal, time
ended = os.fork()
if ended == 0:
    os._exit(96)
os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
killed = os.fork()
if killed == 0:
    signal.pause()
os.kill(killed, 9)
os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
print("begins", flush=True)
while not os.path.exists("go"):
    found = [os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) for pid in (ended, killed)]
    assert [each and each.si_status for each in found] == [96, 9], found
print(os.waitpid(ended, 0)[1] >> 8, os.waitpid(killed, 0)[1])
"""
# `metamori restart` of a machine on which a process takes long to end
LATE = """
import sys, time
from metamori.cli.main import main
from metamori.runtime.lifecycle import tree_restart
ends = tree_restart._end_as
def late(status):
    time.sleep(1)
    ends(status)
tree_restart._end_as = late
sys.exit(main())
"""
IGNORES = ["env", "--ignore-signal=CHLD"]


def goes_on(case: Memory, command: list[str], prints: str) -> None:
    back = subprocess.Popen(command, cwd=case.work, env=case.environment(), text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    try:
        wait_until(lambda: len(case.of_the_run()) >= 2 or back.poll() is not None, "it is back")
        (case.work / "go").touch()
        out, said = back.communicate(timeout=60)
    finally:
        back.kill()
    assert (back.returncode, out) == (0, prints), said


@pytest.mark.parametrize("within", [[sys.executable, "-c", LATE], [*IGNORES, sys.executable, "-m", "metamori"]],
                         ids=["late", "ignored"])
def test_they_have_ended_before_the_program_goes_on(tmp_path: Path, within: list[str]) -> None:
    """Also where whoever starts `metamori restart` ignores the signal that a child sends: nothing is left of those."""
    (tmp_path / "script").write_text(SEES)
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: b"begins" in (tmp_path / "out").read_bytes(), f"it begins: {case.errors()}")
        index = case.verb("checkpoint").stdout.decode().strip()
        case.kill_with(run)
        run.wait()
    finally:
        run.kill()
    goes_on(case, [*within, "restart", index], "96 9\n")


def test_a_command_ignores_them_as_whoever_started_it(tmp_path: Path) -> None:
    for command, status in (["sh", "-c", "exit 3"], 3), (["grep", "SigIgn", "/proc/self/status"], 0):
        native, run = (subprocess.run([*IGNORES, *start, *command], cwd=tmp_path, capture_output=True, check=False)
                       for start in ([], [sys.executable, "-m", "metamori", "run", "--"]))
        assert (native.returncode, native.stdout) == (run.returncode, run.stdout) == (status, native.stdout), run


def test_who_is_told_of_an_end(tmp_path: Path) -> None:
    """And who takes the orphan then, by prctl."""
    comes_back(Memory(tmp_path, [built(tmp_path, "prctl.c")]))


ALONE = """
import os, sys, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.001)
if len(sys.argv) == 1:
    if os.fork() == 0:
        open("first", "w")
        wait_for("exec")
        os.execv("/usr/bin/python3", ["python3", sys.argv[0], "again"])
    sys.exit(os.wait()[1] >> 8)
open("second", "w")
wait_for("go")
try:
    print(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT))
except ChildProcessError:
    print("none")
"""


def test_who_writes_an_image_is_no_child_of_the_next_program(tmp_path: Path) -> None:
    """What a child became had one that the library had forgotten; a restart made it one that the program sees."""
    (tmp_path / "script").write_text(ALONE)
    names = ["first", "exec", "second", "go"]
    case = Memory(tmp_path, ["/usr/bin/python3", tmp_path / "script"], setup=dict.fromkeys(names, b""))
    for name in names:
        (case.work / name).unlink()
    run = case.start()
    try:
        wait_until((case.work / "first").exists, f"it begins: {case.errors()}")
        case.verb("checkpoint")
        (case.work / "exec").touch()
        wait_until((case.work / "second").exists, f"it is another: {case.errors()}")
        case.verb("checkpoint")
        index = case.verb("checkpoint").stdout.decode().strip()
        case.kill_with(run)
        run.wait()
    finally:
        run.kill()
    goes_on(case, [*METAMORI, "restart", index], "none\n")
