"""A tracer makes other paths of those that a program without the library names (proot)."""

from __future__ import annotations

import errno

import pytest
from conftest import Compile
from lab import Lab
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static, prepare

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")
STEPS = [f"exec {BUSYBOX} touch guest", f"exec {BUSYBOX} dd if=log of=guest bs=3 count=1 conv=notrunc status=none"]


def container(compiled: Compile) -> list[object]:
    """Before a command: a filter, of a call that nobody makes."""
    return [compiled("refuse"), 9999, errno.EPERM, 0, 0, 0]


def every_step(lab: Lab, native_lab: Lab, tracer: str, options: list[str]) -> None:
    for each in (lab, native_lab):
        (each.work / "hosts").write_bytes(b"h" * 6000)
        (each.work / "guest").write_bytes(b"g")
    every_index(lab, native_lab, ["sh"], [step.replace("exec", tracer) for step in STEPS], options)
    assert (lab.work / "guest").read_bytes() == b"g"
    assert (lab.work / "hosts").read_bytes().startswith(b"firh")


@OPTIONS
def test_by_a_filter(lab: Lab, native_lab: Lab, compiled: Compile, options: list[str]) -> None:
    """A static one, whose filter would be below ours: it is told that the kernel has none, and does without."""
    every_step(lab, native_lab, str(compiled("translates", "static")), options)


@OPTIONS
@pytest.mark.parametrize("flavour", ["static", "plain"])
def test_by_stops(lab: Lab, native_lab: Lab, compiled: Compile, flavour: str, options: list[str]) -> None:
    """What it has made of a path is in the call that is shown."""
    every_step(lab, native_lab, f"{compiled('translates', flavour)} plain", options)


@pytest.mark.parametrize("contained", [False, True], ids=["", "contained"])
def test_by_a_filter_that_is_there_before(lab: Lab, compiled: Compile, contained: bool) -> None:
    """The tracer is dynamic, and may have one: the program is not tracked."""
    prepare(lab)
    command = [*lab.argv("run"), "--", compiled("translates"), BUSYBOX, "cp", "log", "guest"]
    done = lab.run([*container(compiled), *command] if contained else command, native=True)
    assert (done.returncode, set(lab.state())) == (0, {"old", "log", "hosts"})
    assert done.stderr.decode().splitlines()[0].startswith(f"metamori: {BUSYBOX} cannot be tracked: it is static")
    assert done.stderr.count(b"\n") == 1


def test_by_stops_in_a_container(lab: Lab, compiled: Compile) -> None:
    """Whose own filter all have: it hands nothing to this tracer."""
    prepare(lab)
    before = lab.state()
    command = [*lab.argv("run"), "--", compiled("translates"), "plain", BUSYBOX, "cp", "log", "guest"]
    done = lab.run([*container(compiled), *command], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "hosts").read_text() == "first\n"
    lab.restore(0)
    lab.assert_state(before, "before it")
