"""What notified calls and programs cost their proxy, in numbers that do not depend on how busy a machine is."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from lab import Lab, wait_until
from test_static_programs import BUSYBOX, is_static, proxies

COUNT = 300
# What the shell does COUNT times in its own process, and how many system calls of the proxy each may take.
CALLS = {"opening": (": >> f", 16), "creating": (": > n$i", 26)}
SCRIPT = "while [ ! -e go ]; do sleep 0.1; done; i=0; " \
         "while [ $i -lt {count} ]; do {call}; i=$((i+1)); done; " \
         "echo > done; while [ -e go ]; do sleep 0.1; done"


@pytest.mark.parametrize(("call", "most"), CALLS.values(), ids=CALLS)
def test_a_call(lab: Lab, call: str, most: int) -> None:
    """An opening for writing of a file that is there, and of one that is not, by a relative name.

    No file in /proc is read for it: that takes longer than all else.
    """
    if not is_static(BUSYBOX) or not shutil.which("strace"):
        pytest.skip("no static busybox, or no strace")
    counts = lab.folder / "counts"
    script = "echo > f; " + SCRIPT.format(count=COUNT, call=call)
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", script], cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "f").exists() and len(proxies(lab)) == 2, "the program to work")
        with subprocess.Popen(["strace", "-f", "-c", "-o", counts, "-p", str(proxies(lab)[0])],
                              stderr=subprocess.PIPE) as strace:
            assert strace.stderr and b"attached" in strace.stderr.readline()
            (lab.work / "go").touch()
            wait_until(lambda: (lab.work / "done").exists(), "the calls")
            strace.send_signal(signal.SIGINT)
            strace.stderr.read()
        (lab.work / "go").unlink()
        assert run.wait() == 0
    made = {line.split()[-1]: int(line.split()[3]) for line in counts.read_text().splitlines()
            if re.match(r" *\d+\.\d+ +\d", line) and not line.endswith(" total")}
    assert COUNT * 10 < sum(made.values()) <= COUNT * most, counts.read_text()
    assert made.get("pread64", 0) < COUNT / 2, counts.read_text()


def sleeps(pid: int) -> int:
    found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def test_the_standby_sleeps_while_programs_come_and_go(lab: Lab) -> None:
    """It is there for the proxy's end, and takes processors from nobody before."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    wait = "while [ ! -e done ] || [ -e go ]; do sleep 0.1; done"           # the proxy stays as long as this program
    script = f"{BUSYBOX} sh -c 'echo > f; {wait}' & " + SCRIPT.format(count=COUNT, call=f"{BUSYBOX} true")
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", script], cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "f").exists() and len(proxies(lab)) == 2, "the proxy")
        standby = proxies(lab)[1]
        before = sleeps(standby)
        (lab.work / "go").touch()
        wait_until(lambda: (lab.work / "done").exists(), "the programs")
        same, slept = proxies(lab)[1:] == [standby], sleeps(standby) - before
        (lab.work / "go").unlink()
        assert run.wait() == 0
    assert same
    assert 0 < slept <= COUNT / 8
