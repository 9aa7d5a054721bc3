"""A checkpoint beside an exec: the new program has no handler yet, and must not be ended by the engine's signal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import gone, wait_until

from metamori.store.read.store import Store

pytestmark = pytest.mark.usefixtures("installed")


def test_again_and_again(tmp_path: Path) -> None:
    program = built(tmp_path, "becomes.c")
    case = Memory(tmp_path, [program, "400"])
    run = case.start("--every", "2ms", "--keep-last", "2", "--durability", "process")
    assert run.wait(600) == case.native.status == 4, case.errors()
    assert (tmp_path / "out").read_bytes() == case.native.output
    assert case.errors() == ""


STATIC = """
#include <stdio.h>
#include <unistd.h>
int main(void) { puts("static"); fflush(stdout); while (access("go", F_OK) < 0) usleep(1000); return 6; }
"""


def test_a_program_that_cannot_be_followed(tmp_path: Path) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    source.write_text(STATIC)
    if subprocess.run(["gcc", "-static", str(source), "-o", str(program)], capture_output=True, check=False).returncode:
        pytest.skip("nothing static can be built here")
    case = Memory(tmp_path, ["sh", "-c", f"exec {program}"], setup={"go": b""})
    (case.work / "go").unlink()
    run = case.start()
    try:
        wait_until(lambda: (tmp_path / "out").read_bytes() == b"static\n", f"it has begun: {case.errors()}")
        done = case.verb("checkpoint")
        assert done.returncode == 1 and b"cannot be tracked" in done.stderr, done
        assert not gone(run.pid)
        (case.work / "go").touch()
        assert run.wait(300) == 6, case.errors()
    finally:
        run.kill()


WAITS = "import os, time\nopen({ready!r}, 'w').close()\nwhile not os.path.exists({go!r}): time.sleep(0.01)\n"


def test_how_each_program_was_started(tmp_path: Path) -> None:
    """Read once of each, and known in the checkpoints that follow; an exec keeps the process's number."""
    python = "/usr/bin/python3"
    second = WAITS.format(ready="second", go="end")
    becomes = f"os.execve({python!r}, ['second', '-c', {second!r}], {{'WHICH': '2'}})"
    first = WAITS.format(ready="first", go="go") + becomes
    case = Memory(tmp_path, [python, "-c", first], ends=False)
    case.added["WHICH"] = "1"
    run = case.start()
    try:
        for ready in "first", "second":
            wait_until((case.work / ready).exists, f"it has begun: {case.errors()}")
            for _ in range(2):
                assert case.verb("checkpoint").returncode == 0, case.errors()
            (case.work / "go").touch()
        store = Store.open(os.fspath(case.store))
        entries = [entry for index in range(1, 5) for entry in store.meta(index).memory]
        store.close()
        assert [entry.argv[0] for entry in entries] == [b"/usr/bin/python3"] * 2 + [b"second"] * 2
        assert [[each for each in entry.env if each.startswith(b"WHICH=")] for entry in entries] \
            == [[b"WHICH=1"]] * 2 + [[b"WHICH=2"]] * 2
        assert len({entry.process for entry in entries}) == 1
    finally:
        case.kill_with(run)
        run.wait()
