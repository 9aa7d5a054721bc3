"""A job of Slurm asks once to be queued again, by whichever of its runs can; what `scontrol` says is played."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from lab import Lab, wait_until
from ranks import Rank, checkpoint, end
from test_job import counter

pytest.importorskip("zmq")

# it notes what it is asked; each call waits until the test lets it go, where it is to
SCONTROL = """#!/bin/sh
echo "$@" >> {0}/asked
number=$(wc -l < {0}/asked)
while [ -e {0}/waits ] && [ ! -e {0}/go.$number ]; do sleep 0.02; done
test ! -e {0}/no.$number
"""


@pytest.fixture
def slurm(lab: Lab) -> dict[str, str]:
    folder = lab.folder / "bin"
    folder.mkdir()
    (folder / "scontrol").write_text(SCONTROL.format(lab.folder))
    (folder / "scontrol").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"}


def asked(lab: Lab) -> int:
    path: Path = lab.folder / "asked"
    return path.read_text().count("requeue 4711\n") if path.exists() else 0


def is_asked(lab: Lab, times: int) -> None:
    wait_until(lambda: asked(lab) == times, f"{times} have asked")


def begun(lab: Lab, slurm: dict[str, str], *options: str) -> list[Rank]:
    """The last is the one that counts."""
    ranks = [Rank(lab, "--requeue", *options, env=slurm) for _ in range(3)]
    for rank in ranks:
        rank.ready().do("append", "file", "one")
    one = counter(lab, ranks)
    return [*(rank for rank in ranks if rank is not one), one]


def test_any_of_the_runs_asks_for_the_requeue_and_only_one(lab: Lab, slurm: dict[str, str]) -> None:
    """The one that counts may have ended by the same signal before it could."""
    ranks = begun(lab, slurm)
    checkpoint(lab, {})
    (lab.folder / "no.1").touch()
    for number, rank in enumerate(ranks):
        rank.process.send_signal(signal.SIGUSR1)
        if number < 2:
            is_asked(lab, number + 1)
        time.sleep(1)
    assert asked(lab) == 2                 # the first was refused, the last knows that it was done
    said = end(ranks)
    assert said.count("was not requeued") == 1, said
    assert lab.messages()[max(lab.messages())] == "requeued"


@pytest.mark.parametrize("how", ["refused", "killed"])
def test_a_requeue_that_came_to_nothing_is_asked_for_by_another(lab: Lab, slurm: dict[str, str], how: str) -> None:
    """The others took it for done as soon as one had begun to ask."""
    ranks = begun(lab, slurm)
    checkpoint(lab, {})
    for name in ("waits", "no.1"):
        (lab.folder / name).touch()
    ranks[0].process.send_signal(signal.SIGUSR1)
    is_asked(lab, 1)
    ranks[1].process.send_signal(signal.SIGUSR1)
    time.sleep(2)
    assert asked(lab) == 1                 # it waits for the answer
    if how == "killed":
        ranks[0].kill()
    (lab.folder / "go.1").touch()
    is_asked(lab, 2)
    (lab.folder / "go.2").touch()
    ranks[2].process.send_signal(signal.SIGUSR1)
    time.sleep(2)
    assert asked(lab) == 2
    said = end(ranks[how == "killed":])
    assert said.count("was not requeued") == (how == "refused"), said
    assert lab.messages()[max(lab.messages())] == "requeued"


def test_a_checkpoint_of_an_earlier_life_is_one_to_continue_from(lab: Lab, slurm: dict[str, str]) -> None:
    """Before the first of this life one of the runs does not answer: the job was not queued again."""
    ranks = begun(lab, slurm)
    checkpoint(lab, {})
    for rank in ranks:
        rank.kill()
    ranks = begun(lab, slurm | {"SLURM_RESTART_COUNT": "1"})
    ranks[0].process.send_signal(signal.SIGSTOP)
    ranks[1].process.send_signal(signal.SIGUSR1)
    is_asked(lab, 1)
    ranks[0].process.send_signal(signal.SIGCONT)
    said = end(ranks)
    assert "no checkpoint: " in said and "not requeued" not in said, said


def test_only_checkpoints_that_are_named_so_are_continued_from(lab: Lab, slurm: dict[str, str]) -> None:
    """Those of a run's own store have no names."""
    ranks = begun(lab, slurm, "--resume-at", "level *")
    checkpoint(lab, {}, "another")
    ranks[0].process.send_signal(signal.SIGUSR1)
    time.sleep(2)
    checkpoint(lab, {}, "level 1")
    assert asked(lab) == 0
    ranks[1].process.send_signal(signal.SIGUSR1)
    is_asked(lab, 1)
    said = end(ranks)
    assert said.count("the job is not requeued: there is no checkpoint to continue from") == 1, said
