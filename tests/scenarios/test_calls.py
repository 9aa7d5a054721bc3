"""Every call of libc on files, every stream call, processes after each other: the same as natively."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab, difference

PROGRAMS = ["calls", "streams", "processes", "execs", "sharing", "held"]
OPTIONS = [[], ["--isolate"], ["--isolate", "--cache-size", "0"], ["--mode", "single"]]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda words: " ".join(words) or "default")
@pytest.mark.parametrize("flavour", ["plain", "fortified"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_natively(
    lab: Lab, native_lab: Lab, compiled: Compile, name: str, flavour: str, options: list[str]
) -> None:
    program = compiled(name, flavour)
    wanted = native_lab.run([program], native=True)
    done = lab.run([program], *options)
    have, want = (some.stdout.decode(errors="replace").splitlines() for some in (done, wanted))
    assert have == want
    assert (done.returncode, done.stderr) == (wanted.returncode, wanted.stderr)
    wrong = difference(lab.state(), native_lab.state())
    assert not wrong, wrong
    if "single" not in options:
        end = lab.state()
        lab.restore(0)
        assert not lab.state()
        lab.restore(max(lab.messages()))
        lab.assert_state(end, "after going to the end again")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_itself_natively(native_lab: Lab, compiled: Compile, name: str) -> None:
    """Its output says the same every time."""
    outputs = []
    for folder in ("one", "two"):
        (native_lab.work / folder).mkdir()
        done = native_lab.run([compiled(name)], native=True, cwd=native_lab.work / folder)
        assert done.returncode == 0
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
