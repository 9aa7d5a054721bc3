"""`checkpoint --stop`: what static programs write is of one instant, and nobody notices that they stood still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Compile
from lab import PATIENCE, Lab, gone, wait_until
from test_static_programs import BUSYBOX, is_static

MIB, PLACES = 16, 8
DEBUGGER = "import ctypes, sys, time; r = ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None); " \
           "print(r, flush=True); time.sleep(1000)"


@pytest.fixture
def steps(compiled: Compile) -> Path:
    return compiled("steps", "static")


@contextmanager
def writing(lab: Lab, steps: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    (lab.work / "f").write_bytes(bytes(MIB << 20))
    command = [*lab.argv("run"), "--", steps, "f", str(MIB), *words]
    with subprocess.Popen(command, cwd=lab.work, env=lab.env, stdout=subprocess.PIPE) as run:
        try:
            assert run.stdout and run.stdout.readline() == b"goes\n"
            yield run
        finally:
            os.kill(program_of(run), signal.SIGKILL)
            run.wait()


def program_of(run: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0])


def numbers(lab: Lab, index: int) -> list[int]:
    lab.restore(index)
    content = (lab.work / "f").read_bytes()
    return [int.from_bytes(content[at:at + 8], sys.byteorder) for at in range(0, MIB << 20, (MIB << 20) // PLACES)]


def is_one_instant(found: list[int]) -> bool:
    return found == sorted(found, reverse=True) and found[0] - found[-1] <= 1


@pytest.mark.parametrize("how", [(), ("mapped",)], ids=["write", "mapped"])
def test_static_writers(lab: Lab, steps: Path, how: tuple[str, ...]) -> None:
    """Between the first and the last byte that a checkpoint reads they would go on by thousands."""
    with writing(lab, steps, *how) as run:
        exact = [lab.checkpoint("--stop") for _ in range(2)]
        without = [lab.checkpoint() for _ in range(4)]
        assert "State:\tt" not in Path(f"/proc/{program_of(run)}/status").read_text()
    found = {index: numbers(lab, index) for index in (*exact, *without)}
    assert all(is_one_instant(found[index]) for index in exact), found
    assert found[exact[0]][0] < found[exact[1]][0], "it went on"
    assert not all(is_one_instant(found[index]) for index in without), f"without the option: {found}"


def test_several_at_once(lab: Lab, steps: Path) -> None:
    """A thread has one tracer: each waits for its turn."""
    with writing(lab, steps):
        verbs = [subprocess.Popen(lab.argv("checkpoint", "--stop"), cwd=lab.work, env=lab.env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        said = [(*verb.communicate(timeout=PATIENCE), verb.returncode) for verb in verbs]
    assert all((err, code) == ("", 0) for _, err, code in said), said
    assert all(is_one_instant(numbers(lab, int(out))) for out, _, _ in said)


def test_the_checkpoint_is_killed(lab: Lab, steps: Path) -> None:
    """Whom it had stopped goes on."""
    hold = "import time; from metamori.runtime.checkpoint import stop_writers as s; " \
           "s.StoppedWriters.require_all = lambda self: (print('stopped', flush=True), time.sleep(1000)); " \
           "from metamori.cli.main import main; import sys; main(sys.argv[1:])"
    with writing(lab, steps) as run:
        command = [sys.executable, "-c", hold, "checkpoint", "--stop", "--store", str(lab.store)]
        with subprocess.Popen(command, env=lab.env, cwd=lab.work, stdout=subprocess.PIPE) as verb:
            assert verb.stdout and verb.stdout.readline() == b"stopped\n"
            status = Path(f"/proc/{program_of(run)}/status")
            assert "State:\tt" in status.read_text()
            verb.kill()
        wait_until(lambda: "State:\tt" not in status.read_text(), "the program to go on")
        index = lab.checkpoint("--stop")
    assert is_one_instant(numbers(lab, index))


def test_shells_that_open_and_wait(lab: Lab) -> None:
    """Programs that come, go, wait for each other and for calls that a checkpoint holds: their output is as ever."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    script = "i=0; while [ ! -e stop ]; do i=$((i+1)); { echo $i; sleep 0.01; echo $i; } > f; mv f g; cat g >> all & " \
             "wait; done; echo $i"
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", script], cwd=lab.work, env=lab.env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        wait_until(lambda: (lab.work / "all").exists(), "the program to work")
        taken = [lab.checkpoint("--stop") for _ in range(3)]
        (lab.work / "stop").touch()
        assert run.stdout and run.stderr
        count, said = int(run.stdout.read()), run.stderr.read()
        assert (run.wait(), said) == (0, b"")
    assert (lab.work / "all").read_text() == "".join(f"{i}\n{i}\n" for i in range(1, count + 1))
    (lab.work / "stop").unlink()
    for index in taken:
        lab.restore(index)
        lines = (lab.work / "all").read_text().split()
        assert lines == [str(i // 2 + 1) for i in range(len(lines))]
    lab.verb("verify")


def test_one_that_is_traced(lab: Lab, steps: Path) -> None:
    """A debugger has it: no checkpoint, and a message."""
    with writing(lab, steps) as run:
        with subprocess.Popen([sys.executable, "-c", DEBUGGER, str(program_of(run))], stdout=subprocess.PIPE) as tracer:
            try:
                assert tracer.stdout and tracer.stdout.readline() == b"0\n"
                done = lab.verb("checkpoint", "--stop", code=None)
            finally:
                tracer.kill()
        assert done.returncode == 1 and "cannot be stopped: Operation not permitted" in done.stderr
        assert not gone(program_of(run))
