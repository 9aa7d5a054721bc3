"""Asynchronous writes by `syscall(SYS_io_submit, …)`: what a checkpoint knows is saved before they are under way."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_old_bytes_come_back(lab: Lab, native_lab: Lab, compiled: Compile, options: list[str]) -> None:
    program = compiled("rawaio")
    wanted = native_lab.run([program], native=True)
    done = lab.run([program], *options)
    assert (done.returncode, done.stdout) == (0, wanted.stdout), done.stderr
    assert (lab.work / "data").read_bytes() == b"n" * 4096
    lab.restore(1)
    assert (lab.work / "data").read_bytes() == b"o" * 4096
