"""Files that a restore made anew, with inode numbers that others of them had. When they were born tells nothing where
the filesystem does not note it, and little where its clock goes in steps."""

from __future__ import annotations

import sys
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


@pytest.mark.parametrize("inside", [False, True], ids=["by a verb", "by the program"])
@pytest.mark.parametrize("make", [(), ("-I", "128")], ids=["births", "no births"])
def test_swapped(tmp_path: Path, compiled: Compile, installed: None, make: tuple[str, ...],
                 inside: bool) -> None:
    try:
        with mounted(tmp_path, "ext4", 32, make=make) as disk:
            lab = Lab(disk, compiled("driver"))
            lab.store = tmp_path / "store"     # on the same filesystem it would have the files themselves
            swapped(lab, inside)
            lab.close()
    except NoMount as why:
        pytest.skip(str(why))


def swapped(lab: Lab, inside: bool) -> None:
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
