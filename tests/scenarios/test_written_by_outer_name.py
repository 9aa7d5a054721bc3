"""A run writes to a file by a name outside of the scope. One of an earlier run, and then by the name that is tracked:
the next index has what is in the file, not what an index before had redirected. One without a tracked name any more: at
the end it is all there."""

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


THIRD = """
import metamori, os, sys
first = metamori.checkpoint()
os.rename("../out/a", "x")
if "known" in sys.argv:
    known = metamori.checkpoint()
with open("x", "r+b", 0) as file:
    os.pwrite(file.fileno(), b"by the inner name", 1000)
os.unlink("x") if "gone" in sys.argv else os.rename("x", "../out/c") if "left" in sys.argv else None
if "back" in sys.argv:
    metamori.restore(first)
metamori.checkpoint()
with open("../out/b", "r+b", 0) as file:
    os.pwrite(file.fileno(), b"by the outer name", 1005)
    os.pwrite(file.fileno(), b"more", 80000)
    os.lseek(file.fileno(), 0, 0)
    print(len(file.read(1 << 20)))
os.replace("../out/b", "../out/then")
open("../out/saw", "wb").write(open("../out/then", "rb").read(1 << 20))
"""


@pytest.mark.in_turn("words", "place")
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
@pytest.mark.parametrize("words", ["left", "gone", "back", "left back", "known gone", "known left back", "known back"])
@pytest.mark.parametrize("place", ["lab", "elsewhere"])
def test_when_no_tracked_name_is_left(request: pytest.FixtureRequest, place: str, words: str,
                                      options: list[str]) -> None:
    """It was read without an end, and what the program wrote was lost when the run ended."""
    lab: Lab = request.getfixturevalue(place)
    del lab.env["METAMORI_TRACK"]
    out = lab.folder / "out"
    out.mkdir()
    (out / "a").write_bytes(b"a" * 70000)
    os.link(out / "a", out / "b")
    done = lab.run([sys.executable, "-c", THIRD, *words.split()], *options)
    assert done.stdout == b"80004\n", done.stderr
    assert (out / "then").read_bytes() == (out / "saw").read_bytes()
    assert (out / "then").read_bytes()[1005:1022] == b"by the outer name"
    assert not lab.restore(1).stderr and not lab.state()
    if "known" in words:
        lab.restore(2)
        assert (lab.work / "x").read_bytes() == b"a" * 70000


ATTRIBUTES = """
import metamori, os, sys
open("x", "w").close()
os.link("x", "../out/x")
first = metamori.checkpoint()
where = os.open("../out/x", os.O_RDWR) if sys.argv[1] == "open" else "../out/x"
os.setxattr(where, "user.a", b"1")
os.chmod(where, 0o600)
os.utime(where, (5, 5))
second = metamori.checkpoint()
for index, want in (first, (0o100640, 0)), (second, (0o100600, 1)):
    metamori.restore(index)
    assert (os.stat("x").st_mode, len(os.listxattr("x"))) == want, index
"""


@pytest.mark.parametrize("how", ["open", "by path"])
def test_attributes_given_by_the_outer_name(lab: Lab, how: str) -> None:
    """They were in no index, and stayed when an earlier one was restored."""
    del lab.env["METAMORI_TRACK"]
    (lab.folder / "out").mkdir()
    done = lab.run(["sh", "-c", 'umask 027; exec "$@"', "sh", sys.executable, "-c", ATTRIBUTES, how])
    assert done.returncode == 0, done.stderr
    for index, want in (1, (0o100640, [])), (2, (0o100600, ["user.a"])), (1, (0o100640, [])):
        lab.restore(index)
        st = os.stat(lab.work / "x")
        assert (st.st_mode, os.listxattr(lab.work / "x")) == want
        assert (st.st_mtime == 5) == (index == 2)
