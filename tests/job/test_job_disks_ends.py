"""Two runs on one machine that have changed the same file, and end or are killed one after the other."""

from __future__ import annotations

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
