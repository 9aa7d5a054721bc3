"""A run writes to a file of an earlier run by a name outside of the scope, and then by the one that is tracked: the
next index has what is in the file, not what an index before had redirected."""

from __future__ import annotations

import os
import sys

import pytest
from lab import Lab

FIRST = """
import metamori, os
with open("x", "wb") as file:
    file.write(b"o" * 300000)
metamori.checkpoint()
with open("x", "r+b") as file:
    file.write(b"n" * 100000)
"""
SECOND = """
import metamori, os
for name, at, data in ("../out/x", 50000, b"by the outer name"), ("x", 200000, b"by the inner name"):
    with open(name, "r+b", 0) as file:
        os.pwrite(file.fileno(), data, at)
print(metamori.checkpoint())
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_what_it_has_then(lab: Lab, options: list[str]) -> None:
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    assert lab.run([sys.executable, "-c", FIRST]).returncode == 0
    os.link(lab.work / "x", lab.folder / "out" / "x")
    done = lab.run([sys.executable, "-c", SECOND], *options)
    index, data = int(done.stdout), (lab.work / "x").read_bytes()
    assert data[50000:50017] == b"by the outer name" and data[200000:200017] == b"by the inner name"
    lab.restore(0)
    for each in (index, index + 1):
        lab.restore(each)
        assert (lab.work / "x").read_bytes() == data, each
