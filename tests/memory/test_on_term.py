"""SIGTERM as batch systems and service managers send it: first a checkpoint with memory, then the signal."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, descendants
from lab import wait_until

pytestmark = pytest.mark.usefixtures("installed")

PROGRAM = """
import hashlib, signal, sys
def bye(number, frame):
    sys.stderr.write("bye\\n")
    sys.exit(3)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, bye)
else:
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
state = b""
lines = open("lines", "w")
for i in range(1500000):
    state = hashlib.sha256(state * 10).digest()
    if i % 10000 == 0:
        print(i, state.hex(), file=lines, flush=True)
print(state.hex())
"""


def started(folder: Path, *words: str) -> tuple[Memory, subprocess.Popen[bytes]]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    case = Memory(folder, ["/usr/bin/python3", script, *words])
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        run = subprocess.Popen([*METAMORI, "run", "--memory", "--on-term", "checkpoint", "--", *case.command],
                               cwd=case.work, env=case.environment(), stdout=out, stderr=err, start_new_session=True)
    wait_until(lambda: (case.work / "lines").exists() and b"\n2" in (case.work / "lines").read_bytes(), "it is at work")
    return case, run


def send(case: Memory, run: subprocess.Popen[bytes], to: str) -> None:
    program = descendants(run.pid)[0]
    if to == "group":
        os.killpg(run.pid, signal.SIGTERM)
    else:
        os.kill(run.pid if to == "run" else program, signal.SIGTERM)


@pytest.mark.slow                          # 2 of 12 times, beside other tests, the program ended without its checkpoint
@pytest.mark.parametrize("to", ["run", "program", "group"])
def test_it_ends_after_a_checkpoint(tmp_path: Path, to: str) -> None:
    case, run = started(tmp_path)
    send(case, run, to)
    assert run.wait(300) == 128 + signal.SIGTERM, case.errors()
    assert "killed by SIGTERM" in case.errors()
    found = case.images()
    assert len(found) >= 1, case.errors()
    case.goes_on(found[-1])
    case.goes_on(found[0], "--on-term", "checkpoint")


def test_its_own_handler_comes_after_the_checkpoint(tmp_path: Path) -> None:
    case, run = started(tmp_path, "handler")
    send(case, run, "program")
    assert run.wait(300) == 3 and case.errors().endswith("bye\n"), case.errors()
    case.goes_on(case.images()[-1])


def test_again_after_a_restart(tmp_path: Path) -> None:
    case, run = started(tmp_path)
    send(case, run, "group")
    run.wait(300)
    again = case.restart_in_background(case.images()[-1], "--on-term", "checkpoint")
    wait_until(lambda: bool(descendants(again.pid)), "it has begun")
    before = len((case.work / "lines").read_bytes())
    wait_until(lambda: len((case.work / "lines").read_bytes()) > before, "it is at work")
    send(case, again, "program")
    assert again.wait(300) == 128 + signal.SIGTERM
    assert len(case.images()) >= 2
    case.goes_on(case.images()[-1])
