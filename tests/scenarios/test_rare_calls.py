"""Calls that meet each other seldom: natively and under Metamori the same answers and files, and the way back."""

from __future__ import annotations

import re
import sys

import pytest
from conftest import PROGRAMS, Compile
from lab import Lab, difference

CASES = [(name, case) for name in ("corners", "kernels_part", "vforked", "edges", "answers")
         for case in re.findall(r"CASE\((\w+)\)", (PROGRAMS / f"{name}.c").read_text().partition("CASES = {")[2])]
MODES = [[], ["--isolate"], ["--mode=single"]]


def prepare(lab: Lab) -> None:
    content = bytes(i // 7 % 251 for i in range(65536))
    for name in ("old", "twin"):
        (lab.work / name).write_bytes(content)
    for folder in ("one", "two"):
        (lab.work / folder / "in").mkdir(parents=True)
        for name in ("a", "b", "in/c"):
            (lab.work / folder / name).write_bytes(f"{folder}/{name} ".encode() * 600)


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize(("name", "case"), CASES)
def test_same_as_natively(
    lab: Lab, native_lab: Lab, compiled: Compile, name: str, case: str, options: list[str]
) -> None:
    program = compiled(name)
    for each in (lab, native_lab):
        prepare(each)
    before = lab.state()
    native = native_lab.run([program, case], native=True)
    done = lab.run([program, case], *options)
    assert native.returncode == 0
    assert done.stdout.decode().splitlines() == native.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    wrong = difference(lab.state(), native_lab.state())
    assert not wrong, wrong
    if "--mode=single" in options:
        return
    end = lab.state()
    lab.restore(1)
    lab.assert_state(before, "restore 1")
    lab.restore(max(lab.messages()))
    lab.assert_state(end, "after going to the end again")


AT_ONCE = """
import errno, mmap, os
page = mmap.mmap(-1, 4096)
page.write(b"new " * 1024)
fd = os.open("old", os.O_RDWR | os.O_DIRECT)
for flags in (os.RWF_NOWAIT, os.RWF_NOWAIT | os.RWF_DSYNC):
    try:
        print(os.pwritev(fd, [page], 8192, flags))
    except BlockingIOError:
        print(4096)
    except OSError as error:
        print(error)
"""


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_a_direct_write_that_does_not_wait(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """ext4 refuses it to buffered writes, as which it was asked for."""
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"old " * 16384)
    native = native_lab.run([sys.executable, "-c", AT_ONCE], native=True)
    done = lab.run([sys.executable, "-c", AT_ONCE], *options)
    assert (done.returncode, done.stdout, done.stderr) == (native.returncode, native.stdout, b"")


TRACED = """
mount -t tracefs trace one || exit 77
echo traced > one/trace_marker
: > one/trace
grep -c traced one/trace
"""


@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
def test_a_trace_is_emptied(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """O_TRUNC of a file in tracefs, which is no matter of lengths."""
    for each in (lab, native_lab):
        prepare(each)
    command = ["unshare", "-m", "sh", "-c", TRACED]
    native = native_lab.run(command, native=True)
    if native.stdout != b"0\n":
        pytest.skip("no tracefs can be mounted here")
    assert lab.run(command, *options).stdout == native.stdout
