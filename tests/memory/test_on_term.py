"""SIGTERM as batch systems and service managers send it: first a checkpoint with memory, then the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built
from hang import descendants
from lab import gone, wait_until
from stops import Stops

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
for i in range(400000):
    state = hashlib.sha256(state * 10).digest()
    if i % 10000 == 0:
        print(i, state.hex(), file=lines, flush=True)
print(state.hex())
"""


def start(case: Memory) -> subprocess.Popen[bytes]:
    with (case.folder / "out").open("wb") as out, (case.folder / "err").open("wb") as err:
        return subprocess.Popen([*METAMORI, "run", "--memory", "--on-term", "checkpoint", "--", *case.command],
                                cwd=case.work, env=case.environment(), stdout=out, stderr=err, start_new_session=True)


def started(folder: Path, *words: str) -> tuple[Memory, subprocess.Popen[bytes]]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    case = Memory(folder, ["/usr/bin/python3", script, *words])
    run = start(case)
    wait_until(lambda: (case.work / "lines").exists() and b"\n2" in (case.work / "lines").read_bytes(), "it is at work")
    return case, run


def send(case: Memory, run: subprocess.Popen[bytes], to: str) -> None:
    program = descendants(run.pid)[0]
    if to == "group":
        os.killpg(run.pid, signal.SIGTERM)
    else:
        os.kill(run.pid if to == "run" else program, signal.SIGTERM)


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


NONE = "no checkpoint was taken at SIGTERM: "


def waiting(folder: Path, command: Sequence[str | Path], stops: Stops | None = None) -> Memory:
    case = Memory(folder, command, ends=False)
    case.added |= stops.env if stops else {}
    return case


def test_a_signal_with_the_first_instruction(tmp_path: Path) -> None:
    """Before `metamori run` has imported what takes checkpoints: it is held back all the same."""
    case = waiting(tmp_path, [built(tmp_path, "term.c"), "first"])
    run = start(case)
    assert run.wait(300) == 128 + signal.SIGTERM, case.errors()
    assert case.images() == [1] and NONE not in case.errors(), case.errors()
    (case.work / "go").touch()
    assert case.verb("restart", "1").returncode == 7
    assert (case.work / "lines").read_text().count("\n") == 100


def test_a_signal_at_the_end(tmp_path: Path) -> None:
    """It goes on with its end meanwhile: there is a checkpoint or a message."""
    case = waiting(tmp_path, [built(tmp_path, "term.c"), "last"])
    status = start(case).wait(300)
    assert (status, bool(case.images()), NONE in case.errors()) in (
        (128 + signal.SIGTERM, True, False), (7, True, False), (7, False, True)), case.errors()


def test_one_that_was_ignored_lets_no_other_through(tmp_path: Path) -> None:
    case = waiting(tmp_path, [built(tmp_path, "term.c"), "ignores"])
    run = start(case)
    lines = case.work / "lines"
    wait_until(lambda: lines.exists() and "line 50\n" in lines.read_text(), "it ignores")
    run.send_signal(signal.SIGTERM)
    wait_until(lambda: len(case.images()) == 1, f"a checkpoint is taken: {case.errors()}")
    waits = {"x86_64": "128", "aarch64": "137"}[os.uname().machine]      # rt_sigtimedwait
    calls = Path(f"/proc/{run.pid}/syscall")
    wait_until(lambda: calls.read_text().split()[0] == waits, "`metamori run` has passed it on")
    (case.work / "sent").touch()
    assert run.wait(300) == 128 + signal.SIGTERM, case.errors()
    assert len(case.images()) == 2 and NONE not in case.errors(), case.errors()


@pytest.mark.parametrize("to", ["run", "program", "group"])
@pytest.mark.parametrize("point", ["init.joins", "memory.joins"])
@pytest.mark.parametrize("begins", ["by itself", "by exec"])
def test_a_signal_before_the_library_is_there(tmp_path: Path, begins: str, point: str, to: str) -> None:
    """`metamori run` waits for the program. One that the program gets ends it, and this is said."""
    stops, program, gate = Stops(tmp_path / "stops"), built(tmp_path, "term.c"), tmp_path / "gate"
    os.mkfifo(gate)
    shell = ["sh", "-c", f"read go < {gate}; exec {program}"]
    case = waiting(tmp_path, [program] if begins == "by itself" else shell, stops)
    if begins == "by itself":
        stops.arm(point)
    run = start(case)
    if begins == "by exec":
        with gate.open("w") as file:       # the shell has come to its first line
            stops.arm(point)
            file.write("go\n")
    stops.wait(point)
    send(case, run, to)
    if to == "run":
        time.sleep(0.3)
    stops.go(point)
    assert run.wait(300) == 128 + signal.SIGTERM, case.errors()
    taken, said = len(case.images()), case.errors().count(NONE)
    assert (taken, said) == ((1, 0) if to == "run" else (0, 1)), case.errors()


def test_a_program_that_is_not_tracked(tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text("#include <signal.h>\nint main(void) { raise(SIGTERM); return 0; }\n")
    if subprocess.run(["gcc", "-static", source, "-o", program], capture_output=True, check=False).returncode:
        pytest.skip("nothing static can be built here")
    case = waiting(tmp_path, [program])
    assert start(case).wait(300) == 128 + signal.SIGTERM
    assert case.images() == [] and case.errors().count(NONE) == 1, case.errors()


def test_metamori_run_was_killed(tmp_path: Path) -> None:
    """Nobody is there to take a checkpoint: the program says so, and ends."""
    case, run = started(tmp_path)
    program = descendants(run.pid)[0]
    run.kill()
    run.wait(300)
    os.kill(program, signal.SIGTERM)
    wait_until(lambda: gone(program), "it ends")
    assert case.images() == [] and case.errors().count(NONE + "`metamori run` has ended") == 1, case.errors()


@pytest.mark.parametrize("to", ["run", "program", "group"])
@pytest.mark.parametrize("moments", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_a_signal_at_any_moment(tmp_path: Path, moments: int, to: str) -> None:
    """From the start of `metamori run` to the program's end."""
    program, length = built(tmp_path, "term.c"), 0.0
    for moment in range(-1, moments):      # the first one shows how long it takes
        (folder := tmp_path / str(moment)).mkdir()
        case, begun = waiting(folder, [program]), time.monotonic()
        run = start(case)
        if moment < 0:
            assert run.wait(300) == 7, case.errors()
            length = time.monotonic() - begun
            continue
        time.sleep(length * moment / moments)
        with suppress(IndexError, ProcessLookupError):     # too early, or too late
            send(case, run, to)
        status, said, found = run.wait(300), case.errors().count(NONE), case.images()
        began = (case.work / "lines").exists()
        assert said <= 1 and (found or said or status == 7 or not began), (moment, status, case.errors())
        assert status in (7, 128 + signal.SIGTERM, -signal.SIGTERM), (moment, status, case.errors())
        if found:
            assert case.verb("restart", str(found[-1])).returncode == 7, moment


PROBES = """
from metamori.runtime.memory import images
for _ in range(1000):
    assert not images.no_return(), images.no_return()
"""


def test_a_signal_meets_the_look_at_what_is_allowed() -> None:
    """`metamori run` tries in a child of its own whether programs can come back; the child answers all the same."""
    looks = subprocess.Popen([sys.executable, "-c", PROBES], stderr=subprocess.PIPE, text=True)
    while looks.poll() is None:
        for child in descendants(looks.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
    _, said = looks.communicate()
    assert looks.returncode == 0, said
