"""An operation of the one that counts, or of another run, fails in a checkpoint, and later ones too, as where the
filesystem that they share is full or away: the checkpoint is refused with a message, or taken; no index is lost."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import killing
import pytest
from lab import Lab
from ranks import Rank, end
from test_job import counter
from test_job_kills import Crew, tree
from test_job_model import back

pytestmark = pytest.mark.slow               # the daily suite has 40 minutes

pytest.importorskip("zmq")

CALLS = "pwrite,rename,link,unlink,mkdir,rmdir,ftruncate"     # a sync that fails is another matter
ERRORS = [(errno.ENOSPC, "No space left"), (errno.EIO, "Input/output error"), (errno.EDQUOT, "quota exceeded"),
          (errno.ESTALE, "Stale file handle")]


def again(lab: Lab) -> None:
    """A checkpoint, now that nothing fails."""
    limit = time.monotonic() + 20
    while (done := lab.verb("checkpoint", code=None, cwd=lab.work)).returncode:
        assert time.monotonic() < limit, done.stderr


def steps(lab: Lab, seed: int, first: int, step: int, last: int) -> None:
    """At every `step`th operation of the one that counts, and of another."""
    crew = Crew(lab, seed, 1, {"FAILS": CALLS})
    refused = failed = 0
    for at, nth in enumerate(range(first, last, step)):
        crew.act(4)
        one = counter(lab, crew.ranks)
        if at % 3 == 2:
            one = crew.random.choice([rank for rank in crew.ranks if rank is not one])
        number, text = ERRORS[at % len(ERRORS)]
        order, always = crew.orders[one], "always" if at % 2 else ""
        killing.order(order, nth if at % 3 < 2 else 1 + nth % 13, -number, always)
        before = crew.there()
        done = lab.verb("checkpoint", code=None, cwd=lab.work)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        crew.note()
        done_ = Path(f"{order}.done")
        has_failed = done_.exists()
        failed += has_failed
        if done.returncode:
            refused += 1
            assert has_failed and text in done.stderr, (nth, done.stderr)
        else:
            assert int(done.stdout) in crew.seen and before < crew.there()
        crew.act(2)                        # the programs go on
        killing.order(order, killing.NEVER)
        done_.unlink(missing_ok=True)
        again(lab)
        crew.note()
        assert before < crew.there()
    assert refused
    now = tree(lab.work)
    said = end(crew.ranks)
    assert "Traceback" not in said, said
    crew.seen.setdefault(max(crew.there()), now)
    lab.verb("log")
    crew.seen.setdefault(max(crew.there()), now)
    back(lab, f"seed {seed}", seed, crew.seen)
    print(f"seed {seed}: {failed} failed, {refused} refused\n{said}")


def test_some_operations_fail(lab: Lab) -> None:
    steps(lab, 5, 8, 12, 21)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_every_operation_fails(lab: Lab, seed: int) -> None:
    steps(lab, seed, 1 + seed, 10, 150)


def ended(lab: Lab, nth: int, always: str) -> None:
    """Of every run at its end: whoever opens the store next completes what is left."""
    crew = Crew(lab, nth, 1, {"FAILS": CALLS})
    crew.act(10)
    crew.checkpoint()
    crew.act(10)
    for number, rank in enumerate(crew.ranks):
        error, _ = ERRORS[(nth + number) % len(ERRORS)]
        killing.order(crew.orders[rank], nth, -error, always)
    now = tree(lab.work)
    before = crew.there()
    said = end(crew.ranks)
    assert "Traceback" not in said, said
    assert nth > 9 or list(lab.folder.glob("order.*.done"))
    assert not list(lab.store.glob("nodes*")) or said, "what is left to be done is said"
    said = lab.verb("log").stderr + said
    assert before < crew.there() and not list(lab.store.glob("nodes*")) and "lost" not in said, said
    for index in crew.there() - before:
        crew.seen[index] = now
    back(lab, f"operation {nth}", nth, crew.seen)


def begun(lab: Lab, nth: int, always: str) -> None:
    """Of one that begins a job, and of one that joins: it goes on without, or ends with a message; the others go on."""
    for number in range(2):
        error, text = ERRORS[(nth + number) % len(ERRORS)]
        order = lab.folder / f"order.begin.{number}"
        killing.order(order, nth, -error, always)
        ranks = [] if number == 0 else [Rank(lab).ready()]
        late = Rank(lab, order=order, env={"FAILS": CALLS})
        assert late.process.stdout
        if late.process.stdout.readline() == "ready\n":
            killing.order(order, killing.NEVER)
            ranks.append(late)
        else:
            said = late.end()
            assert late.process.returncode == 125 and text in said and "Traceback" not in said, said
        assert nth > 9 or Path(f"{order}.done").exists()
        ranks = ranks or [Rank(lab).ready()]
        for rank in ranks:
            rank.do("append", "common", "a")
        again(lab)
        assert "Traceback" not in end(ranks)
    seen = {0: {}, max(entry["index"] for entry in lab.log()["checkpoints"]): tree(lab.work)}
    for index, files in seen.items():
        lab.restore(index)
        lab.assert_state(files, f"operation {nth}, restore {index}")
    lab.verb("verify")


@pytest.mark.slow
@pytest.mark.parametrize("always", ["always", ""])
@pytest.mark.parametrize("nth", [*range(1, 14), *range(15, 60, 5)])
def test_an_operation_of_the_end_fails(lab: Lab, nth: int, always: str) -> None:
    ended(lab, nth, always)


@pytest.mark.slow
@pytest.mark.parametrize("always", ["always", ""])
@pytest.mark.parametrize("nth", [*range(1, 14), *range(15, 60, 5)])
def test_an_operation_of_the_beginning_fails(lab: Lab, nth: int, always: str) -> None:
    begun(lab, nth, always)
