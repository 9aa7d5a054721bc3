"""The machine of the one that counts hangs for so long that the filesystem gives its lock away, and comes back."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_job_ends
from lab import Lab, Tree, picture, wait_until
from machines import Machine, net
from ranks import RANK, Rank, end
from test_job import everything_back
from test_job_elsewhere import OnHub, hub
from test_job_ends import Held, asked, index_of, three

pytest.importorskip("zmq")

from metamori.runtime.job import counter, folder, member
from metamori.store.read.store import Store

__all__ = ["hub", "net"]                   # pytest finds them here
BLOCK = 4096

LOSES = """
import fcntl
def loses():
    while not (where / "lose").exists():
        time.sleep(0.01)
    for each in threading.enumerate():
        if isinstance(each, counter.Counter):
            fcntl.flock(each.store._lock_fd, fcntl.LOCK_UN)
            (where / "lose.reached").touch()
threading.Thread(target=loses, daemon=True).start()
sys.exit(main())
"""


def taken(lab: Lab, seen: dict[int, Tree], seconds: float) -> bool:
    """A checkpoint, within that time."""
    limit = time.monotonic() + seconds
    while (done := lab.verb("checkpoint", code=None, cwd=lab.work)).returncode:
        assert "no checkpoint was taken" in done.stderr or "no answer from" in done.stderr, done.stderr
        if time.monotonic() > limit:
            return False
    seen[int(done.stdout)] = picture(lab.work)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("point", ["", "say cut", "say go", "fold", "commit"])
def test_it_counts_no_more(lab: Lab, monkeypatch: pytest.MonkeyPatch, point: str, dies: bool) -> None:
    """All checkpoints of the job were refused until its run ended, and it could write a record of its own."""
    monkeypatch.setattr(test_job_ends, "HELD", test_job_ends.HELD.replace("sys.exit(main())\n", LOSES))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks: list[Held] = three(lab, seen)
    one, program = ranks[0], ranks[0].program()
    verb = None
    if point:
        one.arm(point)
        verb = asked(lab)
        one.wait(point)
    one.arm("lose")
    one.wait("lose")
    for pid in (one.process.pid, program):
        os.kill(pid, signal.SIGSTOP)
    if dies:                               # the other that counts takes it in
        one.process.kill()
        os.kill(program, signal.SIGKILL)
        one.process.wait()
        ranks.remove(one)
    else:
        assert not taken(lab, seen, 1)
        for number, rank in enumerate(ranks[1:]):
            rank.do("write", "shared", 5000 * number, f"while {number}" * 1000)
        for pid in (program, one.process.pid):
            os.kill(pid, signal.SIGCONT)
        if point:
            one.go(point)
    if verb:
        verb.communicate(timeout=60)
    for step in range(2):
        for number, rank in enumerate(ranks):
            rank.do("append", "common", "after")
            rank.do("write", "shared", 5000 * number + 100, f"{step}{number}" * 1000)
        assert taken(lab, seen, 30)
    last = picture(lab.work)
    said = end(ranks)
    assert "Traceback" not in said and "lost" not in said, said
    seen[max(lab.messages())] = last
    everything_back(lab, seen)


ALL = r"""
import fcntl, os, sys, threading, time
def loses(told):
    while not os.path.exists(told):
        time.sleep(0.01)
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").endswith("/lock"):
                fcntl.flock(int(fd), fcntl.LOCK_UN)
        except OSError:
            continue
    os.unlink(told)
"""
ALL_HELD = ALL + r"""
threading.Thread(target=loses, args=(where / "lose",), daemon=True).start()
sys.exit(main())
"""
ALL += r"""
from metamori.cli.main import main
def hangs():
    loses(os.environ["LOSES"])
    os.kill(os.getpid(), 19)               # else it takes them again
threading.Thread(target=hangs, daemon=True).start()
sys.exit(main())
"""


def test_a_lost_lock_is_taken_again(tmp_path: Path) -> None:
    """Not another's, and not where the run was completed meanwhile: the others would wait for it."""
    mine, other = Store.create_or_open(str(tmp_path)), Store.open(str(tmp_path))
    os.mkdir(mine.layout.run_area)
    one = member.Member(str(tmp_path), "one", SimpleNamespace(store=mine), "job", print, None)  # type: ignore[arg-type]
    mine.lock()
    for _ in range(2):
        one._keep_lock()
        assert other.is_busy()
        fcntl.flock(mine._lock_fd, fcntl.LOCK_UN)
        assert not other.is_busy()
    other.lock()
    one._keep_lock()
    other.unlock()
    assert not other.is_busy()
    os.rmdir(mine.layout.run_area)
    one._keep_lock()
    assert not other.is_busy()


def test_a_lock_of_the_next_job_is_not_taken(tmp_path: Path) -> None:
    """Whose run has the same name, and was killed: it counted as alive, and could not be completed."""
    path = tmp_path / "one"
    mine = Store.create_or_open(str(path))
    one = member.Member(str(tmp_path), "one", SimpleNamespace(store=mine), "job", print, None)  # type: ignore[arg-type]
    mine.lock()
    shutil.rmtree(path)
    one._keep_lock()
    assert mine.is_locked                  # the job is over
    theirs = Store.create_or_open(str(path))
    os.mkdir(theirs.layout.run_area)
    one._keep_lock()
    assert not theirs.is_busy()


@pytest.mark.slow
def test_who_comes_back_in_time_has_them_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody had missed it. It was taken for dead by the next checkpoint that took long to write."""
    monkeypatch.setattr(test_job_ends, "HELD", test_job_ends.HELD.replace("sys.exit(main())\n", ALL_HELD))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks: list[Held] = three(lab, seen)
    for rank in ranks:
        rank.arm("lose")
    job = Store(str(lab.store))
    stores = [job, *(Store(job.layout.node(name)) for name in folder.names(job))]
    for rank in ranks:
        wait_until(lambda rank=rank: not (rank.holds / "lose").exists(), "its locks are lost")
    wait_until(lambda: all(store.is_busy() for store in stores), "they have them again")
    ranks[1].arm("write")
    verb = asked(lab)
    ranks[1].wait("write")
    time.sleep(5 * counter.DIED_S)
    ranks[1].go("write")
    seen[index_of(verb)] = picture(lab.work)
    end(ranks)
    everything_back(lab, seen)


class OnMachine(Rank):
    """That loses all its locks when there is a file `loses`, and stops."""

    def __init__(self, lab: Lab, machine: Machine, loses: str) -> None:
        words = Lab.argv(lab, "run", "--job")
        env = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"} | machine.env
        self.process = subprocess.Popen(
            [*machine.enter, "env", "-C", str(lab.work), f"LOSES={loses}", words[0], "-c", ALL, *words[3:], "--",
             words[0], "-c", RANK], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_it_is_taken_for_dead_and_comes_back(hub: OnHub, net: list[Machine], who: int) -> None:
    """The others complete it and go on; it says so, and is no part of the job any more. It had all checkpoints of the
    job refused. Of files that it alone wrote each index is right, up to then."""
    lab = hub
    loses = [lab.folder / f"loses.{number}" for number in range(2)]
    ranks = [OnMachine(lab, net[1 + number], str(loses[number])).ready() for number in range(2)]
    one, other = ranks[who], ranks[1 - who]
    seen: dict[int, Tree] = {0: picture(lab.work)}
    for text in ("first", "second"):
        for number, rank in enumerate(ranks):
            rank.do("append", f"own.{number}", text)
        assert text == "second" or taken(lab, seen, 20)
    loses[who].touch()
    wait_until(lambda: not loses[who].exists(), "its locks are lost")
    pids = one.process.pid, one.program()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert taken(lab, seen, 30)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "this run ends with 125" in one.heard(), "it says so")
    one.do("append", f"own.{who}", "unseen")
    for text in ("third", "last"):
        other.do("append", f"own.{1 - who}", text)
        assert taken(lab, seen, 30)
    assert "no checkpoint" not in other.end()
    assert "was removed while the command ran" in one.end() and one.process.returncode == 125
    for index, tree in seen.items():
        lab.restore(index, "--force")
        for number in range(2):
            if number != who or index < 3:
                assert lab.state().get(f"own.{number}") == tree.get(f"own.{number}"), (index, number)
    lab.verb("verify")


def test_what_needs_its_store_before_it_knows_goes_on(lab: Lab) -> None:
    """A truncation was refused: ENOENT."""
    (lab.work / "old").write_bytes(b"." * 3 * BLOCK)
    one = Rank(lab).ready()
    one.process.send_signal(signal.SIGSTOP)
    shutil.rmtree(next((lab.store / "nodes").glob("*/run")))
    for number in (2, 1):
        assert one.do("truncate", "old", number * BLOCK) is None
    assert one.do("write", "old", 0, "a") is None
    assert (lab.work / "old").read_bytes() == b"a" + b"." * (BLOCK - 1)
    one.process.send_signal(signal.SIGCONT)
    assert "nothing is recorded of this run" in one.end()


@pytest.mark.slow
def test_what_it_writes_then_is_lost_and_said(hub: OnHub, net: list[Machine]) -> None:
    """Nothing was said, and the indexes had its later bytes. Once its program has ended indexes are whole again."""
    lab = hub
    for name in ("own", "shared"):
        (lab.work / name).write_bytes(b"." * 20 * BLOCK)
    loses = lab.folder / "loses"
    one, other = (OnMachine(lab, net[1 + number], str(loses) if number == 0 else "").ready() for number in range(2))
    seen: dict[int, Tree] = {0: picture(lab.work)}
    for step in "ab":
        for at, rank in enumerate((one, other)):
            rank.do("write", "shared", 4 * at * BLOCK, step * BLOCK)
        one.do("write", "own", 0, step * BLOCK)
        assert step == "b" or taken(lab, seen, 20)
    loses.touch()
    wait_until(lambda: not loses.exists(), "its locks are lost")
    os.kill(one.program(), signal.SIGSTOP)
    assert taken(lab, seen, 30)
    os.kill(one.program(), signal.SIGCONT)
    one.do("write", "shared", 0, "c" * BLOCK)          # its run still believes to have saved what is there
    one.do("write", "shared", 12 * BLOCK, "c" * BLOCK)
    one.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "this run ends with 125" in one.heard(), "it says so")
    for step in "de":
        one.do("write", "own", ord(step) % 9 * BLOCK, step * BLOCK)
        other.do("write", "shared", 4 * BLOCK, step * BLOCK)
        assert taken(lab, seen, 30)
        one.do("write", "shared", 0, step * BLOCK)
    one.end()
    for step in "fg":
        other.do("write", "shared", 4 * BLOCK, step * BLOCK)
        assert taken(lab, seen, 30)
    assert "shared is lost for the checkpoints so far" in other.end()
    for index, tree in seen.items():
        done = lab.verb("restore", index, "--to", lab.folder / str(index), code=12 if index in (2, 3, 4) else 0)
        if done.returncode:
            assert "own, shared are lost" in done.stderr
        else:
            assert picture(lab.folder / str(index) / "work") == tree, index
