"""What it takes to note a path, however many were noted before it."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys

import pytest
from lab import Lab

from metamori._area import lib

MANY = 2000
WORD = (1 << 64) - 1
MIX, LAST = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93     # mm_mixed in base/crc.h, hash_of in names/touch.c
MIX_BACK, LAST_BACK = pow(MIX, -1, 1 << 64), pow(LAST, -1, 1 << 64)
MAKE = """import os, sys
names = bytes.fromhex(sys.stdin.read())
folder = os.open(sys.argv[1], os.O_PATH)
for at in range(0, len(names), 8):
    os.mkdir(names[at:at + 8], dir_fd=folder)
"""

pytestmark = pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")


def with_place(folder: bytes, place: int, chance: random.Random) -> bytes:
    """A name of eight bytes whose path has this place in the table of noted paths: the hash, backwards."""
    while True:
        at = chance.getrandbits(64) & ~((lib.MM_SEEN - 1) << 20) | place << 20
        x = at * LAST_BACK & WORD
        x ^= x >> 29 ^ x >> 58
        name = (x * MIX_BACK & WORD ^ lib.mm_mixed(1, folder, len(folder))).to_bytes(8, "little")
        if not set(name) & {0, ord("/")}:
            path = folder + name
            assert lib.mm_mixed(1, path, len(path)) * LAST & WORD == at
            return name


def instructions(lab: Lab, folder: str, places: int) -> int:
    chance = random.Random(1)
    inside = lab.work / folder
    inside = inside.with_name(folder + "-" * (-(len(os.fsencode(inside)) + 1) % 8))
    inside.mkdir()
    path = os.fsencode(inside) + b"/"
    names = b"".join(with_place(path, chance.randrange(places), chance) for _ in range(MANY))
    out = lab.folder / folder
    counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q"]
    env = {"METAMORI_STATIC": "untracked"}     # valgrind is static, and the library is in the program that it runs
    done = lab.run([*counted, sys.executable, "-S", "-c", MAKE, inside], stdin=names.hex(), env=env)
    assert done.returncode == 0, done.stderr
    return int(re.findall(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)[0])


def test_paths_that_share_a_place(lab: Lab) -> None:
    """As of a million others: each step of a look-up leaves a quarter of them."""
    apart, together = instructions(lab, "apart", lib.MM_SEEN), instructions(lab, "together", 1)
    assert together - apart < 1000 * MANY, f"{(together - apart) / MANY:.0f} instructions more for a name"
