"""A checkpoint beside an exec: the new program has no handler yet, and must not be ended by the engine's signal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comeback import Memory, built
from lab import gone, wait_until

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
