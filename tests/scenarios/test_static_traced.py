"""A tracer makes other paths of those that a program without the library names (proot)."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static, prepare

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")
STEPS = [f"exec {BUSYBOX} touch guest", f"exec {BUSYBOX} dd if=log of=guest bs=3 count=1 conv=notrunc status=none"]


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


def test_by_a_filter_that_is_there_before(lab: Lab, compiled: Compile) -> None:
    """The tracer is dynamic, and may have one: the program is not tracked."""
    prepare(lab)
    done = lab.run([compiled("translates"), BUSYBOX, "cp", "log", "guest"])
    assert (done.returncode, set(lab.state())) == (0, {"old", "log", "hosts"})
    assert done.stderr.decode().splitlines()[0].startswith(f"metamori: {BUSYBOX} cannot be tracked: it is static")
    assert done.stderr.count(b"\n") == 1
