"""A restore inside a program with threads and other processes: all of it, or EBUSY and nothing; never half."""

from __future__ import annotations

import pytest
from conftest import Compile
from lab import Lab

SAID = b"""busy, stopped, in vfork: -1 EBUSY, as before
stopped, in vfork: -1 EBUSY, as before
in vfork: -1 EBUSY, as before
nobody: 0 , changed
5000, 5000 bytes
"""


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode=single"]], ids=["default", "isolate", "single"])
def test_all_or_nothing(lab: Lab, compiled: Compile, options: list[str]) -> None:
    """The threads write on through it: their files hold whole lines, none of them from before the restore."""
    done = lab.run([compiled("family")], *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, b"")
    assert (lab.work / "shared").read_bytes() == b"a" * 5000
    for name in ("own0", "own1"):
        data = (lab.work / name).read_bytes()
        lines = [int(line) for line in data.split()]
        assert len(data) == 8 * len(lines)
        assert lines == list(range(lines[0], lines[0] + len(lines))) if lines else True
    lab.verb("verify")
