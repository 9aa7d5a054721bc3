"""A file that leaves the scope by a name that a job's runs know, is changed out there, and stays by one that none used.

Of a run alone: tests/scenarios/test_by_no_name_used.py."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from lab import Lab
from machines import net
from ranks import Rank, end
from test_job_disks import Disks, There, disks

pytest.importorskip("zmq")

__all__ = ["disks", "net"]                 # pytest finds them here

DATA = os.urandom(70000)


def by_the_inner_name(rank: Rank, inner: str, outer: str) -> None:
    rank.do("truncate", inner, 30000)
    rank.do("rename", inner, outer)


def by_the_outer_name(rank: Rank, inner: str, outer: str) -> None:
    rank.do("rename", inner, outer)
    rank.do("truncate", outer, 30000)


def by_a_descriptor(rank: Rank, inner: str, outer: str) -> None:
    """Which stays open: a checkpoint finds the file by that, out of the scope."""
    by_the_outer_name(rank, inner, outer)
    rank.do("write", outer, 0, DATA[:1].decode("latin1"))


HOW = [by_the_inner_name, by_the_outer_name, by_a_descriptor]
Leaves = Callable[[Rank, str, str], None]


def left(lab: Lab, want: dict[str, bytes], index: int) -> None:
    lab.restore(index)
    assert {path.name: path.read_bytes() for path in lab.work.iterdir() if path.is_file()} == want, f"at {index}"


@pytest.mark.in_turn("leaves")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "of an earlier index"])
@pytest.mark.parametrize("leaves", HOW)
def test_changed_and_moved_out(lab: Lab, leaves: Leaves, is_known: bool, count: int) -> None:
    """It came back as it was before the job, with status 0: the checkpoint had found neither a name nor a link."""
    (lab.folder / "out").mkdir()
    (lab.work / "used").write_bytes(DATA)
    os.link(lab.work / "used", lab.work / "other")
    both, second = {"used": DATA, "other": DATA}, {"other": DATA[:30000]}
    ranks = [Rank(lab).ready() for _ in range(count)]
    seen = [both]
    if is_known:
        ranks[0].do("write", "used", 5, DATA[5:6].decode("latin1"))
        ranks[0].do("close", "used")
        lab.verb("checkpoint", cwd=lab.work)
        seen.append(both)
    leaves(ranks[0], "used", "../out/used")
    for want in (second, {}):
        lab.verb("checkpoint", cwd=lab.work)
        seen.append(want)
        if want:
            ranks[-1].do("unlink", "other")
    ranks[0].do("truncate", "../out/used", 39000)
    assert end(ranks) == ""
    for index in (*range(len(seen)), *reversed(range(len(seen)))):
        left(lab, seen[index], index)
    lab.verb("verify")


def files(lab: Lab, index: int) -> list[dict[str, Any]]:
    """What a checkpoint says of them."""
    return [each for each in json.loads(lab.verb("show", str(index), "--json").stdout)["records"] if "count" in each]


MEETS = [sys.executable, "-c", "import os; os.unlink('other')"]


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "of an earlier index"])
def test_a_prune_before_anybody_meets_it(lab: Lab, is_known: bool) -> None:
    """What somebody changes out there afterwards is noticed: it is lost, and nothing else is made of it."""
    (lab.folder / "out").mkdir()
    (lab.work / "used").write_bytes(DATA)
    os.link(lab.work / "used", lab.work / "other")
    ranks = [Rank(lab).ready() for _ in range(2)]
    if is_known:
        ranks[1].do("chmod", "used", 0o600)
        ranks[0].do("write", "used", 5, DATA[5:6].decode("latin1"))
        lab.verb("checkpoint", cwd=lab.work)
    by_the_outer_name(ranks[0], "used", "../out/used")
    end(ranks)
    last = max(index["index"] for index in lab.log()["checkpoints"])
    lab.verb("prune", "--keep-last", "1")
    os.truncate(lab.folder / "out" / "used", 20000)
    del lab.env["METAMORI_TRACK"]
    assert lab.run(MEETS).returncode == 0
    assert "other is lost" in lab.restore(last, code=12).stderr


@pytest.mark.in_turn("leaves")
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "of an earlier index"])
@pytest.mark.parametrize("leaves", HOW)
def test_changed_and_moved_out_on_a_disk_of_its_own(disks: Disks, leaves: Leaves, is_known: bool) -> None:
    """The store can have no link of it: what it was at the checkpoint is lost, or right."""
    own = disks.disk(disks.net[1])
    (own / "out").mkdir()
    (own / "used").write_bytes(DATA)
    os.link(own / "used", own / "other")
    rank = There(disks, disks.net[1], "--exclude", "own/out").ready()
    if is_known:
        rank.do("write", "own/used", 5, DATA[5:6].decode("latin1"))
        rank.do("close", "own/used")
        disks.checkpoint()
    leaves(rank, "own/used", "own/out/used")
    taken = disks.checkpoint()
    rank.do("unlink", "own/other")
    disks.checkpoint()
    rank.do("truncate", "own/out/used", 39000)
    end([rank])
    done = disks.do(disks.net[1], "restore", taken, code=None)
    if done.returncode != 12:
        assert (done.returncode, (own / "other").read_bytes()) == (0, DATA[:30000]), done.stderr
        assert not (own / "used").exists()
    disks.do(disks.net[1], "restore", taken - 1)
    assert (own / "other").read_bytes() == (own / "used").read_bytes() == DATA
    disks.do(disks.net[1], "verify", code=done.returncode)


def test_a_file_that_one_has_open_and_another_has_moved_out_is_open_once(lab: Lab) -> None:
    """Its descriptors were counted twice."""
    (lab.folder / "out").mkdir()
    for name in "ab":
        (lab.work / name).write_bytes(DATA)
    ranks = [Rank(lab).ready() for _ in range(2)]
    for number, name in enumerate("ab"):   # whoever comes first in the record
        ranks[number].do("write", name, 0, "open")
        ranks[1 - number].do("rename", name, f"../out/{name}")
    lab.verb("checkpoint", cwd=lab.work)
    assert end(ranks) == ""
    assert [pif["count"] for pif in files(lab, 1)] == [1, 1]
