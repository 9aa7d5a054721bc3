"""Files on the own disks of a job's machines: each has another filesystem at the same path (docs/adr/0061)."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import killing
import pytest
from lab import Lab, Tree, difference, gone, picture, wait_until
from machines import Machine, net
from ranks import RANK, Rank

pytest.importorskip("zmq")

from metamori.runtime.job import disks as of_job
from metamori.store.read.store import Store

__all__ = ["net"]                          # pytest finds it here


class There(Rank):
    """A run of the job that is started on one of its machines."""

    def __init__(self, lab: Disks, machine: Machine, *options: str, order: Path | None = None) -> None:
        self.machine = machine
        self.process = subprocess.Popen(
            [*lab.on(machine, "run", "--job", *options, order=order), "--", sys.executable, "-c", RANK], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Disks(Lab):
    """`work` is everybody's, but `work/own` each machine's."""

    net: list[Machine]

    def begin(self, net: list[Machine]) -> None:
        self.net = net
        (self.work / "own").mkdir()
        for one in net[1:]:
            one.do("mount", "-t", "tmpfs", f"disk-of-{one.name}", self.work / "own")

    def unmount(self) -> None:
        for one in self.net[1:]:
            one.do("umount", "-l", self.work / "own")

    def on(self, machine: Machine, verb: str, *words: object, order: Path | None = None) -> list[str]:
        variables = {name: value for name, value in self.env.items() if name != "METAMORI_TRACK"} | machine.env
        line = self.argv(verb, *words)
        if order:
            line, variables["KILL_ORDER"] = killing.argv(line), str(order)
        return [*machine.enter, "env", "-i", "-C", str(self.work), *(f"{k}={v}" for k, v in variables.items()), *line]

    def do(self, machine: Machine, verb: str, *words: object, code: int | None = 0,
           order: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.on(machine, verb, *words, order=order), capture_output=True, text=True, check=False,
                              timeout=120)
        assert code is None or done.returncode == code, f"{verb} {words}: {done.returncode}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def own(self, machine: Machine) -> Tree:
        """What is on its disk."""
        return picture(self.disk(machine))

    def disk(self, machine: Machine) -> Path:
        return Path(f"/proc/{machine.holder.pid}/root{self.work}/own")

    def all(self) -> dict[str, Tree]:
        shared = {path: entry for path, entry in picture(self.work).items() if not path.startswith("own")}
        return {"shared": shared} | {one.name: self.own(one) for one in self.net[1:]}

    def assert_all(self, want: dict[str, Tree], what: str) -> None:
        have = self.all()
        wrong = {name: text for name, tree in want.items() if (text := difference(have[name], tree))}
        assert not wrong, f"{what}: {wrong}"

    def checkpoint(self) -> int:
        return int(self.do(self.net[0], "checkpoint").stdout)

    def there(self) -> set[int]:
        return {int(path.name.split(".")[0]) for path in (self.store / "checkpoints").glob("*.meta.*")}

    def ranks(self, *options: str) -> list[There]:
        made = [There(self, one, *options) for one in self.net[1:]]
        for rank in made:
            rank.ready()
        return made

    def pass_by(self, *options: str) -> str:
        """A job that does nothing, on each machine; what it said."""
        ranks = self.ranks(*options)
        for rank in ranks:
            rank.ask("exit", "0")
        return "".join(rank.end() for rank in ranks)


@pytest.fixture
def disks(lab: Lab, net: list[Machine]) -> Iterator[Disks]:
    made = Disks(lab.folder, lab.driver)
    made.begin(net)
    yield made
    made.unmount()


def step(ranks: list[There], number: int) -> None:
    """Both do the same at the same paths, with other bytes; old bytes are overwritten, names change."""
    for at, rank in enumerate(ranks):
        rank.do("append", "common", f"{at}.{number}\n")
        rank.do("append", "own/log", f"own {at}.{number}\n")
        rank.do("write", "own/over", 5000 * (number % 3), f"{at}{number}" * 2000)
        rank.do("anew", "own/new", f"new {at}.{number}")
        rank.do("rename", "own/new", f"own/name.{number % 2}")
        if number % 3 == 2:
            rank.do("truncate", "own/log", 4 + at)
            rank.do("unlink", f"own/name.{number % 2}")
            rank.do("mkdir", f"own/folder.{number}")


def old_files(disks: Disks) -> None:
    for at, one in enumerate(disks.net[1:]):
        own = disks.disk(one)
        (own / "over").write_bytes(bytes([65 + at]) * 20000)
        (own / "log").write_text(f"old {one.name}\n")
    (disks.work / "common").write_text("old\n")


def one_checkpoint(disks: Disks) -> None:
    """A whole job."""
    old_files(disks)
    ranks = disks.ranks()
    step(ranks, 0)
    disks.checkpoint()
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()


def everything_back(disks: Disks, seen: dict[int, dict[str, Tree]]) -> None:
    """By a restore here and the run that starts there; and by a restore on each."""
    for index, want in seen.items():
        said = disks.do(disks.net[0], "restore", index).stderr
        assert "n1" not in want or disks.all()["n1"] == want["n1"] or "n1's own disk" in said
        disks.pass_by()
        disks.assert_all(want, f"restore {index} and a run")
    for index, want in reversed(seen.items()):
        for one in disks.net[1:]:
            disks.do(one, "restore", index)
        disks.assert_all(want, f"restore {index} on each")
    for one in disks.net:
        disks.do(one, "verify")
    store = Store.open(str(disks.store))
    for disk in of_job.all_of(store):
        assert disk.all() == {index: disk.at(index) for index in store.indexes}


def test_each_index_on_each_disk(disks: Disks) -> None:
    old_files(disks)
    seen = {0: disks.all()}
    ranks = disks.ranks()
    for number in range(4):
        step(ranks, number)
        seen[disks.checkpoint()] = disks.all()
    step(ranks, 4)
    for rank in ranks:
        rank.ask("exit", "0")
    said = [rank.end() for rank in ranks]
    assert said == ["", ""]
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)
    there = disks.folder / "copy"
    said = disks.do(disks.net[0], "restore", 2, "--to", there).stderr
    words = next(line for line in said.splitlines() if "n2's own disk: " in line).split(": ")[-1].split()[1:]
    store, index = words[2], words[3]
    disks.do(disks.net[2], "restore", index, "--to", there / "n2", "--store", store)
    found = {path.name for path in (there / "n2").rglob("*")}
    assert {"over", "log"} <= found


def test_pruned_together(disks: Disks) -> None:
    old_files(disks)
    seen: dict[int, dict[str, Tree]] = {}
    ranks = disks.ranks()
    for number in range(6):
        step(ranks[number % 2:][:1] if number > 2 else ranks, number)      # of one of them nothing changes
        seen[disks.checkpoint()] = disks.all()
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()
    seen[max(disks.there())] = disks.all()
    disks.do(disks.net[0], "prune", "--keep-last", 3)
    left = disks.there()
    assert len(left) == 3
    everything_back(disks, {index: want for index, want in seen.items() if index in left})


def test_its_store_is_pruned_with_the_jobs_only(disks: Disks) -> None:
    """Else an index of the job's would be another one there. And nobody runs in it."""
    one_checkpoint(disks)
    there = str(disks.store / "disks" / "n1")
    for words in (["prune", "--keep-last", "1"], ["run", "--", "true"], ["run", "--job", "--", "true"]):
        at = words.index("--") if "--" in words else len(words)
        done = disks.do(disks.net[1], *words[:at], "--store", there, *words[at:], code=None)
        assert done.returncode == (1 if words[0] == "prune" else 125)
        assert done.stderr == f"metamori: {there} is part of the job's store {disks.store}: --store {disks.store}\n"


def test_a_note_of_a_disk_that_is_not_as_it_was_written_is_said(disks: Disks) -> None:
    one_checkpoint(disks)
    note = disks.store / "disks" / "n1" / "job"
    data = note.read_bytes()
    assert b'"run": 1' in data
    note.write_bytes(data.replace(b'"run": 1', b'"run": 7'))
    own, said = disks.own(disks.net[1]), f"metamori: {note}: the checksum does not match\n"
    assert disks.do(disks.net[1], "run", "--job", "--", "true", code=125).stderr == said
    assert disks.own(disks.net[1]) == own


def test_two_runs_of_one_machine(disks: Disks) -> None:
    """Both write into one file of the disk, in turn, the same bytes too."""
    old_files(disks)
    seen = {0: disks.all()}
    n1 = disks.net[1]
    ranks = [There(disks, n1).ready() for _ in range(2)]
    for number in range(3):
        for at, rank in enumerate(ranks):
            for place in range(0, 20000, 400):
                rank.do("write", "own/over", place + 100 * at, f"{at}{number}" * 100)
        seen[disks.checkpoint()] = disks.all()
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()
    for index, want in seen.items():
        disks.do(n1, "restore", index)
        disks.assert_all(want, f"restore {index}")


@pytest.mark.in_turn("what", 2)
@pytest.mark.parametrize(("what", "error"), [("common", errno.EXDEV), ("own/folder", errno.ENOTDIR)])
def test_a_rename_that_fails(disks: Disks, what: str, error: int) -> None:
    """A copy of what it would have destroyed is not what the file is then: another run goes on writing to it."""
    old_files(disks)
    seen = {0: disks.all()}
    ranks = [There(disks, disks.net[1]).ready() for _ in range(2)]
    ranks[0].do("mkdir", "own/folder")
    assert ranks[0].do("rename", what, "own/over") == {"errno": error}
    ranks[1].do("write", "own/over", 30000, "later")
    seen[disks.checkpoint()] = disks.all()
    ranks[0].do("write", "own/over", 40000, "later still")
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()
    seen[max(disks.there())] = disks.all()
    everything_back(disks, seen)


def test_a_file_whose_other_name_goes_while_it_is_open(disks: Disks) -> None:
    """The store, on another filesystem, holds all of it from then on; each index only what has changed."""
    rank = There(disks, disks.net[1]).ready()
    rank.do("write", "own/a", 0, "0" * 20000)
    seen = {disks.checkpoint(): disks.all()}
    rank.do("link", "own/a", "own/b")
    rank.do("unlink", "own/a")
    for number in range(4):
        rank.do("write", "own/a", 4096 * number, str(number) * 4096)
        seen[disks.checkpoint()] = disks.all()
    rank.ask("exit", "0")
    rank.end()
    everything_back(disks, seen)


@pytest.mark.in_turn("where", 3)
@pytest.mark.parametrize("where", ["here", "there", "queued"])
def test_all_killed_and_continued(disks: Disks, where: str) -> None:
    """The job is completed where no disk is seen, or where one is; or Slurm has queued it again."""
    old_files(disks)
    seen = {0: disks.all()}
    again = "--requeue" if where == "queued" else "--resume"
    disks.env |= {"SLURM_JOB_ID": "7"} if where == "queued" else {}
    ranks = disks.ranks(*[again][:where == "queued"])
    for number in range(2):
        step(ranks, number)
        seen[disks.checkpoint()] = disks.all()
    step(ranks, 2)
    for one in disks.net[1:]:
        kill_all(one)
    killed = disks.all()
    disks.do(disks.net[0] if where == "here" else disks.net[1], "log")
    seen[max(disks.there())] = killed
    disks.env |= {"SLURM_RESTART_COUNT": "1"} if where == "queued" else {}
    said = disks.pass_by(again)
    assert "continuing from checkpoint 2" in said
    disks.assert_all(seen[2], "after --resume")
    everything_back(disks, seen)


def test_continued_on_fewer_machines(disks: Disks) -> None:
    """What all share is back, and the disk of the one that is there; of the other it is said where it comes back."""
    old_files(disks)
    ranks = disks.ranks()
    step(ranks, 0)
    first, seen = disks.checkpoint(), disks.all()
    step(ranks, 1)
    for one in disks.net[1:]:
        kill_all(one)
    killed = disks.own(disks.net[2])
    rank = There(disks, disks.net[1], "--resume").ready()
    disks.assert_all(seen | {"n2": killed}, "on the first")
    rank.ask("exit", "0")
    said = rank.end()
    assert f"continuing from checkpoint {first}" in said
    assert "n2's own disk follows with the run --job that starts there next" in said
    late = There(disks, disks.net[2]).ready()
    disks.assert_all(seen, "on both")
    late.ask("exit", "0")
    assert "the node's own disk was restored to checkpoint" in late.end()


def kill_all(machine: Machine) -> None:
    """All that runs there, its disk and its clock stay."""
    for pid in machine.pids():
        subprocess.run(["kill", "-STOP", str(pid)], check=False, capture_output=True)
    for pid in machine.pids():
        subprocess.run(["kill", "-KILL", str(pid)], check=False, capture_output=True)
    wait_until(lambda: not [pid for pid in machine.pids() if not gone(pid)], "a machine's processes")


def test_one_machine_dies_and_the_job_goes_on(disks: Disks) -> None:
    old_files(disks)
    seen = {0: disks.all()}
    ranks = disks.ranks()
    step(ranks, 0)
    seen[disks.checkpoint()] = disks.all()
    step(ranks, 1)
    kill_all(disks.net[2])
    dead = disks.own(disks.net[2])
    for number in (2, 3):
        step(ranks[:1], number)
        seen[disks.checkpoint()] = disks.all()
    ranks[0].ask("exit", "0")
    ranks[0].end()
    last = max(disks.there())
    seen[last] = disks.all()
    assert seen[last]["n2"] == dead
    for index in [index for index in seen if index > 1 and index != last]:
        del seen[index]["n2"]              # its state then is no index: it comes back as of the last before
    everything_back(disks, seen)


def test_what_somebody_changed_is_not_lost(disks: Disks) -> None:
    """A disk that was emptied, too: the run does not start, and nothing was touched."""
    old_files(disks)
    ranks = disks.ranks()
    step(ranks, 0)
    first, seen = disks.checkpoint(), disks.own(disks.net[1])
    step(ranks, 1)
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()
    own = disks.disk(disks.net[1])
    (own / "over").write_text("somebody's")
    disks.do(disks.net[0], "restore", first)
    done = disks.do(disks.net[1], "run", "--job", "--", "true", code=125)
    assert "own/over: modified outside Metamori, on the node's own disk" in done.stderr
    assert (own / "over").read_text() == "somebody's"
    assert not (disks.store / "nodes").exists()
    done = disks.do(disks.net[1], "restore", first, code=14)
    assert f"'metamori restore --force {first}' here saves that state" in done.stderr
    assert (own / "over").read_text() == "somebody's"
    done = disks.do(disks.net[1], "restore", "--force", first, code=12)
    assert "own/over is lost" in done.stderr
    disks.do(disks.net[1], "run", "--job", "--", "true")
    assert (own / "over").read_text() == "somebody's" and (own / "log").read_text() == seen["log"].content.decode()


def test_what_somebody_changed_between_jobs_stays(disks: Disks) -> None:
    """Jobs that do not touch it begin after that, and end; and one that does."""
    old_files(disks)
    ranks = disks.ranks()
    step(ranks, 0)
    first, seen = disks.checkpoint(), disks.all()
    for rank in ranks:
        rank.ask("exit", "0")
    for rank in ranks:
        rank.end()
    own = disks.disk(disks.net[1])
    (own / "log").write_text("somebody's")
    changed = disks.own(disks.net[1])
    for what in ("nothing", "common", "nothing", "own/mine"):
        ranks = disks.ranks()
        if what != "nothing":
            ranks[0].do("append", what, "x\n")
            second = disks.checkpoint()
        for rank in ranks:
            rank.ask("exit", "0")
        assert [rank.end() for rank in ranks] == ["", ""]
        now = disks.own(disks.net[1])
        assert {path: entry for path, entry in now.items() if path != "mine"} == changed
    disks.do(disks.net[1], "restore", first, code=12)      # what somebody overwrote is lost, and said
    for one in disks.net[1:]:
        disks.do(one, "restore", second)
    assert disks.own(disks.net[1]) == now
    assert disks.own(disks.net[2]) == seen["n2"]


def test_disks_are_not_mixed_up(disks: Disks) -> None:
    """Runs of one machine that see different disks, and one machine under two names."""
    n1 = disks.net[1]
    first = There(disks, n1).ready()
    words = disks.on(n1, "run", "--job", "--", "true")
    mounted = f"mount -t tmpfs another {disks.work}/own && cd {disks.work} && exec \"$@\""
    at = words.index("env")
    line = [*words[:at], "unshare", "-m", "sh", "-c", mounted, "sh", *words[at:]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, "another run on n1 has another filesystem there" in done.stderr) == (125, True), done
    line = [*words[:at], "unshare", "-u", "sh", "-c", "hostname n9 && exec \"$@\"", "sh", *words[at:]]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, "calls it n1, not n9" in done.stderr) == (125, True), done
    first.do("append", "own/log", "goes on\n")
    assert disks.checkpoint() == 1
    first.ask("exit", "0")
    first.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_amid_all_of_it(disks: Disks, seed: int) -> None:
    """Runs, the one that counts and verbs are killed at any operation; each index that is there comes back.

    Of a run whose `metamori run` was killed the program is alive until all are killed: nothing is told to it.
    """
    chance = random.Random(seed)
    old_files(disks)
    seen: dict[int, dict[str, Tree]] = {0: disks.all()}
    orders = [disks.folder / f"order.{at}" for at in range(3)]
    number = 0
    for _ in range(3):
        ranks = [There(disks, one, order=orders[at]) for at, one in enumerate(disks.net[1:])]
        killing.order(orders[chance.randrange(2)], chance.choice([chance.randrange(1, 40), killing.NEVER]))
        for rank in ranks:
            try:
                rank.ready()
            except AssertionError:
                assert rank.process.wait() == -signal.SIGKILL
        living = [rank for rank in ranks if rank.process.poll() is None]
        for _ in range(3):
            number += 1
            try:
                step(living, number)
            except (AssertionError, BrokenPipeError):
                break
            now = disks.all()
            killing.order(orders[chance.randrange(2)], chance.randrange(1, 60))
            disks.do(disks.net[0], "checkpoint", code=None)
            living = [rank for rank in living if rank.process.poll() is None]
            told = {"shared", *(rank.machine.name for rank in living)}     # of a dead one as of the one before
            for index in disks.there() - seen.keys():
                seen[index] = {name: tree for name, tree in now.items() if name in told}
        for one in disks.net[1:]:
            kill_all(one)
        for order in orders:
            order.unlink(missing_ok=True)
        killed = disks.all()
        for nth in range(1, 400, chance.randrange(5, 30)):
            killing.order(orders[2], nth)
            where = chance.choice(disks.net)
            if disks.do(where, "log", order=orders[2], code=None).returncode == 0:
                break
        orders[2].unlink(missing_ok=True)
        disks.do(disks.net[0], "log")
        for index in disks.there() - seen.keys():
            seen[index] = {"shared": killed["shared"]} | (killed if index == max(disks.there()) else {})
        for index in chance.sample(sorted(seen), min(2, len(seen))):
            disks.do(disks.net[0], "restore", index)
            for at, one in enumerate(disks.net[1:]):
                for nth in range(chance.randrange(1, 9), 300, chance.randrange(5, 30)):
                    killing.order(orders[at], nth)
                    done = disks.do(one, "restore", index, order=orders[at], code=None)
                    if done.returncode == 0:
                        break
                orders[at].unlink(missing_ok=True)
                disks.do(one, "restore", index)
            disks.assert_all(seen[index], f"restore {index}")
    everything_back(disks, seen)
