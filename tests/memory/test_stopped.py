"""Processes that job control has stopped: saved without being continued, and stopped when they are back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from comeback import Memory, built, comes_back, descendants
from lab import gone, wait_until

pytestmark = pytest.mark.usefixtures("installed")

SCRIPT = """
work() { s=0; for ((i = 0; i < $1; i++)); do s=$(((s * 31 + i) % 1000003)); done; echo "job $1 $s" >> jobs; }
work 30000 & child=$!
kill -STOP $child
for n in 1 2 3 4; do work 20000; echo "round $n $(cat jobs | wc -l)"; done
kill -CONT $child
wait $child; echo "status $?"
cat jobs
"""


@pytest.mark.in_turn("words", 2)
@pytest.mark.parametrize("words", [(), ("chain",)], ids=["alone", "chain"])
def test_what_a_stop_shows(tmp_path: Path, words: tuple[str, ...]) -> None:
    """To the one that stands, with threads, a signal that waits or in a call that a stop ends; to its parent, which has
    heard of it or not; and that is each told as often as natively."""
    comes_back(Memory(tmp_path, [built(tmp_path, "stopped.c"), *words]))


def test_a_job_of_a_script(tmp_path: Path) -> None:
    comes_back(Memory(tmp_path, ["/bin/bash", "-c", SCRIPT]))


def test_whoever_saves_them_is_killed(tmp_path: Path) -> None:
    """At any moment of a checkpoint: what was stopped stays so, and what its parent notices is as natively."""
    case = Memory(tmp_path, [built(tmp_path, "stopped.c"), "chain"])
    for tries in range(4):
        run = case.start("--every", "20ms", "--store", f"{tmp_path}/{tries}")
        try:
            out = tmp_path / "out"
            wait_until(lambda out=out: b"outer" in out.read_bytes(), "they stand")
            time.sleep(0.2 + tries * 0.013)
            left = descendants(run.pid)
            run.kill()
            run.wait()
            wait_until(lambda left=left: all(gone(pid) for pid in left), "the program ends")
        finally:
            run.kill()
        assert out.read_bytes() == case.native.output, case.errors()
