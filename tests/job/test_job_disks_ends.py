"""Two runs on one machine that have changed the same file, and end or are killed one after the other."""

from __future__ import annotations

import os

import pytest
from test_job_disks import Disks, There, disks, kill_all, net

__all__ = ["disks", "net"]                 # pytest finds them here


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("killed", [False, True])
def test_what_one_has_not_seen_another_has_written(disks: Disks, killed: bool, first: int) -> None:
    """That counts for the file, whichever of them is done with last."""
    (disks.disk(disks.net[1]) / "a").write_bytes(b"old" * 1000)
    seen = {0: disks.all()}
    ranks = [There(disks, disks.net[1]).ready() for _ in range(2)]
    looks, writes = ranks[::1 - 2 * first]
    assert "errno" in looks.do("link", "own/none", "own/a")    # it has met the file, no more
    writes.do("write", "own/a", 0, "new")
    seen[disks.checkpoint()] = disks.all()
    writes.do("write", "own/a", 5000, "more")
    if killed:
        kill_all(disks.net[1])
        disks.do(disks.net[1], "log")
    else:
        for rank in (writes, looks)[::1 - 2 * first]:
            rank.end()
    seen[max(disks.there())] = disks.all()
    for index in (0, 2, 1, 0):
        disks.do(disks.net[0], "restore", index)
        disks.pass_by()
        disks.assert_all(seen[index], f"restore {index} and runs")


@pytest.mark.parametrize("elsewhere, does", [(False, ("append", "own/y", "new")), (False, ("rename", "own/y", "own/z")),
                                             (True, ("unlink", "own/y")), (True, ("chmod", "own/y", 0o600))])
def test_what_another_did_by_another_name(disks: Disks, elsewhere: bool, does: tuple[object, ...]) -> None:
    """It is not modified outside for one that knew it by its first name, and had ended; wherever the job's end is."""
    one, two = disks.net[1:]
    (disks.disk(one) / "x").write_bytes(b"old" * 1000)
    os.link(disks.disk(one) / "x", disks.disk(one) / "y")
    seen = {0: disks.all()}
    last = [There(disks, two).ready()] if elsewhere else []
    ranks = [There(disks, one).ready(), There(disks, one).ready(), *last]
    ranks[0].do("append", "own/x", "more")
    ranks[0].end()
    assert ranks[1].do(*does) is None
    for rank in ranks[1:]:
        rank.end()
    seen[1] = disks.all()
    for index in (0, 1):
        disks.do(one, "restore", index)
        disks.assert_all(seen[index], f"restore {index}")


def test_what_somebody_did_after_a_job_is_modified_outside(disks: Disks) -> None:
    """Although the file has the size and the time that its last run has seen."""
    one = disks.net[1]
    rank = There(disks, one).ready()
    rank.do("append", "own/x", "bytes")
    rank.end()
    path = disks.disk(one) / "x"
    time_ns = path.stat().st_mtime_ns
    path.write_bytes(b"other")
    os.utime(path, ns=(time_ns, time_ns))
    assert "own/x: modified outside" in disks.do(one, "restore", 0, code=14).stderr
