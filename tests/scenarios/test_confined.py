"""A program that confines itself (seccomp, Landlock) leaves the run first, with a message, unless what it allows itself
is enough to follow it; and what no path can name is not tracked. Each does what it does natively."""

from __future__ import annotations

import sys

import pytest
from conftest import Compile
from lab import Lab, difference

MODES = [[], ["--isolate"], ["--mode=single"]]
SAID = {"strict": "forbids itself", "kills": "forbids itself", "refuses": "forbids itself", "allows": "", "none": "",
        "landlock": "forbids itself", "executes": "forbids itself", "deep_folders": "longer than 4095 bytes"}


@pytest.mark.in_turn("case")
@pytest.mark.parametrize("options", MODES, ids=lambda words: "".join(words) or "default")
@pytest.mark.parametrize("case", SAID)
def test_same_as_natively(lab: Lab, native_lab: Lab, compiled: Compile, case: str, options: list[str]) -> None:
    program = compiled("confined")
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    before = lab.state()
    native = native_lab.run([program, case], native=True)
    if native.returncode == 77:
        pytest.skip("the kernel has no Landlock")
    done = lab.run([program, case], *options)
    assert native.returncode == 0
    assert done.stdout.decode().splitlines() == native.stdout.decode().splitlines()
    said = done.stderr.decode().splitlines()
    assert len(said) == bool(SAID[case]), said
    assert all(SAID[case] in line for line in said)
    assert done.returncode == 0
    wrong = difference(lab.state(), native_lab.state())
    assert not wrong, wrong
    lab.verb("verify")
    if "--mode=single" in options:
        return
    end = lab.state()
    lab.restore(0)
    lab.assert_state(before, "restore 0")
    lab.restore(max(lab.messages()))
    lab.assert_state(end, "after going to the end again")


def test_a_static_one(lab: Lab, native_lab: Lab, compiled: Compile) -> None:
    """The process that makes its calls might do more than it may."""
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    command = [compiled("confined", "static"), "landlock"]
    native, done = native_lab.run(command, native=True), lab.run(command)
    if native.returncode == 77:
        pytest.skip("the kernel has no Landlock")
    assert (done.returncode, done.stdout) == (native.returncode, native.stdout)
    assert not difference(lab.state(), native_lab.state())
    said = done.stderr.decode().splitlines()
    assert len(said) == 1 and "confined.static cannot be tracked: it asks to be confined by Landlock" in said[0]


UNSHARED = "import ctypes; libc = ctypes.CDLL(None); libc.unshare(0x400); libc.unshare(0x400)"


@pytest.mark.parametrize(
    ("command", "why"),
    [([sys.executable, "-c", UNSHARED], "table of descriptors"),
     (["sh", "-c", "ulimit -v 300000; exec cat old"], "cannot be joined")],
    ids=["unshare", "address-space"],
)  # fmt: skip
def test_said_once_and_as_natively(lab: Lab, native_lab: Lab, command: list[str], why: str) -> None:
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    native, done = native_lab.run(command, native=True), lab.run(command)
    assert (done.returncode, done.stdout) == (native.returncode, native.stdout)
    assert native.returncode == 0
    said = done.stderr.decode().splitlines()
    assert len(said) == 1
    assert why in said[0]
