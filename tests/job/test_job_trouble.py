"""The filesystem that a job shares is full, the one that counts stands still, another job wants the store: what is
refused is said, the programs go on, and no index is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import killing
import pytest
from conftest import Compile
from disks import MB, NoMount, fill, mounted
from lab import Lab, Tree, picture, wait_until
from ranks import Rank, checkpoint, end, job
from test_job import counter, everything_back

pytest.importorskip("zmq")

from metamori.runtime.job.counter import WRITE_S


@pytest.fixture(params=["ext4", "tmpfs"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    try:
        with mounted(tmp_path, request.param, 48) as disk:
            (disk / "lab").mkdir()
            yield Lab(disk / "lab", tmp_path)
    except NoMount as why:
        pytest.skip(str(why))


def test_the_shared_filesystem_is_full(small: Lab) -> None:
    random_ = random.Random(3)
    (small.work / "shared").write_bytes(b"." * MB)
    seen: dict[int, Tree] = {0: picture(small.work)}
    ranks = job(small, 3)
    for rank in ranks:
        rank.do("write", "shared", 1000, "first")
    checkpoint(small, seen)
    refused = 0
    for leave in (0, 4096, 20000, 60000, 150000):
        filler = fill(small.folder, leave)
        for number, rank in enumerate(ranks):
            for _ in range(20):
                rank.do("write", "shared", random_.randrange(MB), "abc" * random_.randrange(1000))
            rank.do("append", f"own.{number}", "more" * 100)
            rank.do("anew", f"new.{number}", "again" * 100)
        done = small.verb("checkpoint", code=None, cwd=small.work)
        now = picture(small.work)
        assert done.returncode in (0, 1), done.stderr
        if done.returncode:
            refused += 1
            assert "no checkpoint was taken" in done.stderr and "No space left" in done.stderr, done.stderr
        else:
            seen[int(done.stdout)] = now
        filler.unlink()
        checkpoint(small, seen)
    assert refused
    said = end(ranks)
    assert "Traceback" not in said
    everything_back(small, seen)


def test_who_counts_is_killed_while_the_filesystem_is_full(small: Lab) -> None:
    """Who was next had the job's lock from then on, and could not count: no checkpoint came any more."""
    seen: dict[int, Tree] = {0: picture(small.work)}
    ranks = job(small, 3)
    for number, rank in enumerate(ranks):
        rank.do("write", "shared", 5000 * number, "first" * 1000)
    checkpoint(small, seen)
    first = counter(small, ranks)
    ranks.remove(first)
    fill(small.folder)
    first.kill()
    filler = fill(small.folder)            # what it had held
    wait_until(lambda: any("cannot go on: " in rank.heard() for rank in ranks), "the next one says so")
    filler.unlink()
    wait_until(lambda: small.verb("checkpoint", code=None, cwd=small.work).returncode == 0, "a checkpoint, with room")
    seen[max(entry["index"] for entry in small.log()["checkpoints"])] = picture(small.work)
    said = end(ranks)
    assert "the job's checkpoints cannot go on: " in said and "No space left" in said, said
    assert said.count("the job's checkpoints cannot go on: ") <= len(ranks) and "Traceback" not in said, said
    everything_back(small, seen)


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["300k", "3M"])
def test_the_shared_filesystem_is_slow(tmp_path: Path, compiled: Compile, installed: None, rate: str) -> None:
    """A FUSE filesystem that takes so many bytes a second: each checkpoint comes, or a message, in time."""
    if os.getuid() or not shutil.which("bindfs"):
        pytest.skip("needs root and bindfs (apt-get install bindfs)")
    below, disk = tmp_path / "below", tmp_path / "disk"
    for folder in (below / "lab", disk):
        folder.mkdir(parents=True)
    subprocess.run(["bindfs", f"--write-rate={rate}", below, disk], check=True)
    try:
        lab = Lab(disk / "lab", compiled("driver"))
        seen: dict[int, Tree] = {0: picture(lab.work)}
        ranks = job(lab, 3)
        for step in range(4):
            for number, rank in enumerate(ranks):
                rank.do("append", f"own.{number}", f"{step}" * 20_000)
                rank.do("write", "shared", 3000 * number, f"{step}" * 3000)
            began = time.monotonic()
            done = lab.verb("checkpoint", code=None, cwd=lab.work)
            assert time.monotonic() - began < WRITE_S, done
            if done.returncode:
                assert "no checkpoint was taken" in done.stderr, done.stderr
            else:
                seen[int(done.stdout)] = picture(lab.work)
        now = picture(lab.work)
        end(ranks)
        seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = now
        everything_back(lab, seen)
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def test_the_filesystem_is_full_when_the_job_ends(small: Lab) -> None:
    """Each run has held room for its records from its beginning."""
    seen: dict[int, Tree] = {0: picture(small.work)}
    ranks = job(small, 3)
    for number, rank in enumerate(ranks):
        rank.do("write", "shared", 5000 * number, "first" * 1000)
    last = checkpoint(small, seen)
    for number, rank in enumerate(ranks):
        rank.do("write", "shared", 5000 * number, "other" * 900)
    seen[last + 1] = picture(small.work)
    filler = fill(small.folder)
    assert end(ranks) == ""
    filler.unlink()
    everything_back(small, seen)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(5, 60, 11))
def test_the_one_that_counts_stops_amid_a_checkpoint(lab: Lab, nth: int) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    orders = [lab.folder / f"order.{number}" for number in range(3)]
    ranks = [Rank(lab, order=order).ready() for order in orders]
    for number, rank in enumerate(ranks):
        rank.do("append", "common", f"{number}")
    checkpoint(lab, seen)
    one = counter(lab, ranks)
    others = [rank for rank in ranks if rank is not one]
    for rank in ranks:
        rank.do("append", "common", "more")
    now = picture(lab.work)
    killing.order(orders[ranks.index(one)], nth, signal.SIGSTOP)
    began = time.monotonic()
    with subprocess.Popen(lab.argv("checkpoint"), env=lab.env, cwd=lab.work, stderr=subprocess.PIPE, text=True) as verb:
        wait_until(lambda: " T " in Path(f"/proc/{one.process.pid}/stat").read_text(), "it stops")
        for rank in others:                # frozen they may be, for some seconds
            rank.do("append", "other", "goes on")
        assert time.monotonic() - began < 20
        if verb.wait(60):                  # else it stopped when all was done
            assert verb.stderr and "no answer from the run that counts" in verb.stderr.read()
    there = set(os.listdir(lab.store / "checkpoints"))
    one.process.send_signal(signal.SIGCONT)
    wait_until(lambda: lab.verb("checkpoint", code=None, cwd=lab.work).returncode == 0, "a checkpoint once it goes on")
    assert there <= set(os.listdir(lab.store / "checkpoints"))
    indexes = [entry["index"] for entry in lab.log()["checkpoints"]]
    seen[max(indexes)] = picture(lab.work)
    if max(indexes) == 3:                  # that one came to be, as it was
        seen[2] = now
    end(ranks)
    everything_back(lab, seen)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(2, 14, 3))
def test_a_run_stops_amid_its_record(lab: Lab, nth: int) -> None:
    """It is not waited for as long as for one whose disk is slow, which says each second that it lives."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    orders = [lab.folder / f"order.{number}" for number in range(3)]
    ranks = [Rank(lab, order=order).ready() for order in orders]
    for rank in ranks:
        rank.do("append", "common", "one")
    checkpoint(lab, seen)
    for rank in ranks:
        rank.do("append", "common", "more")
    stops = next(rank for rank in ranks if rank is not counter(lab, ranks))
    killing.order(orders[ranks.index(stops)], nth, signal.SIGSTOP)
    began = time.monotonic()
    done = lab.verb("checkpoint", code=None, cwd=lab.work)
    assert time.monotonic() - began < WRITE_S / 2
    if done.returncode:
        assert "no answer from" in done.stderr, done.stderr
    else:                                  # it stopped later
        seen[int(done.stdout)] = picture(lab.work)
    for rank in ranks:
        if rank is not stops:
            rank.do("append", "other", "goes on")
    killing.order(orders[ranks.index(stops)], killing.NEVER)
    stops.process.send_signal(signal.SIGCONT)
    wait_until(lambda: lab.verb("checkpoint", code=None, cwd=lab.work).returncode == 0, "a checkpoint once it goes on")
    seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = picture(lab.work)
    end(ranks)
    everything_back(lab, seen)


def test_two_jobs_with_one_store(lab: Lab) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab, 2, "one")
    for rank in ranks:
        rank.do("append", "file", "one")
    checkpoint(lab, seen)
    other = Rank(lab, "two")
    other.process.wait()
    assert other.process.returncode == 125
    assert other.process.stderr and "is in use by job one" in other.process.stderr.read()
    for rank in ranks:
        rank.do("append", "file", "more")
    checkpoint(lab, seen)
    end(ranks)
    ranks = job(lab, 2, "two")             # after it
    ranks[0].do("append", "file", "two")
    seen[3] = seen[2]
    checkpoint(lab, seen)
    end(ranks)
    everything_back(lab, seen)


@pytest.mark.slow
def test_two_jobs_begin_at_once_with_one_store(lab: Lab) -> None:
    """One of them is there with all its runs, the runs of the other get 125."""
    for turn in range(4):
        begun = {name: [Rank(lab, name) for _ in range(2)] for name in ("one", "two")}
        ready = {name: [rank.process.stdout.readline() for rank in ranks if rank.process.stdout]
                 for name, ranks in begun.items()}
        there = [name for name, lines in ready.items() if lines == ["ready\n"] * 2]
        assert len(there) == 1, (turn, ready)
        for name, ranks in begun.items():
            if name not in there:
                assert [rank.process.wait() for rank in ranks] == [125] * 2, ready
                assert all(f"is in use by job {there[0]}" in rank.end() for rank in ranks)
        for rank in begun[there[0]]:
            rank.do("append", "file", f"{turn}")
        checkpoint(lab, {})
        assert end(begun[there[0]]) == ""
    assert (lab.work / "file").read_text() == "00112233"
    lab.verb("verify")


FIRST_FAILS = """
import os, sys, time
from metamori.cli.main import main
from metamori.errors import MetamoriError
from metamori.runtime.job import start
bring = start._bring_disk
def fails(path, place):
    open("first", "x").close()
    while not os.path.exists("fail"):
        time.sleep(0.01)
    raise MetamoriError("it cannot begin")
def waits(path, place):
    bring(path, place)
    open("second", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
start._bring_disk = {"fails": fails, "waits": waits}[os.environ["HOW"]]
sys.exit(main())
"""


@pytest.mark.parametrize("order", [("fail", "go"), ("go", "fail")])
def test_the_first_cannot_begin(lab: Lab, order: tuple[str, str]) -> None:
    """It says why, and whoever joined it meanwhile is a job by itself."""
    words = lab.argv("run", "--job")
    line = [words[0], "-c", FIRST_FAILS, *words[3:]]
    begun = []
    for how, mark in (("fails", "first"), ("waits", "second")):
        begun.append(subprocess.Popen([*line, "--", "sh", "-c", "echo there; read x"], cwd=lab.work, text=True,
                                      env=lab.env | {"HOW": how}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE))
        wait_until((lab.work / mark).exists, how)
    first, second = begun
    for what in order:
        (lab.work / what).touch()
        if what == "fail":
            _, said = first.communicate(timeout=60)
            assert (first.returncode, said) == (125, "metamori: it cannot begin\n")
        else:
            wait_until(lambda: any((lab.store / "nodes").glob("*/format")) or order[0] == "fail", "it joins")
    assert second.stdout and second.stdout.readline() == "there\n", second.stderr and second.stderr.read()
    assert lab.verb("checkpoint", cwd=lab.work).stdout == "1\n"
    _, said = second.communicate("\n", timeout=60)
    assert (second.returncode, said) == (0, "")
