"""Files that a restore made anew, with inode numbers that others of them had. When they were born tells nothing where
the filesystem does not note it, and little where its clock goes in steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Compile
from disks import NoMount, mounted
from lab import Lab

MADE = """
import metamori, os
for path in reversed(range(50)):
    open(str(path), "w").write(str(path))
metamori.checkpoint()
for path in range(50):
    os.unlink(str(path))
"""
USED = """
import metamori, os
for path in range(0, 50, 2):
    open(str(path), "a").close(), os.unlink(str(path))
for path in range(1, 50, 2):
    open(str(path), "a").write("more")
metamori.checkpoint()
"""


def files(lab: Lab) -> dict[str, bytes]:
    return {name: entry.content for name, entry in lab.state().items()}


INSIDE = MADE + "metamori.checkpoint()\nmetamori.restore(1)\n" + USED


USED_AT_ONCE = """
import metamori, os
number = os.stat("old").st_ino
os.rename("other", "old")
made = 0
while made < 100 and (not made or os.stat(f"new{made}").st_ino != number):
    made += 1
    open(f"new{made}", "w").write(f"new {made}")
print(made < 100)
metamori.checkpoint()
"""


@pytest.fixture(params=[(), ("-I", "128")], ids=["births", "no births"])
def elsewhere(tmp_path: Path, compiled: Compile, installed: None, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The store on another filesystem: on the same one it would have the files themselves, with their numbers."""
    try:
        with mounted(tmp_path, "ext4", 32, make=request.param) as disk:
            lab = Lab(disk, compiled("driver"))
            lab.store = tmp_path / "store"
            yield lab
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


def test_used_again_at_once(elsewhere: Lab) -> None:
    """A file that was there before the run is replaced, and the next one that is made has its number."""
    lab = elsewhere
    (lab.work / "old").write_bytes(b"old")
    (lab.work / "other").write_bytes(b"other")
    before = files(lab)
    assert b"True" in lab.run([sys.executable, "-c", USED_AT_ONCE]).stdout
    after = files(lab)
    assert after["old"] == b"other" and all(data == f"new {name[3:]}".encode() for name, data in after.items()
                                            if name.startswith("new"))
    for index, want in (0, before), (1, after), (0, before), (2, after):
        lab.restore(index)
        assert files(lab) == want


@pytest.mark.in_turn("inside")
@pytest.mark.parametrize("inside", [False, True], ids=["by a verb", "by the program"])
def test_swapped(elsewhere: Lab, inside: bool) -> None:
    lab = elsewhere
    one = {str(each): str(each).encode() for each in range(50)}
    three = {name: data + b"more" for name, data in one.items() if int(name) % 2}
    if inside:
        lab.run([sys.executable, "-c", INSIDE])
    else:
        lab.run([sys.executable, "-c", MADE])
        lab.restore(1)
        assert files(lab) == one
        lab.run([sys.executable, "-c", USED])
    for index, want in (1, one), (3, three), (2, {}), (3, three), (1, one):
        lab.restore(index)
        assert files(lab) == want
    lab.verb("verify")


UNPACKED = """
import os
for path in ORDER:
    open(str(path), "w").write(f"{path:02}" * 35000), os.utime(str(path), (1, 1))
"""


def test_unpacked_anew(elsewhere: Lab) -> None:
    """Somebody removes all files and makes them again, of the same sizes and times, with each other's numbers. Longer
    than what the store copies, they are lost, and not each other."""
    lab = elsewhere
    lab.run([sys.executable, "-c", UNPACKED.replace("ORDER", "range(50)") + "import metamori; metamori.checkpoint()"])
    have = files(lab)
    for path in range(50):
        (lab.work / str(path)).unlink()
    subprocess.run([sys.executable, "-c", UNPACKED.replace("ORDER", "reversed(range(50))")], cwd=lab.work, check=True)
    assert files(lab) == have
    lab.restore(0, "--force")
    assert files(lab) == {}
    for index in 3, 1:                     # 3: as somebody had made them
        lab.verb("restore", "--force", index, code=None)
        assert {name: data for name, data in files(lab).items() if have[name] != data} == {}
