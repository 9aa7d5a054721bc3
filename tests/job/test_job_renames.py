"""Runs of a job that rename, keep and write the same files: each index is right, whoever ends or is killed first."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from lab import Lab
from ranks import Rank, end
from test_job_model import back, checkpoint, seen_in

from metamori.store.io.os_io import REAL

pytest.importorskip("zmq")


def ends_right(lab: Lab, ranks: list[Rank], seen: dict[int, Any]) -> None:
    end(ranks)
    for index, tree in seen.items():
        lab.restore(index)
        lab.assert_state(tree, f"restore {index}")
    lab.verb("verify")


class Play:
    """A file that the first run has open for writing; the second renames it over another, the third does nothing."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        for name in "ab":
            (lab.work / name).write_bytes(os.urandom(10000))
        self.seen = {0: seen_in(lab.work)}
        self.ranks = [rank.ready() for rank in [Rank(lab) for _ in range(3)]]
        self.write(4096)

    def write(self, at: int) -> None:
        self.ranks[0].do("write", "b", at, "c" * 50)       # by the descriptor that it has

    def rename(self) -> None:
        self.ranks[1].do("rename", "b", "a")

    def checkpoint(self) -> None:
        checkpoint(self.lab, self.seen)

    def end(self, *which: int) -> None:
        end([self.ranks[i] for i in which])

    def kill(self, *which: int) -> None:
        for i in which:
            self.ranks[i].kill()


def checkpoint_before(play: Play) -> None:
    play.checkpoint()
    play.rename()
    play.write(20000)
    play.end(0, 1, 2)


def checkpoint_between(play: Play) -> None:
    play.rename()
    play.checkpoint()
    play.write(20000)
    play.end(0, 1, 2)


def checkpoint_after(play: Play) -> None:
    play.rename()
    play.write(20000)
    play.checkpoint()
    play.end(0, 1, 2)


def closed(play: Play) -> None:
    play.rename()
    play.write(20000)
    play.ranks[0].do("close", "b")
    play.end(0, 1, 2)


def who_renames_ends_first(play: Play) -> None:
    play.rename()
    play.end(1)
    play.write(20000)
    play.end(0)
    play.checkpoint()
    play.end(2)


def who_writes_ends_first(play: Play) -> None:
    play.rename()
    play.write(20000)
    play.end(0)
    play.checkpoint()
    play.end(1, 2)


def who_renames_is_killed(play: Play) -> None:
    play.rename()
    play.kill(1)
    play.write(20000)
    play.checkpoint()
    play.end(0, 2)


def both_are_killed(play: Play) -> None:
    play.rename()
    play.kill(1)
    play.write(20000)
    play.kill(0)
    play.checkpoint()
    play.end(2)


def all_are_killed(play: Play) -> None:
    play.rename()
    play.write(20000)
    play.kill(0, 1, 2)


@pytest.mark.in_turn("what", 2)
@pytest.mark.parametrize("what", [
    checkpoint_before, checkpoint_between, checkpoint_after, closed, who_renames_ends_first, who_writes_ends_first,
    who_renames_is_killed, both_are_killed, all_are_killed])
def test_renamed_while_another_has_it_open(lab: Lab, what: Callable[[Play], None]) -> None:
    play = Play(lab)
    what(play)
    play.seen[max(index["index"] for index in lab.log()["checkpoints"])] = seen_in(lab.work)
    back(lab, what.__name__, 0, play.seen)


def test_who_keeps_a_file_is_killed_while_another_has_it_open(lab: Lab) -> None:
    """Seed 1011: what the first keeps is the only copy when the other ends, whose records do not know of it."""
    (lab.work / "b").write_bytes(os.urandom(10000))
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(2)]]
    ranks[0].do("write", "b", 3, "e")
    ranks[1].do("unlink", "b")
    ranks.pop().kill()
    checkpoint(lab, seen)
    ranks[0].do("write", "b", 5000, "later")
    checkpoint(lab, seen)
    end(ranks)
    back(lab, "the other has ended", 0, seen)


@pytest.mark.parametrize("change", [("write", "b", 0, "later"), ("truncate", "b", 7)])
def test_a_file_comes_back_that_another_run_has_renamed(lab: Lab, change: tuple[object, ...]) -> None:
    """Seeds 2024 and 2080: the first run does not find it at a checkpoint, and then opens it by its new name."""
    (lab.work / "a").write_bytes(os.urandom(10000))
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(2)]]
    ranks[0].do("append", "a", "x")
    ranks[1].do("rename", "a", "b")
    checkpoint(lab, seen)
    ranks[0].do(*change)
    checkpoint(lab, seen)
    end(ranks)
    back(lab, "renamed by another", 0, seen)


def test_a_file_goes_whose_name_another_run_has_given_to_another(lab: Lab) -> None:
    """Seed 4018: the run had last seen it by that other name, so what it kept counted as one name too many."""
    (lab.work / "a").write_bytes(os.urandom(10000))
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(2)]]
    ranks[0].do("rename", "a", "b")
    checkpoint(lab, seen)
    ranks[1].do("rename", "b", "a")
    ranks[1].do("write", "b", 0, "other")
    checkpoint(lab, seen)
    ranks[0].do("unlink", "a")
    end(ranks)
    back(lab, "gone", 0, seen)


def test_the_first_mode_counts_where_a_file_took_anothers_name(lab: Lab) -> None:
    """Seed 3038: the last run noted the name long before it found this file by it."""
    for name in ("a", "c"):
        (lab.work / name).write_bytes(os.urandom(10000))
        (lab.work / name).chmod(0o644)
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(3)]]
    ranks[2].do("anew", "c", "other")
    ranks[1].do("chmod", "a", 0o755)
    ranks[0].do("rename", "a", "c")
    checkpoint(lab, seen)
    end(ranks)
    back(lab, "another mode", 0, seen)


def test_who_comes_to_a_file_that_grew_under_another_name(lab: Lab) -> None:
    """Seed 5012: at the second checkpoint the first run does not know where the file is, and it is not at it."""
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(2)]]
    seen = {0: seen_in(lab.work)}
    ranks[0].do("anew", "a", "short")
    checkpoint(lab, seen)
    ranks[1].do("write", "a", 9000, "longer by now")
    ranks[1].do("rename", "a", "b")
    checkpoint(lab, seen)
    ranks[0].do("write", "b", 9000, "once more")
    end(ranks)
    seen[max(index["index"] for index in lab.log()["checkpoints"])] = seen_in(lab.work)
    back(lab, "it grew", 0, seen)


@pytest.mark.parametrize("how", [Rank.end, Rank.kill])
def test_a_file_grows_by_a_name_that_its_keeper_did_not_know(lab: Lab, how: Callable[[Rank], object]) -> None:
    """What the run that keeps it says of its size is older."""
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(3)]]
    ranks[0].do("append", "name", "one")
    checkpoint(lab, seen)
    ranks[1].do("link", "name", "other")
    ranks[0].do("unlink", "name")
    how(ranks.pop(0))
    for text in ("more" * 1000, "later"):
        ranks[0].do("append", "other", text)
        checkpoint(lab, seen)
    ends_right(lab, ranks, seen)


def test_a_number_is_given_again(lab: Lab) -> None:
    """A run has used a file that another one removed, and then made anew: the filesystem gives its number again. Who
    made it ends last: what it says then is taken for the other one's file, where the number alone counts."""
    seen = {0: seen_in(lab.work)}
    ranks = [rank.ready() for rank in [Rank(lab) for _ in range(2)]]
    comes = os.fsencode(lab.work / "comes")
    for _ in range(50):                        # who else works on this filesystem may be given the number
        for rank in ranks:
            rank.do("append", "comes", "first")
        number, born = os.stat(comes).st_ino, REAL.birth_ns(comes)
        while REAL.birth_ns(comes) == born:    # the clock has steps
            ranks[0].do("unlink", "comes")     # no index knows it: it is kept nowhere
            ranks[0].do("append", "comes", "again")
        if os.stat(comes).st_ino == number:
            break
    else:
        pytest.skip("this filesystem gives other numbers")
    checkpoint(lab, seen)
    assert ranks.pop().end() == ""
    ends_right(lab, ranks, seen)
