"""Runs whose machines' clocks are minutes apart: who has seen a file, or a name, last is no matter of clocks."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import checkpoint
from test_job import counter
from test_job_ends import Held, asked, finish, index_of

pytest.importorskip("zmq")

SKEWS = [(0, -600, 600), (0, 600, -600), (-600, 0, 600), (600, 0, -600)]


def begun(lab: Lab, seen: dict[int, Tree], skew: tuple[int, ...]) -> list[Any]:
    """The first counts."""
    ranks: list[Any] = [Held(lab, AHEAD=str(ahead)).ready() for ahead in skew]
    assert counter(lab, ranks) is ranks[0]
    for rank in ranks:
        for name in ("common", "gone", "comes"):
            rank.do("append", name, "begun")
    ranks[0].do("unlink", "comes")
    checkpoint(lab, seen)
    return ranks


def changes(rank: Any, text: str, is_last: bool) -> None:
    rank.do("append", "common", text)
    rank.do("append", "gone", text)
    rank.do("append", "comes", text)
    rank.do("unlink", "gone" if is_last else "comes")


@pytest.mark.in_turn("skew", 2)
@pytest.mark.parametrize("skew", SKEWS)
def test_who_is_frozen_last_still_writes(lab: Lab, skew: tuple[int, ...]) -> None:
    """The others are frozen by then: what they look at is no instant before he is."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = begun(lab, seen, skew)
    for rank in ranks:
        changes(rank, "before", False)
    ranks[2].arm("freeze")
    for rank in ranks[:2]:
        (rank.holds / "frozen").unlink()
    verb = asked(lab)
    ranks[2].wait("freeze")
    wait_until(lambda: all((rank.holds / "frozen").exists() for rank in ranks[:2]), "the others are frozen")
    changes(ranks[2], "late", True)
    ranks[2].go("freeze")
    assert index_of(verb) == 2
    finish(lab, ranks, seen)


@contextmanager
def locked(lab: Lab, is_locked: bool) -> Iterator[None]:
    """The order, by somebody who does not give it back in time."""
    with (lab.store / "nodes" / "order").open("ab") as order:
        if is_locked:
            fcntl.lockf(order, fcntl.LOCK_EX)
        yield


@pytest.mark.in_turn("skew")
@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("is_locked", [False, True])
@pytest.mark.parametrize("how", ["end", "kill"])
def test_two_have_left_before_the_next_checkpoint(lab: Lab, skew: tuple[int, ...], how: str, is_locked: bool) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = begun(lab, seen, skew)
    for one, is_last in ((ranks[1], False), (ranks[2], True)):
        changes(one, "own", is_last)
        with locked(lab, is_locked):
            assert one.end() == ""
    del ranks[1:]
    if how == "kill":
        ranks[0].kill()
        seen[2] = picture(lab.work)
        with locked(lab, is_locked):
            lab.verb("log")
    else:
        with locked(lab, is_locked):
            checkpoint(lab, seen)
    finish(lab, ranks if how == "end" else [], seen)


def test_a_power_cut_took_the_end_of_the_order(lab: Lab) -> None:
    """Who has ended has a place that is beyond the end of the file now; who was killed changed the files after it, and
    what completes it looks at them later still."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = begun(lab, seen, (0, 0, 0))
    changes(ranks[1], "ended", False)
    assert ranks.pop(1).end() == ""
    for rank in ranks:
        changes(rank, "killed later", rank is ranks[-1])
    for rank in ranks:
        rank.kill()
    seen[2] = picture(lab.work)
    (lab.store / "nodes" / "order").write_bytes(b"")
    lab.verb("log")
    finish(lab, [], seen)
