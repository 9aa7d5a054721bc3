"""Asynchronous writes by `syscall(SYS_io_submit, …)` and POSIX aio: what a checkpoint knows is saved before."""

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


@pytest.mark.parametrize("by", ["library", "raw"])
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_appended_bytes_are_in_every_index(lab: Lab, native_lab: Lab, compiled: Compile, options: list[str],
                                           by: str) -> None:
    program = compiled("appending_aio")
    wanted = native_lab.run([program, by], native=True)
    done = lab.run([program, by], *options)
    assert (done.returncode, done.stdout) == (0, wanted.stdout), done.stderr
    for index, content in ((1, b"first\n"), (3, b"first\nsecond\nthird\n"), (2, b"first\nsecond\n"),
                           (3, b"first\nsecond\nthird\n")):
        lab.restore(index)
        assert (lab.work / "data").read_bytes() == content, index
