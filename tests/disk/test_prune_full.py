"""A full disk leaves a way to prune: what is pruned makes room, and pruning needs some before it does."""

from __future__ import annotations

from contextlib import suppress

import pytest
from disks import MB, fill, free
from lab import Lab

import metamori


def history(lab: Lab, checkpoints: int, kilobytes: int = 256) -> dict[int, bytes]:
    """Every checkpoint has redirected blocks of its own here and there, and its own content."""
    data = lab.work / "data"
    data.write_bytes(bytes(8 * MB))
    program = lab.folder / "program.py"
    program.write_text(f"""
import os, subprocess, sys
for number in range({checkpoints}):
    with open("data", "r+b", buffering=0) as file:
        for at in range({kilobytes} // 4):
            os.pwrite(file.fileno(), bytes([number + 1]) * 4096, ((at * 37 + number) % 2048) * 4096)
    subprocess.run([*sys.argv[1:], "checkpoint"], check=True, stdout=subprocess.DEVNULL)
""")
    words = lab.argv("x")
    lab.run(["python3", str(program), words[0], "-m", "metamori"])
    program.unlink()
    return contents(lab)


def contents(lab: Lab) -> dict[int, bytes]:
    """Of the file at each index that there is."""
    with metamori.open_store(lab.store) as history:
        return {each.index: history.open(each.index, lab.work / "data").read() for each in history}


def brim(lab: Lab) -> None:
    """Not a byte is left."""
    path = fill(lab.folder)
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while file.write(bytes(512)):
            pass
    assert free(lab.folder) == 0


@pytest.mark.in_turn("rule")
@pytest.mark.parametrize("rule", [["--keep-last", "2"], ["--max-bytes", "3M"]], ids=["keep-last", "max-bytes"])
def test_prune_on_a_full_disk(small: Lab, rule: list[str]) -> None:
    states = history(small, 8)
    brim(small)
    small.verb("prune", *rule)
    assert free(small.folder) > MB // 2
    assert_as_before(small, states)
    brim(small)                            # and once more: the room for it is held again
    small.verb("prune", "--keep-last", "1")
    assert_as_before(small, states)


def assert_as_before(lab: Lab, states: dict[int, bytes]) -> None:
    kept = contents(lab)
    assert len(kept) < len(states) and all(states[index] == content for index, content in kept.items())
    lab.verb("verify")
