"""A machine's own disk, and what is done where nobody sees it: a prune, a refused checkpoint, a completion."""

from __future__ import annotations

import pytest
from machines import net
from ranks import end
from test_job_disks import Disks, There, disks, everything_back, kill_all, old_files, step

from metamori.runtime.job import finish, folder
from metamori.store.read.store import Store

__all__ = ["disks", "net"]                 # pytest finds them here


def test_a_prune_while_it_is_left(disks: Disks) -> None:
    """All indexes that were there when its machine went down are gone: the others have grown from what it left."""
    old_files(disks)
    n1, n2 = disks.net[1:]
    ranks = disks.ranks()
    step(ranks, 0)
    disks.checkpoint()
    step(ranks, 1)
    for one in (n1, n2):
        kill_all(one)
    disks.do(n1, "log")
    killed = disks.own(n2)
    rank = There(disks, n1).ready()
    rank.do("append", "common", "two\n")
    seen = {disks.checkpoint(): disks.all()}
    rank.do("append", "common", "three\n")
    end([rank])
    seen[max(disks.there())] = disks.all()
    disks.do(disks.net[0], "prune", "--keep-last", 2)
    late = There(disks, n2).ready()
    now = disks.own(n2)
    end([late])
    assert now == killed
    everything_back(disks, seen)


def test_a_refused_checkpoint_has_its_number_again(disks: Disks) -> None:
    """Nothing had changed on the disk at the first try; at the second something has."""
    old_files(disks)
    n1, n2 = disks.net[1:]
    ranks = disks.ranks()
    step(ranks, 0)
    disks.checkpoint()
    end(ranks)
    (disks.disk(n1) / "log").write_text("somebody's")
    counts, one = There(disks, n2).ready(), There(disks, n1).ready()
    one.do("append", "common", "x\n")
    new = max(disks.there()) + 1
    in_the_way = disks.store / "nodes" / "folded" / str(new)
    in_the_way.mkdir(parents=True)
    disks.do(disks.net[0], "checkpoint", code=1)
    in_the_way.rmdir()
    one.do("append", "own/log", "of the job")
    seen = {disks.checkpoint(): disks.all()}
    assert new in seen
    one.do("append", "own/log", "more")
    end([counts, one])
    for index, want in seen.items():
        disks.do(n1, "restore", index)
        disks.assert_all(want, f"restore {index}")


@pytest.mark.in_turn("goes_on", 2)
@pytest.mark.parametrize("goes_on", [False, True])
def test_who_completes_a_run_elsewhere_dies_before_the_checkpoint(disks: Disks, goes_on: bool) -> None:
    """The machine is back by then: what it has completed is not folded again, as it looked from elsewhere."""
    old_files(disks)
    seen = {0: disks.all()}
    n1, n2 = disks.net[1:]
    first, counts, killed = There(disks, n2).ready(), There(disks, n2).ready(), There(disks, n1).ready()
    step([counts, killed], 0)
    seen[disks.checkpoint()] = disks.all()
    killed.do("unlink", "own/over")
    killed.do("truncate", "own/log", 3)
    killed.do("anew", "own/over", "x" * 7000)
    killed.do("anew", "own/more", "y" * 7000)
    killed.do("rename", "own/name.0", "own/moved")
    killed.do("mkdir", "own/folder")
    killed.do("anew", "own/folder/in", "z" * 7000)
    killed.do("append", "own/log", "k")
    killed.kill()
    store = Store.open(str(disks.store))
    name, = (name for name in folder.names(store) if name.startswith(b"n1"))
    finish.complete_run(store, name)       # as who counts does
    first.kill()
    late = There(disks, n1).ready()
    if goes_on:
        late.do("write", "own/over", 100, "late")
        late.do("unlink", "own/more")
    for number in (3, 4):
        if goes_on:
            step([counts, late], number)
        else:
            late.do("append", "common", "x")
        seen[disks.checkpoint()] = disks.all()
    end([counts, late])
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)
