"""The driver under valgrind's memcheck, under Metamori: nothing to complain of, the native answers, the way back.

A checkpoint from inside would load Python into the program, with a C library of its own, whose string functions
valgrind does not replace and then misjudges (bench/LEDGER.md): checkpoints come from outside. Looking for leaks it
would read the run area's mappings, gigabytes without anything in them, for minutes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")]

BEFORE = ["open example rw", "pwrite 3 6000 5000 3", "fopen 0 words w+", "fputs 0 300 7", "mkdir folder",
          "open folder/new w,creat", "write 5 9000 1"]
AFTER = ["pread 3 20000 0", "pwrite 3 100 8190 5", "dup 3", "write 6 5000 2", "fputs 0 50 8", "fclose 0",
         "rename folder moved", "pwrite 5 30 100 4", "unlink other", "pread 3 20000 0", "fsize 5", "close 6"]


def prepare(lab: Lab) -> None:
    for name in ("example", "other"):
        (lab.work / name).write_bytes(name.encode() * 3000)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_driver(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    checked = Path(lab.folder, "checked.sh")
    checked.write_text(f"#!/bin/sh\nexec valgrind -q --leak-check=no --error-exitcode=99 {lab.driver}\n")
    checked.chmod(0o755)
    for each in (lab, native_lab):
        prepare(each)
    native = native_lab.start(native=True)
    wanted = native.do(BEFORE), native_lab.state(), native.do(AFTER)
    assert native.end() == 0
    program = lab.start(*options, driver=checked)
    assert program.do(BEFORE) == wanted[0]
    index = lab.checkpoint()
    assert program.do(AFTER) == wanted[2]
    assert program.end() == 0, program.stderr()
    assert not [line for line in program.stderr().splitlines() if line.startswith("==")]
    lab.assert_state(native_lab.state(), "at the end")
    lab.restore(index)
    lab.assert_state(wanted[1], f"restore {index}")
