"""A program that has used up its descriptors: whatever needs none natively needs none here, at each kind of limit."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab, difference

MODES = [[], ["--isolate"], ["--mode", "single"]]


@pytest.mark.parametrize("options", MODES, ids=lambda words: " ".join(words) or "default")
@pytest.mark.parametrize("how", ["own", "soft", "hard"])
def test_same_as_natively(lab: Lab, native_lab: Lab, compiled: Compile, how: str, options: list[str]) -> None:
    """own: a limit that the program sets; soft: it begins under one; hard: and nobody may raise that."""
    command = [compiled("exhausted"), *([] if how == "own" else [how])]
    wanted = native_lab.run(command, native=True)
    assert b"= -1 EMFILE" in wanted.stdout, "it has used up its descriptors"
    done = lab.run(command, *options)
    assert done.stdout.decode().splitlines() == wanted.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (wanted.returncode, wanted.stderr)
    wrong = difference(lab.state(), native_lab.state())
    assert not wrong, wrong
    if "single" not in options:
        end = lab.state()
        lab.restore(0)
        assert not lab.state()
        lab.restore(max(lab.messages()))
        lab.assert_state(end, "after going to the end again")
