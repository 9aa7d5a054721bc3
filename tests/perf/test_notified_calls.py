"""What a notified call costs its proxy, in system calls: their number does not depend on how busy a machine is."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess

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
