"""Files on machines' own disks where runs are killed and their job goes on: who completes them sees that disk."""

from __future__ import annotations

import os

import pytest
from lab import Tree
from machines import net
from ranks import end
from test_job_disks import Disks, There, disks, everything_back, kill_all, old_files, step

from metamori.runtime.job import disks as of_job
from metamori.runtime.job import folder
from metamori.store.read.store import Store

__all__ = ["disks", "net"]                 # pytest finds them here


def test_a_run_is_killed_beside_another_of_its_machine(disks: Disks) -> None:
    """The one that counts sees another disk: who lives completes it, and the index has both."""
    old_files(disks)
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    counts, killed, lives = [There(disks, one).ready() for one in (n2, n1, n1)]
    for number in range(3):
        for rank in (killed, lives) if number < 2 else (lives,):
            rank.do("append", "own/log", f"{number}\n")
            rank.do("anew", f"own/of.{number}", "x" * 5000)
            rank.do("write", "own/over", 3000 * number, f"{number}" * 4000)
        if number == 1:
            killed.kill()
            lives.do("append", f"own/of.{number}", "later")
        seen[disks.checkpoint()] = disks.all()
    for rank in (counts, lives):
        rank.ask("exit", "0")
    said = [rank.end() for rank in (counts, lives)]
    assert "the machine went down" not in "".join(said)
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


@pytest.mark.in_turn("between", 2)
@pytest.mark.parametrize("between", [False, True])
def test_a_machine_comes_back_while_the_job_goes_on(disks: Disks, between: bool) -> None:
    """between: there was a checkpoint without it, which has its disk as of the last before."""
    old_files(disks)
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    counts, killed = There(disks, n2).ready(), There(disks, n1).ready()
    step([counts, killed], 0)
    seen[disks.checkpoint()] = disks.all()
    step([counts, killed], 1)
    killed.kill()
    step([counts], 2)
    if between:
        disks.checkpoint()
    late = There(disks, n1).ready()
    for number in (3, 4):
        step([counts, late], number)
        seen[disks.checkpoint()] = disks.all()
    end([counts, late])
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


@pytest.mark.in_turn("where", 3)
@pytest.mark.parametrize("where", range(3))
def test_a_file_that_another_machines_run_removed_last(disks: Disks, where: int) -> None:
    """Both are killed: who completes the first does not find it, and the second has kept it."""
    (disks.work / "file").write_text("old")
    seen = {0: disks.all()}
    first, second = (There(disks, one).ready() for one in disks.net[1:])
    first.do("append", "file", "more")
    seen[disks.checkpoint()] = disks.all()
    second.do("unlink", "file")
    for one in disks.net[1:]:
        kill_all(one)
    said = disks.do(disks.net[where], "log").stderr
    assert "not found again" not in said and "lost" not in said
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


def removed_by_one_that_ends(disks: Disks, ended: There) -> dict[int, dict[str, Tree]]:
    """After the checkpoint that has them, and before any other; what was seen."""
    (disks.work / "shared").write_text("old")
    seen = {0: disks.all()}
    for name in ("own/gone", "own/replaced", "gone"):
        ended.do("anew", name, f"{name} " * 1000)
    seen[disks.checkpoint()] = disks.all()
    ended.do("anew", "own/new", "new")
    ended.do("rename", "own/new", "own/replaced")
    for name in ("own/gone", "own/over", "gone", "shared"):
        ended.do("unlink", name)
    ended.ask("exit", "0")
    ended.end()
    return seen


@pytest.mark.in_turn("where", 3)
@pytest.mark.parametrize("where", range(3))
def test_a_run_has_ended_where_the_last_is_killed(disks: Disks, where: int) -> None:
    """What only the ended one's store keeps is there for the older index, wherever they are completed."""
    old_files(disks)
    n1 = disks.net[1]
    ended, killed = There(disks, n1).ready(), There(disks, n1).ready()
    seen = removed_by_one_that_ends(disks, ended)
    killed.do("append", "own/log", "later")
    kill_all(n1)
    said = disks.do(disks.net[where], "log").stderr
    assert "lost" not in said
    disks.do(n1, "restore", max(disks.there()))
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


@pytest.mark.in_turn("between", 2)
@pytest.mark.parametrize("between", [False, True])
def test_a_run_has_ended_where_another_is_killed_and_the_job_goes_on(disks: Disks, between: bool) -> None:
    """between: there was a checkpoint while nobody was on their machine."""
    old_files(disks)
    n1, n2 = disks.net[1:]
    counts, ended, killed = (There(disks, one).ready() for one in (n2, n1, n1))
    seen = removed_by_one_that_ends(disks, ended)
    killed.do("append", "own/log", "later")
    killed.kill()
    if between:
        counts.do("append", "common", "alone")
        disks.checkpoint()
    late = There(disks, n1).ready()
    late.do("append", "own/log", "late")
    seen[disks.checkpoint()] = disks.all()
    late.do("append", "own/log", "last")
    end([counts, late])
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


def test_the_killed_ones_store_does_not_fit_where_it_is_left(disks: Disks) -> None:
    """The checkpoint is refused with the reason, the job goes on, and the next has everything."""
    old_files(disks)
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    counts, killed = There(disks, n2).ready(), There(disks, n1).ready()
    step([counts, killed], 0)
    seen[disks.checkpoint()] = disks.all()
    step([counts, killed], 1)
    killed.kill()
    left = disks.store / "disks" / "n1" / "left"
    left.mkdir(exist_ok=True)
    n2.do("mount", "-t", "tmpfs", "-o", "size=64k", "small", left)
    try:
        refused = disks.do(disks.net[0], "checkpoint", code=None)
        assert refused.returncode and "No space left on device" in refused.stderr, refused.stderr
    finally:
        n2.do("umount", left)
    step([counts], 2)
    disks.checkpoint()
    late = There(disks, n1).ready()
    for number in (3, 4):
        step([counts, late], number)
        seen[disks.checkpoint()] = disks.all()
    end([counts, late])
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


def test_who_completes_a_run_elsewhere_has_another_file_at_that_path(disks: Disks) -> None:
    """Nor does an earlier look at the right one count once more, which would be an outside change."""
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    counts = There(disks, n1).ready()
    counts.do("anew", "own/file", "of n1")
    for number in range(3):
        rank = There(disks, n2).ready()
        name = "own/file" if number < 2 else "own/other"
        rank.do("append", name, f"of n2, {number}")
        rank.do("chmod", name, 0o600 + 4 * number)
        seen[disks.checkpoint()] = disks.all()
        counts.do("append", "own/file", f"of n1, {number}")
        if number < 2:
            rank.kill()
        if number == 1:                    # else the next is there when it is completed
            disks.checkpoint()
    for one in (n1, n2):
        kill_all(one)
    disks.do(disks.net[0], "log")
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


@pytest.mark.in_turn("marked", 2)
@pytest.mark.parametrize("marked", [False, True])
def test_who_completes_a_run_elsewhere_dies_and_the_machine_comes_back(disks: Disks, marked: bool) -> None:
    """Its store lies with the disk already: what it did there counts once."""
    old_files(disks)
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    counts, killed = There(disks, n2).ready(), There(disks, n1).ready()
    step([counts, killed], 0)
    seen[disks.checkpoint()] = disks.all()
    killed.do("unlink", "own/over")
    killed.do("truncate", "own/log", 3)
    killed.do("anew", "own/over", "x" * 7000)
    killed.do("anew", "own/more", "y" * 7000)
    killed.kill()
    store = Store.open(str(disks.store))
    name, = (name for name in folder.names(store) if name.startswith(b"n1"))
    of_job.leave_behind(store, name)       # as who counts does first, and gets no further
    mark = disks.store / os.fsdecode(os.path.relpath(store.layout.node(name), store.layout.root)) / "elsewhere"
    if not marked:
        mark.unlink()
    late = There(disks, n1).ready()
    late.do("write", "own/over", 100, "late")
    late.do("unlink", "own/more")
    for number in (3, 4):
        step([counts, late], number)
        seen[disks.checkpoint()] = disks.all()
    end([counts, late])
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)
