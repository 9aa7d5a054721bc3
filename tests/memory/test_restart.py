"""Programs of many kinds: killed, and continued from every checkpoint as if nothing had happened."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built
from stops import Stops

pytestmark = pytest.mark.usefixtures("installed")


def test_a_program_that_asks_for_its_checkpoints_itself(tmp_path: Path) -> None:
    """The call returns 0 where the program comes back; streams, heap, thread-local data and files are as they were."""
    case = Memory(tmp_path, [built(tmp_path, "own.c")])
    run = case.start()
    assert run.wait(300) == case.native.status, case.errors()
    assert (tmp_path / "out").read_bytes() == case.native.output
    assert case.errors().count("taken") == 4
    for index in (3, 1, 2, 4, 1):
        done = case.verb("restart", str(index))
        assert b"came back" in done.stderr, done.stderr
        assert done.returncode == case.native.status
        assert case.native.output.endswith(done.stdout)
        assert (case.work / "lines").read_bytes() == case.native.files["lines"].content
    newest = max(entry["index"] for entry in case.log()["checkpoints"] if entry["memory"])
    done = case.verb("restart")
    assert f"continuing from checkpoint {newest}".encode() in done.stderr, done.stderr
    assert done.returncode == case.native.status and case.native.output.endswith(done.stdout)
    assert case.verb("verify").returncode == 0


def test_handlers_are_those_of_the_instant(tmp_path: Path) -> None:
    """An image is written while the program runs again, and sets others."""
    case = Memory(tmp_path, [built(tmp_path, "handlers.c")])
    assert case.start().wait(300) == 0, case.errors()
    for index in range(8, 0, -1):
        done = case.verb("restart", str(index))
        assert (done.returncode, done.stdout) == (0, case.native.output), done


def test_what_the_kernel_knows_of_its_places_is_of_the_instant(tmp_path: Path) -> None:
    """It is asked for once, and again when the program has changed it."""
    case = Memory(tmp_path, [built(tmp_path, "places.c")])
    assert case.start().wait(300) == 0, case.errors()
    lines = case.native.output.splitlines(keepends=True)
    assert lines == [b"name %d\n" % i for i in range(4)]
    for index in (4, 1, 3, 2):
        done = case.verb("restart", str(index))
        assert (done.returncode, done.stdout) == (0, b"".join(lines[index - 1:])), done


@pytest.mark.in_turn("threads", 2)
@pytest.mark.parametrize("threads", [1, 4])
def test_in_the_middle_of_its_calls(tmp_path: Path, threads: int) -> None:
    """A call that waits while an image is taken goes by nothing afterwards that it saw before: slots are others."""
    setup = {f"f{thread}{i}": bytes(64 * 64) for thread in range(threads) for i in range(4)}
    case = Memory(tmp_path, [built(tmp_path, "calls.c"), str(1600000 // threads), str(threads)], setup=setup)
    case.everywhere(case.run_and_kill("50ms", 6), most=6)


def test_in_the_middle_of_an_open(tmp_path: Path) -> None:
    """A file is made and noted in one step; what is half open is so again."""
    case = Memory(tmp_path, [built(tmp_path, "names.c"), "3000"])
    case.everywhere(case.run_and_kill("50ms", 6), most=4)


def test_a_file_that_never_had_a_name(tmp_path: Path) -> None:
    """O_TMPFILE is O_DIRECTORY and another bit: brought back, it is no folder. It holds what it held, also where a
    later process has written more."""
    script = tmp_path / "program.py"
    script.write_text("import hashlib, os\nfd = os.open('.', os.O_TMPFILE | os.O_RDWR)\nstate = b''\n"
                      "for i in range(1200000):\n    state = hashlib.sha256(state * 10).digest()\n"
                      "    if i % 40000 == 0:\n        state += b'%d' % os.fstat(fd).st_size + os.pread(fd, 9999, 0)\n"
                      "        os.pwrite(fd, state[:32], i // 40000 * 32)\n"
                      "print(hashlib.sha256(os.pread(fd, 9999, 0)).hexdigest())\n")
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    case.everywhere(case.run_and_kill("100ms", 3))


def test_pages_come_back_many_at_once(tmp_path: Path) -> None:
    """Not by a fault for each of 65,536."""
    counts = (ctypes.c_uint * 32)(1, 128, 2)       # perf_event_open: faults,
    counts[10] = 2                                 # of children that begin from here on, too
    counter = ctypes.CDLL(None).syscall(298, counts, 0, -1, -1, 8)
    if counter < 0:
        pytest.skip("this kernel or container forbids performance counters")
    script = tmp_path / "program.py"
    script.write_text("import ctypes\ndata = bytearray(b'x') * (256 << 20)\n"
                      "assert ctypes.CDLL(None).metamori_checkpoint() in (0, 1)\nprint(data.count(b'x'))\n")
    case = Memory(tmp_path, ["/usr/bin/python3", script], ends=False)
    assert case.start().wait(300) == 0, case.errors()
    before = os.read(counter, 8)
    done = case.verb("restart", "1")
    faults = int.from_bytes(os.read(counter, 8), "little") - int.from_bytes(before, "little")
    os.close(counter)
    assert done.stdout == b"%d\n" % (256 << 20), done
    assert faults < 50000


@pytest.mark.in_turn("name", 2)
@pytest.mark.parametrize("name", ["kernel.c", "threads.cc", "heat.f90", "waits.c", "state.c"])
def test_compiled(tmp_path: Path, name: str) -> None:
    case = Memory(tmp_path, [built(tmp_path, name)])
    case.everywhere(case.run_and_kill("150ms", 4))


@pytest.mark.parametrize("point", ["alive.opened", "inherited.opened"])
def test_no_image_holds_a_descriptor_of_the_library(tmp_path: Path, point: str) -> None:
    """At its end the program looks in /proc whether `metamori run` is alive, and what it has open before its first
    fork: a restart would look for that process."""
    stops = Stops(tmp_path / "stops")
    case = Memory(tmp_path, ["/bin/sh", "-c", "read line < go; : > file; (exit 3); echo said"], ends=False)
    os.mkfifo(case.work / "go")
    case.added |= stops.env
    run = case.start()
    with (case.work / "go").open("w") as file:
        stops.arm(point)
        file.write("go\n")
    stops.wait(point)
    asks = subprocess.Popen([*METAMORI, "checkpoint"], cwd=case.work, env=case.environment())
    time.sleep(1)
    stops.go(point)
    asks.wait(300)
    assert run.wait(300) == 0, case.errors()
    for index in case.images():
        done = case.verb("restart", "--force", str(index))
        assert done.returncode == 0, done
