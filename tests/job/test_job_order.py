"""Runs whose clocks say nothing about which of them was first: the log of their order does (docs/adr/0060)."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from itertools import count

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import Rank, checkpoint, job
from stops import Stops
from test_job import everything_back

pytest.importorskip("zmq")

from metamori.runtime.area.run_area import Area
from metamori.runtime.job import clock, places
from metamori.store.io.os_io import Door
from metamori.store.read.store import Store
from metamori.tables.record import replace

HOUR = 3600 * 10**9
SIZE = 60_000


def in_doubt(lab: Lab) -> None:
    """Each of the runs, of which none lives, was on a machine of its own whose clock nobody could read to the hour."""
    store = Store.open(str(lab.store))
    for number, node in enumerate(sorted((lab.store / "nodes").glob("*/format"))):
        name = os.fsencode(node.parent.name)
        places.note(store, name, replace(places.read(store, name), boot=f"machine {number}"))
        path = bytes(node.parent / "clock")
        points = clock.Clock((at, shift, HOUR) for at, shift, _ in clock.read(Door(), path) or [(0, 0, 0)])
        points.write(Door(), path)


def over(lab: Lab, ranks: list[Rank], ends: int, seen: dict[int, Tree]) -> str:
    """So many end, the others are killed, and the next verb completes the job; what it says."""
    for rank in ranks[:ends]:
        assert rank.end() == ""
    for rank in ranks[ends:]:
        rank.kill()
    seen[max(seen) + 1] = picture(lab.work)
    in_doubt(lab)
    return lab.verb("log").stderr


def writes(rank: Rank, at: int, text: str) -> None:
    rank.do("write", "shared", at, text)


@pytest.mark.parametrize("ends", [0, 1, 2])
def test_bytes_of_one_block_and_the_same_bytes(lab: Lab, ends: int) -> None:
    (lab.work / "shared").write_bytes(os.urandom(SIZE))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 3)
    for number, rank in enumerate(ranks):
        writes(rank, 100 * number, f"before {number}")
    checkpoint(lab, seen)
    for number, rank in enumerate(ranks[::-1]):
        writes(rank, 1000 * number, "own" * 100)       # of one block
        writes(rank, 20_000, f"{number}" * 9000)       # the same
        writes(rank, SIZE - 50 * number, "beyond" * 20)
    over(lab, ranks, ends, seen)
    everything_back(lab, seen)


@pytest.mark.parametrize("ends", [0, 1])
def test_a_name_that_several_change(lab: Lab, ends: int) -> None:
    (lab.work / "name").write_text("old")
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 3)
    ranks[2].do("rename", "name", "other")
    ranks[0].do("anew", "name", "new")
    ranks[1].do("unlink", "name")
    ranks[0].do("symlink", "to", "name")
    over(lab, ranks, ends, seen)
    everything_back(lab, seen)


@pytest.mark.parametrize("ends", [0, 2])
@pytest.mark.parametrize("moved", [False, True], ids=["removed", "moved"])
def test_a_folder_that_another_took_away_is_made_again(lab: Lab, ends: int, moved: bool) -> None:
    """Who makes it has changed a name in it before: once that counted as one of the new folder."""
    (lab.work / "d").mkdir()
    (lab.work / "d" / "name").write_text("old")
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2)
    ranks[1].do("unlink", "d/name")
    if moved:
        ranks[0].do("rename", "d", "e")
    else:
        ranks[0].do("rmdir", "d")
    ranks[1].do("mkdir", "d")
    over(lab, ranks, ends, seen)
    everything_back(lab, seen)


@pytest.mark.parametrize("ends", [0, 2])
def test_files_of_which_nobody_knows_by_their_time_who_was_first(lab: Lab, ends: int) -> None:
    """It is later than now, as another machine's clock may have it, or a copy: who writes sets it back."""
    for name in "abc":
        (lab.work / name).write_bytes(os.urandom(10_000))
        os.utime(lab.work / name, (4e9, 4e9))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2)
    for one, other, name in ((*ranks, "a"), (*ranks[::-1], "b")):
        one.do("append", name, "one")
        other.do("append", name, "other")
    ranks[0].do("anew", "c", "new")
    ranks[1].do("chmod", "c", 0o600)
    over(lab, ranks, ends, seen)
    everything_back(lab, seen)


def test_a_file_of_which_neither_log_nor_clock_says_who_was_first(lab: Lab) -> None:
    """It is lost for what was before, and never another one."""
    for name in ("one's", "both"):
        (lab.work / name).write_bytes(os.urandom(10_000))
        os.utime(lab.work / name, (4e9, 4e9))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2)
    for rank in ranks:
        rank.do("append", "both", "more")
    ranks[0].do("append", "one's", "more")
    for rank in ranks:
        rank.kill()
    (lab.store / "nodes" / "order").write_bytes(b"")
    in_doubt(lab)
    lab.verb("log")
    assert "both" in lab.verb("restore", 0, code=12).stderr
    lab.verb("restore", "--force", 0, code=12)
    assert lab.state()["one's"] == seen[0]["one's"]


def test_one_stands_between_its_copy_and_its_line(lab: Lab) -> None:
    """The other is first then, though what it found is newer by no byte."""
    (lab.work / "shared").write_bytes(os.urandom(SIZE))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    stops = Stops(lab.folder / "stops")
    ranks = [Rank(lab).ready(), Rank(lab, env=stops.env).ready()]
    for number, rank in enumerate(ranks):
        writes(rank, 30_000 * number, "before")
    checkpoint(lab, seen)
    stops.arm("order.looked")
    ranks[1].ask("write", "shared", 100, "late" * 1000)
    stops.wait("order.looked")
    writes(ranks[0], 50, "first" * 1000)
    stops.go("order.looked")
    ranks[1].answer()
    over(lab, ranks, 0, seen)
    everything_back(lab, seen)


def test_who_does_not_get_the_lock_goes_on_without_a_line(lab: Lab) -> None:
    """Soon, and only once; what it saved is as much in doubt as the clocks are. One that dies has the lock no more."""
    (lab.work / "shared").write_bytes(os.urandom(SIZE))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    stops = Stops(lab.folder / "stops")
    ranks = [Rank(lab, "--durability", "process").ready(), Rank(lab, env=stops.env).ready()]
    for number, rank in enumerate(ranks):
        writes(rank, 30_000 * number, "before")
    checkpoint(lab, seen)
    stops.arm("order.written")
    ranks[1].ask("write", "shared", 100, "first" * 1000)
    stops.wait("order.written")
    lines, rests, began = lab.store / "nodes" / "order", set[int](), time.monotonic()
    before = lines.stat().st_size
    with ExitStack() as stack:
        areas = [stack.enter_context(closing(Area(str(node.parent)))) for node in lab.store.glob("nodes/*/run")]
        assert [area.head.order_again for area in areas] == [0, 0]
        for at in range(0, SIZE, 3000):
            writes(ranks[0], at, "late" * 100)
            rests.add(max(area.head.order_again for area in areas))    # set by each that has waited in vain
    assert 0 not in rests and len(rests) <= 1 + (time.monotonic() - began)      # it rests for a second
    assert lines.stat().st_size == before
    ranks[1].kill()
    numbers = count()

    def has_a_line() -> bool:
        ranks[0].do("write", f"other {next(numbers)}", 0, "with a line")
        return lines.stat().st_size > before

    wait_until(has_a_line, "a line")
    over(lab, ranks[:1], 0, seen)
    done = lab.verb("restore", 1, code=None)
    assert done.returncode in (0, 12), done.stderr
    if not done.returncode:
        lab.assert_state(seen[1], "restore 1")
