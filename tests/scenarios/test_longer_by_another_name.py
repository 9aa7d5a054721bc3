"""A file loses one of its names where the store cannot link it: its bytes are written back. What it gets by the name
that is left, in isolation too, has a place."""

from __future__ import annotations

import os
import sys

import pytest
from lab import Lab

GROWN = """
import os, metamori
os.truncate("used", 6000)
os.unlink("used")
os.truncate("other", 12000)
print(metamori.checkpoint())
os.truncate("other", 0)
print(metamori.checkpoint())
os.unlink("other")
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_cut_by_one_name_and_longer_by_the_other(elsewhere: Lab, options: list[str]) -> None:
    other = elsewhere.work / "other"
    (elsewhere.work / "used").write_bytes(b"o" * 9000)
    os.link(elsewhere.work / "used", other)
    done = elsewhere.run([sys.executable, "-c", GROWN], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    first, second = map(int, done.stdout.split())
    wanted = {0: b"o" * 9000, first: b"o" * 6000 + bytes(6000), second: b""}
    for index in (first, 0, second, second + 1, first, 0):
        elsewhere.restore(index)
        assert (other.read_bytes() if other.exists() else None) == wanted.get(index), index
    elsewhere.verb("verify")
