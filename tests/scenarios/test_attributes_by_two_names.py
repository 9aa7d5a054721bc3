"""A file of two names whose attributes are changed by the one, and then by the other."""

from __future__ import annotations

import os
import shlex
import sys

import pytest
from lab import Lab

CHANGES = """
import os, subprocess, sys
first, checkpoint = sys.argv[1], sys.argv[2:]
if first == "mode":
    os.chmod("a", 0o600)
elif first == "refused":
    try:
        os.symlink("x", "a")
    except FileExistsError:
        pass
else:
    os.utime("a", (5, 5))
subprocess.run(checkpoint, check=True, stdout=subprocess.DEVNULL)
os.chmod("b", 0o640)
subprocess.run(checkpoint, check=True, stdout=subprocess.DEVNULL)
os.utime("b", (9, 9))
"""


@pytest.mark.parametrize("options", [(), ("--isolate",)], ids=["default", "isolate"])
@pytest.mark.parametrize("first", ["mode", "time", "refused"])
def test_it_is_one_file_at_every_index(lab: Lab, first: str, options: tuple[str, ...]) -> None:
    """The second name was noted later than the first: it was taken for that of another file, which was lost."""
    (lab.work / "a").write_bytes(b"some bytes")
    os.chmod(lab.work / "a", 0o644)
    os.utime(lab.work / "a", (3, 3))
    os.link(lab.work / "a", lab.work / "b")
    done = lab.run([sys.executable, "-c", CHANGES, first, *lab.argv("checkpoint")], *options)
    assert done.returncode == 0, done.stderr
    at_one = 0o600 if first == "mode" else 0o644, 5 if first == "time" else 3
    for index, want in [(0, (0o644, 3)), (3, (0o640, 9)), (1, at_one), (2, (0o640, at_one[1])), (0, (0o644, 3))]:
        lab.verb("restore", index)
        for name in "ab":
            found = (lab.work / name).stat()
            assert (found.st_mode & 0o777, found.st_mtime) == want, (index, name)
        assert found.st_nlink == 2
        assert (lab.work / "b").read_bytes() == b"some bytes"


@pytest.mark.parametrize("options", [(), ("--isolate",)], ids=["default", "isolate"])
def test_given_times_when_a_restore_has_made_it_anew(elsewhere: Lab, options: tuple[str, ...]) -> None:
    """As a copy, from a store on another filesystem: it counted as changed outside, and bytes of the first as lost."""
    lab = elsewhere
    (lab.work / "a").write_bytes(b"first")
    checkpoint = shlex.join(lab.argv("checkpoint"))
    assert lab.run(["rm", "a"]).returncode == 0
    lab.verb("restore", 0)
    dated = [f"perl -e 'utime {at}, {at}, \"a\"'; {checkpoint}" for at in (5, 6)]
    assert lab.run(["sh", "-c", ";".join(dated)], *options).returncode == 0
    for index in (2, 0, 3):
        lab.verb("restore", index)
        assert (lab.work / "a").read_bytes() == b"first", index
