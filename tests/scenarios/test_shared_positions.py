"""One position for several processes and threads (tests/programs/positions.c): every call gets a place of its own.

Two that took the position before they waited for each other would get the same records, or write over each other's,
and leave a gap: tried by reading it before the file's lock in `plain.c`, in reads and in writes; each fails here.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab

WORDS = (2, 2, 800, 4)  # processes, threads, steps, rounds


def summed(path: Path, first: int = 0) -> int:
    """The program's sum of a file's numbers and their places."""
    numbers = array("Q", path.read_bytes())
    assert sys.byteorder == "little"
    return sum(number * place for place, number in enumerate(numbers[first:], 1)) % 2**64


def test_natively(native_lab: Lab, compiled: Compile) -> None:
    """The kernel keeps what the program asks of it."""
    done = native_lab.run([compiled("positions"), *WORDS], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    _, slots, log = done.stdout.splitlines()[-1].split()
    assert (summed(native_lab.work / "slots"), summed(native_lab.work / "log", 1)) == (int(slots), int(log))


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--isolate", "--cache-size", "0"], ["--mode=single"]],
                         ids=["default", "isolate", "small-cache", "single"])
def test_every_call_has_its_own_place(lab: Lab, compiled: Compile, options: list[str]) -> None:
    done = lab.run([compiled("positions"), *WORDS], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    rounds = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(rounds) == WORDS[3]
    for index, slots, log in rounds[:-1] if "--mode=single" not in options else []:   # there only the last one is kept
        lab.restore(index)
        assert (summed(lab.work / "slots"), summed(lab.work / "log", 1)) == (slots, log), index
    lab.restore(max(lab.messages()))
    assert (summed(lab.work / "slots"), summed(lab.work / "log", 1)) == tuple(rounds[-1][1:])
    lab.verb("verify")


@pytest.mark.parametrize("options", [["--isolate"], ["--mode=single"]], ids=["isolate", "single"])
def test_a_writer_while_others_that_share_the_position_execute(lab: Lab, options: list[str]) -> None:
    """Who executes gives the position back to the kernel: not between another's bytes and its step beyond them."""
    lines = "exec > out; for i in $(seq 40000); do echo $i; done & for i in $(seq 120); do /bin/true; done; wait"
    done = lab.run(["bash", "-c", lines], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [int(line) for line in (lab.work / "out").read_text().split()] == list(range(1, 40001))
