"""Runs of a job end, and begin, while a checkpoint is under way: it is taken all the same, of those that are there."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Tree, picture, wait_until
from machines import Machine, net
from ranks import RANK, Rank, checkpoint, end
from test_job import counter, everything_back
from test_job_disks import Disks, disks
from test_job_disks import everything_back as all_disks_back

pytest.importorskip("zmq")

from metamori.store.read.store import Store

__all__ = ["disks", "net"]                 # pytest finds them here

HELD = r"""
import os, sys, threading, time
from pathlib import Path
if "AHEAD" in os.environ:                  # seconds: this machine's clock; before anybody has taken the call
    now_ns = time.time_ns
    time.time_ns = lambda: now_ns() + int(os.environ["AHEAD"]) * 10**9
from metamori.cli.main import main
from metamori.runtime.checkpoint.session import Session
from metamori.runtime.job import counter, finish, folder, member, places, relays, start, wire
from metamori.store.read import create
from metamori.store.read.store import Store

where = Path(os.environ["HOLDS"])

def hold(point):
    if (where / point).exists():
        (where / f"{point}.reached").touch()
        while (where / point).exists():
            time.sleep(0.002)

def before(of, name, point, if_=lambda *args, **named: True):
    call = getattr(of, name)
    def held(*args, **named):
        if if_(*args, **named):
            hold(point)
        return call(*args, **named)
    setattr(of, name, held)

if "JOIN_S" in os.environ:
    counter._JOIN_S = float(os.environ["JOIN_S"])
if "PATIENCE_S" in os.environ:
    start.JOIN_S = float(os.environ["PATIENCE_S"])
    start.SAY_S = start.JOIN_S / 2
    is_over = start._Patience.is_over
    def waits(self, is_at_work):
        if time.monotonic() > self._began + 3 * start.JOIN_S:
            (where / "for long.reached").touch()
        return is_over(self, is_at_work)
    start._Patience.is_over = waits
take = member.Member._take
def deaf(self, message):                   # to what a checkpoint begins with, if its command ends meanwhile
    if message["what"] == "prepare":
        hold("prepare")
        if self._over.is_set():
            return
    take(self, message)
member.Member._take = deaf
receive = wire.Server.receive
def hears(self, wait_s):
    got = receive(self, wait_s)
    if got is not None and got[1].get("what") == "checkpoint":
        (where / got[1]["message"]).touch()
    return got
wire.Server.receive = hears
before(Session, "last_checkpoint", "end", lambda *args, **named: named.get("home"))
freeze = Session._freeze
def frozen(self, *args):
    found = freeze(self, *args)
    (where / "frozen").touch()
    return found
Session._freeze = frozen
before(Session, "_freeze", "freeze", lambda *args, **named: threading.current_thread().name == "metamori member")
before(start, "_note_scope", "restored")   # the job begins
before(start, "_number", "number")
before(start, "_own_store", "own")
before(create, "_is_to_be_made", "made")
before(create, "_make", "empty")
before(start, "_lock", "lock")             # its store is there by then, and nobody's
before(start, "begin_area", "area")
before(finish, "close", "close")
before(places, "note", "note")
before(counter.Counter, "_fold", "fold")
before(counter.Counter, "join", "stop")
def is_own(*args, **named):                # not of a killed run, which the one that counts completes
    return threading.current_thread().name != "metamori job"
before(Session, "_write", "write", is_own)
before(finish, "is_unfinished", "unfinished")
before(member.Member, "start", "start")   # it has a run area then
def is_the_job(store, *args, **named):     # whose store it is
    return not os.path.basename(os.path.dirname(store.path)) == "nodes"
before(Store, "add_undo", "undo", is_the_job)
before(Store, "commit_checkpoint", "commit", is_the_job)
before(folder, "forget_folded", "committed")
send_all = wire.Server.send_all
def says(self, all_, message):
    hold(f"say {message['what']}")
    send_all(self, all_, message)
wire.Server.send_all = says
hear = relays.Share.hear
def misses(self, line, message, whose=""):
    if message["what"] == "go" and (where / "miss go").exists():
        (where / "miss go.reached").touch()
        return []
    return hear(self, line, message, whose)
relays.Share.hear = misses
wait = member._wait
def waits(lines, share, is_told, limit_s): # as long, or until it need not any more
    def receive(left):
        if (where / "give up").exists():
            (where / "give up").unlink(missing_ok=True)
            share.is_off = True
        return lines.__class__.receive(lines, min(left, 0.02))
    lines.receive = receive
    try:
        wait(lines, share, is_told, limit_s)
    except member.Aborted:
        (where / "gave up").touch()
        raise
    finally:
        del lines.receive
member._wait = waits
sys.exit(main())
"""


class Held(Rank):
    """A run that stops at points for which there is a file in `holds`, until that is gone."""

    def __init__(self, lab: Lab, *armed: str, machine: Machine | None = None, **env: str) -> None:
        self.holds = lab.folder / f"holds.{len(list(lab.folder.glob('holds.*')))}"
        self.holds.mkdir()
        for point in armed:
            self.arm(point)
        words = lab.on(machine, "run", "--job") if isinstance(lab, Disks) and machine else lab.argv("run", "--job")
        at = words.index("metamori") - 1
        variables = {name: value for name, value in lab.env.items() if name != "METAMORI_TRACK"}
        more = {"HOLDS": str(self.holds)} | env
        start = [*words[:at - 1], *(f"{name}={value}" for name, value in more.items())] if machine else []
        self.process = subprocess.Popen(
            [*start, sys.executable, "-c", HELD, *words[at + 2:], "--", sys.executable, "-c", RANK], cwd=lab.work,
            text=True, env=variables | more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def arm(self, point: str) -> None:
        (self.holds / point).touch()

    def wait(self, point: str) -> None:
        wait_until((self.holds / f"{point}.reached").exists, f"it stops at {point}")

    def go(self, point: str) -> None:
        (self.holds / point).unlink()


def asked(lab: Lab, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(lab.argv("checkpoint", *words), cwd=lab.work, env=lab.env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def index_of(verb: subprocess.Popen[str]) -> int:
    out, said = verb.communicate(timeout=60)
    assert verb.returncode == 0, said
    return int(out)


def is_quiet(verb: subprocess.Popen[str], seconds: float) -> bool:
    """Whether it has not answered in that time."""
    assert verb.stdout
    return not select.select([verb.stdout], [], [], seconds)[0]


def has_ended(rank: Rank) -> bool:
    """Whether the program has, of which `metamori run` still lives."""
    pid = rank.process.pid
    return not Path(f"/proc/{pid}/task/{pid}/children").read_text()


def exits(rank: Rank) -> None:
    rank.ask("exit", "0")
    wait_until(lambda: has_ended(rank), "its program ends")


def three(lab: Lab, seen: dict[int, Tree], **env: str) -> list[Any]:
    """The first counts. Each has written something since checkpoint 1."""
    ranks = [Held(lab, **env).ready() for _ in range(3)]
    assert counter(lab, ranks) is ranks[0]
    for step in range(2):
        for number, rank in enumerate(ranks):
            rank.do("append", "common", f"{step}{number}")
            rank.do("append", f"own.{number}", "abc")
        if not step:
            checkpoint(lab, seen)
    return ranks


def finish(lab: Lab, ranks: list[Any], seen: dict[int, Tree], is_quiet: bool = True) -> str:
    """What they say meanwhile."""
    seen[max(entry["index"] for entry in lab.log()["checkpoints"])] = picture(lab.work)
    said = end(ranks)
    assert said == "" or not is_quiet
    everything_back(lab, seen)
    return said


@pytest.mark.parametrize("who", [0, 2])
def test_a_run_ends_when_a_checkpoint_begins(lab: Lab, who: int) -> None:
    """The one that counts, or another: it is of the checkpoint, as it ended."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    one = ranks[who]
    one.arm("prepare")
    verb = asked(lab)
    one.wait("prepare")
    exits(one)
    one.go("prepare")
    assert index_of(verb) == 2
    finish(lab, ranks, seen)


@pytest.mark.parametrize("who", [0, 2])
def test_a_run_ends_for_long_while_a_checkpoint_is_asked_for(lab: Lab, who: int) -> None:
    """It is waited for like one that writes its part of a checkpoint."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen, JOIN_S="0.3")
    one = ranks[who]
    one.arm("end")
    one.ask("exit", "0")
    one.wait("end")
    verb = asked(lab)
    assert is_quiet(verb, 1.5)
    one.go("end")
    assert index_of(verb) == 2
    finish(lab, ranks, seen)


def test_who_asks_while_the_one_that_counts_ends_asks_the_next(lab: Lab) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    for rank, point in ((ranks[0], "fold"), (ranks[0], "stop"), (ranks[2], "prepare")):
        rank.arm(point)
    verbs = [asked(lab, "-m", "first")]
    ranks[2].wait("prepare")
    verbs.append(asked(lab, "-m", "second"))
    wait_until((ranks[0].holds / "second").exists, "the one that counts hears it")
    ranks[2].go("prepare")
    ranks[0].wait("fold")
    seen[2] = picture(lab.work)
    exits(ranks[0])
    ranks[0].wait("stop")
    for point in ("stop", "fold"):
        ranks[0].go(point)
    assert sorted(map(index_of, verbs)) == [2, 3]
    finish(lab, ranks, seen)
    assert [lab.messages()[index] for index in (2, 3)] == ["first", "second"]


def written(lab: Lab) -> list[Path]:
    return list(lab.store.glob("nodes/*/checkpoints/*.meta*"))


@pytest.mark.parametrize("first", [1, 2])
def test_who_counts_is_killed_when_all_have_written(lab: Lab, first: int) -> None:
    """What a run has recorded for the index that was not made counts less than what others see at the next one."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    one, other = ranks[first], ranks[3 - first]
    one.do("append", "shared", "one")
    one.do("append", "moved", "one")
    one.do("append", "gone", "one")
    one.do("unlink", "own.0")              # no file of it leads to these names: it does not look there again
    one.do("mkdir", "folder")
    ranks[0].arm("fold")
    verb, program = asked(lab), ranks[0].program()
    ranks[0].wait("fold")
    other.do("append", "shared", "more" * 2000)
    other.do("rename", "moved", "there")
    other.do("unlink", "gone")
    other.do("append", "own.0", "anew")
    other.do("rmdir", "folder")
    records = len(written(lab))
    one.arm("write")                       # its record is the last one
    for pid in (ranks[0].process.pid, program):
        os.kill(pid, signal.SIGKILL)
    ranks.pop(0).process.wait()
    one.wait("write")
    wait_until(lambda: len(written(lab)) > records, "the other one has written")
    one.go("write")
    assert index_of(verb) == 2
    seen[2] = picture(lab.work)
    assert "the last run was killed" in finish(lab, ranks, seen, False)


def test_a_record_is_of_its_instant_not_of_when_it_was_written(lab: Lab) -> None:
    """Another run changes the same names after the instant and ends, and only then the record comes."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = [*three(lab, seen), Held(lab).ready()]
    counts, one, ends, _ = ranks
    one.do("unlink", "own.0")              # no file of it leads to these names: it does not look there again
    one.do("mkdir", "folder")
    one.arm("write")
    verb = asked(lab)
    one.wait("write")
    ends.do("append", "own.0", "anew")
    ends.do("rmdir", "folder")
    verb.kill()
    verb.communicate()
    counts.kill()
    assert ends.end() == ""
    one.go("write")
    del ranks[2], ranks[0]
    checkpoint(lab, seen)
    assert "the last run was killed" in finish(lab, ranks, seen, False)


@pytest.mark.parametrize("point", ["lock", "note"])
def test_a_run_begins_while_a_checkpoint_is_taken(lab: Lab, point: str) -> None:
    """It has no command yet, and nobody waits for it."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen, JOIN_S="0.3")
    ranks.append(Held(lab, point))
    ranks[3].wait(point)
    assert index_of(asked(lab)) == 2
    seen[2] = picture(lab.work)
    ranks[3].go(point)
    ranks[3].ready().do("append", "common", "late")
    checkpoint(lab, seen)
    ranks[3].do("write", "common", 0, "later")
    checkpoint(lab, seen)
    finish(lab, ranks, seen)


def test_a_run_begins_while_it_is_taken_for_killed(lab: Lab) -> None:
    """Nobody held its lock yet, and then it had a run area."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen, JOIN_S="0.3")
    ranks.append(Held(lab, "lock", "start"))
    ranks[3].wait("lock")
    ranks[0].arm("unfinished")
    verb = asked(lab)
    ranks[0].wait("unfinished")
    ranks[3].go("lock")
    ranks[3].wait("start")
    ranks[0].go("unfinished")
    assert index_of(verb) == 2
    seen[2] = picture(lab.work)
    ranks[3].go("start")
    ranks[3].ready().do("append", "common", "late")
    checkpoint(lab, seen)
    finish(lab, ranks, seen)


def test_where_the_disk_of_a_run_is_that_began_with_a_checkpoint(disks: Disks, net: list[Machine]) -> None:
    """What is known of it is looked up once it is noted."""
    seen = {0: disks.all()}
    ranks = [Held(disks, machine=net[1]).ready()]
    ranks[0].do("append", "common", "one")
    ranks.append(Held(disks, "lock", machine=net[2]))
    ranks[1].wait("lock")
    seen[disks.checkpoint()] = disks.all()
    ranks[1].go("lock")
    ranks[1].ready()
    for text in ("first", "more"):
        ranks[1].do("append", "own/file", text)
        seen[disks.checkpoint()] = disks.all()
    for rank in ranks:
        rank.ask("exit", "0")
    assert [rank.end() for rank in ranks] == ["", ""]
    all_disks_back(disks, seen)


@pytest.mark.parametrize("point", ["made", "empty", "lock", "note", "area", "start"])
def test_a_run_begins_while_the_job_ends(lab: Lab, point: str) -> None:
    """All that it has made so far goes with the job: it is the first of the next one."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    first, late = Held(lab).ready(), Held(lab, "own", point)
    first.do("append", "common", "first")
    late.wait("own")
    first.arm("close")
    exits(first)
    first.wait("close")
    late.go("own")
    late.wait(point)
    first.go("close")
    assert first.end() == ""
    seen[1] = picture(lab.work)
    late.go(point)
    late.ready().do("append", "common", "late")
    assert checkpoint(lab, seen) == 2
    finish(lab, [late], seen)


def test_the_files_of_a_job_take_long_to_go_back(lab: Lab) -> None:
    """Its other runs wait: the lock of its store says that somebody lives."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = [Held(lab, "restored", PATIENCE_S="0.5")]
    ranks[0].wait("restored")
    ranks += [Held(lab, PATIENCE_S="0.5") for _ in range(2)]
    for rank in ranks[1:]:
        rank.wait("for long")
    ranks[0].go("restored")
    for rank in ranks:
        rank.ready().do("append", "common", "one")
    checkpoint(lab, seen)
    said = finish(lab, ranks, seen, False)
    assert said.count(f"metamori: waiting for the store {lab.store}: who has it may be restoring the files\n") >= 2


def test_another_job_begins_where_a_run_was_about_to_join(lab: Lab) -> None:
    """Its own has ended: it is none of the other one's."""
    first = Held(lab, SLURM_JOB_ID="1").ready()
    late = Held(lab, "number", SLURM_JOB_ID="1")
    late.wait("number")
    first.end()
    other = Held(lab, SLURM_JOB_ID="2").ready()
    late.go("number")
    assert late.process.wait(30) == 125
    assert f"the store {lab.store} is in use by job 2" in late.end()
    other.do("append", "common", "other")
    assert other.end() == ""


@pytest.mark.parametrize("who", ["last", "verb"])
def test_the_end_of_a_job_takes_long(lab: Lab, who: str) -> None:
    """The last of its runs records it, or a verb, and a run of the next job waits."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    first = Held(lab).ready()
    first.do("append", "common", "first")
    first.arm("close")
    if who == "verb":
        first.kill()
        words = lab.argv("log")
        verb = subprocess.Popen([words[0], "-c", HELD, *words[3:]], env=lab.env | {"HOLDS": str(first.holds)},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        exits(first)
    first.wait("close")
    late = Held(lab, PATIENCE_S="0.5")
    late.wait("for long")
    first.go("close")
    assert who == "verb" or first.end() == ""
    assert who == "last" or verb.wait() == 0
    seen[1] = picture(lab.work)
    late.ready().do("append", "common", "late")
    assert checkpoint(lab, seen) == 2
    finish(lab, [late], seen, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait(lab: Lab, number: int) -> None:
    """For the store of a job, of which somebody restores the files; not one that is ignored."""
    with Store.create_or_open(str(lab.store)) as store:
        store.lock()
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        rank = Held(lab, PATIENCE_S="0.2")
        signal.signal(signal.SIGHUP, before)
        rank.wait("for long")
        rank.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            rank.process.wait(0.5)
        rank.process.send_signal(number)
        assert rank.process.wait(10) == 130
    assert "Traceback" not in rank.end()


def test_a_run_joins_while_a_checkpoint_takes_long(lab: Lab) -> None:
    """It is answered when that is there."""
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = three(lab, seen)
    ranks.append(Held(lab, "start", PATIENCE_S="0.5"))
    ranks[3].wait("start")
    ranks[0].arm("fold")
    verb = asked(lab)
    ranks[0].wait("fold")
    ranks[3].go("start")
    ranks[3].wait("for long")
    ranks[0].go("fold")
    assert index_of(verb) == 2
    seen[2] = picture(lab.work)
    ranks[3].ready().do("append", "common", "late")
    checkpoint(lab, seen)
    assert "who has it may be restoring the files" in finish(lab, ranks, seen, False)
