"""Killed and gone on with, again and again, at any moment: the end is always the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from comeback import Memory, killed_again
from lab import difference, picture

pytestmark = pytest.mark.usefixtures("installed")

# overwrites, appends, renames, removes; its output is a function of nothing but itself
PROGRAM = """
import hashlib, os
state, table = b"0", {}
log, old = open("log", "a"), open("table", "r+b")
for i in range(4000):
    state = hashlib.sha256(state * 300).digest()
    table[state[0]] = state.hex()
    old.seek(state[1] * 64)
    old.write(state.hex().encode())
    if i % 20 == 0:
        print(i, state.hex()[:16], file=log)
        print(i, len(table), flush=True)
        with open("new%d" % (i % 3), "w") as file:
            file.write(repr(sorted(table.items())))
        os.replace("new%d" % (i % 3), "newest")
        if i % 60 == 0:
            open("short", "w").close()
        elif os.path.exists("short"):
            os.unlink("short")
print(hashlib.sha256(repr(sorted(table.items())).encode()).hexdigest())
"""


def chain(folder: Path, seed: int, kills: int) -> None:
    random_ = random.Random(seed)
    script = folder / "program.py"
    script.write_text(PROGRAM)
    case = Memory(folder, ["/usr/bin/python3", script], setup={"table": bytes(64 * 256)})
    known = case.run_and_kill("80ms", random_.randint(1, 4))
    for _ in range(kills):
        killed_again(case, random_, random_.choice(known))
        known = [entry["index"] for entry in case.log()["checkpoints"] if entry["memory"]]
    for index in (known[-1], random_.choice(known)):
        case.goes_on(index)
    assert case.verb("verify").returncode == 0
    assert difference(picture(case.work), case.native.files) == ""


@pytest.mark.in_turn("seed", 2)
@pytest.mark.parametrize("seed", range(3))
def test_a_few_kills(tmp_path: Path, seed: int) -> None:
    chain(tmp_path, seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_chains(tmp_path: Path, seed: int) -> None:
    """Killed, gone on with, killed, gone on with, killed, and gone on with to the end."""
    chain(tmp_path, seed, 2)
