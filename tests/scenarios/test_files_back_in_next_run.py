"""A job that goes on in another run: it takes its files back to an index of an earlier run (metamori_v1_files_back, as
the levels do), and its processes then open them and write. Without MPI."""

from __future__ import annotations

import sys

import pytest
from lab import Lab

GROWS = """
import metamori
with open("t", "ab") as t:
    t.write(b"a" * 216)
    t.flush()
    assert metamori.checkpoint("step") == 1
    t.write(b"b" * 500)
"""

GOES_ON = """
import ctypes, os, sys, metamori
assert ctypes.CDLL(None).metamori_v1_files_back(1) == 0
kept = open("t", "rb").read()
assert kept == b"a" * 216, kept
how = sys.argv[1]
t = os.open("t", os.O_RDWR | (os.O_APPEND if how == "append" else 0))
for part in (b"c" * 69, b"d" * 70, b"e" * 5000):
    if how == "position":
        os.lseek(t, 0, os.SEEK_END)
    elif how == "truncate":
        os.ftruncate(t, os.fstat(t).st_size + len(part))
    if how in ("place", "truncate"):
        assert os.pwrite(t, part, len(kept)) == len(part)
    else:
        assert os.write(t, part) == len(part)
    kept += part
    assert os.pread(t, 10000, 0) == kept
    metamori.checkpoint()
    assert os.pread(t, 10000, 0) == kept
"""

SIZES = {2: 716, 3: 285, 4: 355, 5: 5355, 6: 5355}


def bytes_at(index: int) -> bytes:
    return b"a" * 216 + b"b" * 500 if index == 2 else (b"a" * 216 + b"c" * 69 + b"d" * 70 + b"e" * 5000)[:SIZES[index]]


def overwritten(lab: Lab) -> None:
    """By a run: what index 1 needs is saved as a pre-image then."""
    assert lab.run(["sh", "-c", "printf ZZZ | dd of=t conv=notrunc 2>/dev/null"]).returncode == 0


@pytest.mark.in_turn("how")
@pytest.mark.parametrize("how", ["append", "position", "place", "truncate"])
@pytest.mark.parametrize("saved", ["copy", "preimage"])
def test_what_is_written_after_the_way_back(saved: str, how: str, lab: Lab) -> None:
    done = lab.run([sys.executable, "-c", GROWS])
    assert done.returncode == 0, done.stderr
    first = 3                              # the index that the second run gives next
    if saved == "preimage":
        overwritten(lab)
        first = 4
    done = lab.run([sys.executable, "-c", GOES_ON, how])
    assert done.returncode == 0, done.stderr
    assert (lab.work / "t").read_bytes() == bytes_at(6)
    for index in range(3, 7):
        where = lab.folder / f"at{index}"
        lab.verb("restore", index + first - 3, "--to", where)
        assert next(where.rglob("t")).read_bytes() == bytes_at(index), index
    lab.verb("verify")
