"""What somebody outside of a run does to its files while it is alive, or when it was killed: he removes, replaces and
moves them. What is his stays as it is, and of each index all comes back, or it is named as lost."""

from __future__ import annotations

import pytest
from lab import Lab

MODES = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


@pytest.mark.parametrize("made", ["mkdir d", "fill d w,creat 10 1", "symlink x d"])
@pytest.mark.parametrize("between", [False, True], ids=["at once", "after a checkpoint"])
@MODES
def test_a_folder_is_taken_away(lab: Lab, options: list[str], between: bool, made: str) -> None:
    """The run has taken a name out of it before, and makes something of its name then: the folder counted as one that
    had not been there, and so did the name."""
    (lab.work / "d").mkdir()
    (lab.work / "d/f").write_bytes(b"old")
    before = lab.state()
    program = lab.start(*options)
    program.must(["unlink d/f"])
    (lab.work / "d").rmdir()
    program.must(["checkpoint"] * between + [made])
    assert program.end() == 0
    after = lab.state()
    for index, want in ((0, before), (1 + between, after), (0, before)):
        lab.restore(index)
        lab.assert_state(want, f"index {index}")
    lab.verb("verify")
