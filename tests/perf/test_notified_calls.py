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
MOST = 20
SCRIPT = "echo > f; while [ ! -e go ]; do sleep 0.1; done; i=0; " \
         f"while [ $i -lt {COUNT} ]; do : >> f; i=$((i+1)); done; " \
         "echo > done; while [ -e go ]; do sleep 0.1; done"


def test_an_opening_for_writing(lab: Lab) -> None:
    """Of a file that is there, by a relative name."""
    if not is_static(BUSYBOX) or not shutil.which("strace"):
        pytest.skip("no static busybox, or no strace")
    counts = lab.folder / "counts"
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", SCRIPT], cwd=lab.work, env=lab.env) as run:
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
    made = sum(int(line.split()[3]) for line in counts.read_text().splitlines()
               if re.match(r" *\d+\.\d+ +\d", line) and not line.endswith(" total"))
    assert COUNT * 10 < made <= COUNT * MOST, counts.read_text()


def sleeps(pid: int) -> int:
    found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def test_the_standby_sleeps_while_programs_come_and_go(lab: Lab) -> None:
    """It is there for the proxy's end, and takes processors from nobody before."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    script = f"{BUSYBOX} echo > f; while [ ! -e go ]; do sleep 0.1; done; " \
             f"i=0; while [ $i -lt {COUNT} ]; do {BUSYBOX} true; i=$((i+1)); done; " \
             "echo > done; while [ -e go ]; do sleep 0.1; done"
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", script], cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "f").exists() and len(proxies(lab)) == 2, "the proxy")
        standby = proxies(lab)[1]
        before = sleeps(standby)
        (lab.work / "go").touch()
        wait_until(lambda: (lab.work / "done").exists(), "the programs")
        assert proxies(lab)[1] == standby
        assert sleeps(standby) - before <= COUNT / 8
        (lab.work / "go").unlink()
        assert run.wait() == 0
