"""run --job: several runs with one store have their checkpoints together; nodes and the one that counts die.

What docs/how-to/job.md says, without a Slurm."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import time

import pytest
from lab import Lab, Tree, picture, wait_until
from ranks import Rank, checkpoint, end, job

zmq = pytest.importorskip("zmq")


def counter(lab: Lab, ranks: list[Rank]) -> Rank:
    """The run that has the lock of the job's store."""
    inode = (lab.store / "lock").stat().st_ino
    for rank in ranks:
        open_ = [f"/proc/{rank.process.pid}/fd/{fd}" for fd in os.listdir(f"/proc/{rank.process.pid}/fd")]
        if any(os.stat(each).st_ino == inode for each in open_ if os.path.exists(each)):
            return rank
    raise AssertionError("nobody counts")


def everything_back(lab: Lab, seen: dict[int, Tree]) -> None:
    for index, tree in seen.items():
        lab.restore(index)
        lab.assert_state(tree, f"restore {index}")
    lab.verb("verify")


def test_one_count_for_all_and_each_index_back(lab: Lab) -> None:
    (lab.work / "shared").write_bytes(b"." * 30000)
    seen = {0: picture(lab.work)}
    ranks = job(lab)
    for step in range(3):
        for number, rank in enumerate(ranks):      # strides of 100 bytes, in turn
            for at in range(0, 30000, 300):
                rank.do("write", "shared", at + 100 * number, f"{step}{number}" * 50)
            rank.do("append", f"own.{number}", f"step {step}\n")
        index = ranks[step].do("checkpoint", f"step {step}") if step else checkpoint(lab, seen)
        assert index == step + 1
        seen[index] = picture(lab.work)
        assert ranks[0].do("read", "shared") == (lab.work / "shared").read_text()
    assert end(ranks) == ""
    assert lab.messages()[4] == "end of run"
    assert lab.messages()[3] == "step 2"
    seen[4] = seen[3]
    assert sorted(os.listdir(lab.store)) == [".gitignore", "buffer", "checkpoints", "format", "head", "kept", "lock",
                                             "scope"]
    assert lab.verb("cat", 1, lab.work / "shared").stdout.encode() == seen[1]["shared"].content
    assert "shared" in lab.verb("diff", 1, 2).stdout
    everything_back(lab, seen)
    lab.restore(4)
    lab.verb("prune", "--keep-last", "2")
    for index in (3, 4):
        lab.restore(index)
        lab.assert_state(seen[index], f"restore {index} after a prune")
    lab.verb("report", lab.folder / "report.html")


def test_when_the_one_that_counts_is_killed_another_does(lab: Lab) -> None:
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab)
    for rank in ranks:
        rank.do("append", "common", "a")
    checkpoint(lab, seen)
    for expected in (2, 3):
        for rank in ranks:
            rank.do("append", "common", "b")
            rank.do("write", "over", 0, "c")
        first = counter(lab, ranks)
        ranks.remove(first)
        first.kill()
        assert checkpoint(lab, seen) == expected
    ranks[0].do("append", "common", "last")
    ranks[0].kill()
    seen[4] = picture(lab.work)
    done = lab.verb("log")
    assert "the last run was killed" in done.stderr
    assert lab.messages()[4] == "killed"
    everything_back(lab, seen)


def test_what_is_asked_of_a_job_and_taken_back(lab: Lab) -> None:
    """show and restore --to of each of its runs, undo and redo of all of them."""
    (lab.work / "shared").write_bytes(b"." * 3000)
    seen: dict[int, Tree] = {0: picture(lab.work)}
    ranks = job(lab)
    for _ in range(2):
        for number, rank in enumerate(ranks):
            rank.do("write", "shared", 1000 * number, str(number) * 500)
            rank.do("append", f"own.{number}", "more\n")
        checkpoint(lab, seen)
    assert end(ranks) == ""
    shown = json.loads(lab.verb("show", "--json", 2).stdout)
    assert {entry["path"] for entry in shown["names"]} >= {str(lab.work / f"own.{number}") for number in range(3)}
    assert "own.2" in lab.verb("show", 1).stdout
    lab.verb("restore", 1, "--to", lab.folder / "copy")
    assert picture(lab.folder / "copy" / "work") == seen[1]
    lab.restore(1)
    lab.verb("undo")
    lab.assert_state(seen[0], "undo")
    lab.verb("redo")
    lab.assert_state(seen[1], "redo")


def test_restart_starts_no_run_of_a_job_alone(lab: Lab) -> None:
    """It says how all are started; a run after the job starts again."""
    ranks = job(lab, 2)
    for rank in ranks:
        rank.do("append", "common", "a")
    checkpoint(lab, {})
    ranks[1].do("append", "common", "b")
    assert end(ranks) == ""
    before = picture(lab.work)
    for words in ((), (0,), (1,), (2, "--force")):
        said = lab.verb("restart", *words, code=1).stderr
        assert "start the job as before" in said and "'metamori restore " in said
        lab.assert_state(before, "a refused restart")
    lab.restore(1)
    ranks = job(lab, 2)
    assert ranks[0].do("read", "common") == "aa"
    end(ranks)
    done = subprocess.run([*lab.argv("run"), "--", "sh", "-c", "echo once >> common"], cwd=lab.work, env=lab.env,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lab.verb("restart")
    assert (lab.work / "common").read_text().count("once") == 2


def test_a_run_that_hangs_is_named_and_the_others_go_on(lab: Lab) -> None:
    seen: dict[int, Tree] = {}
    ranks = job(lab, 2)
    checkpoint(lab, seen)
    hung = next(rank for rank in ranks if rank is not counter(lab, ranks))
    other = next(rank for rank in ranks if rank is not hung)
    hung.process.send_signal(signal.SIGSTOP)
    other.ask("checkpoint", "")
    answer = other.answer()
    assert answer == {"errno": errno.EIO}
    assert other.do("append", "file", "goes on") is None
    hung.process.send_signal(signal.SIGCONT)
    wait_until(lambda: lab.verb("checkpoint", code=None).returncode == 0, "a checkpoint once it goes on")
    seen[2] = picture(lab.work)
    said = end(ranks)
    assert "no checkpoint" in said
    seen.pop(1)
    everything_back(lab, seen)


def test_resume_and_another_number_of_runs(lab: Lab) -> None:
    seen: dict[int, Tree] = {}
    ranks = job(lab)
    for rank in ranks:
        rank.do("append", "log", "before\n")
    checkpoint(lab, seen)
    for rank in ranks:
        rank.do("append", "log", "lost\n")
        rank.kill()
    ranks = [Rank(lab, "--resume").ready() for _ in range(2)]
    assert (lab.work / "log").read_text() == "before\n" * 3
    ranks[1].do("append", "log", "after\n")
    index = checkpoint(lab, seen)
    assert index == 3                      # 2 is what the kill left
    said = end(ranks)
    assert "continuing from checkpoint 1" in said
    everything_back(lab, seen)


def test_no_rollback_inside_and_no_second_job(lab: Lab) -> None:
    ranks = job(lab, 2)
    index = checkpoint(lab, {})
    assert ranks[0].do("restore", str(index)) == {"errno": errno.EBUSY}
    assert lab.verb("restore", index, code=11).stderr
    done = subprocess.run([*lab.argv("run"), "--", "true"], env=lab.env, cwd=lab.work, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, "in use" in done.stderr) == (125, True)
    for option in ("--memory", "--isolate", "--strict", "--keep-last=2"):
        done = subprocess.run([*lab.argv("run", "--job", option), "--", "true"], env=lab.env, cwd=lab.work,
                              capture_output=True, text=True, check=False)
        assert (done.returncode, "not possible with --job" in done.stderr) == (125, True)
    assert "job of 2 runs" in lab.verb("status").stdout
    end(ranks)


def test_nobody_without_the_keys_takes_part(lab: Lab) -> None:
    ranks = job(lab, 2)
    reached = json.loads((lab.store / "job").read_bytes())
    assert stat.S_IMODE((lab.store / "job").stat().st_mode) == 0o600
    context = zmq.Context()
    public, secret = zmq.curve_keypair()
    for keys in ((public, secret), None):
        line = context.socket(zmq.DEALER)
        line.linger = 0
        if keys:
            line.curve_serverkey = reached["server"].encode()
            line.curve_publickey, line.curve_secretkey = keys
        line.connect(f"tcp://127.0.0.1:{reached['port']}")
        line.send(b'{"what": "hello?"}')
        assert not line.poll(700)
        line.close()
    context.term()
    assert checkpoint(lab, {}) == 1
    end(ranks)


def test_without_pyzmq_a_message_says_what_to_install(lab: Lab) -> None:
    (lab.folder / "none" / "zmq").mkdir(parents=True)
    (lab.folder / "none" / "zmq" / "__init__.py").write_text("raise ModuleNotFoundError('no', name='zmq')")
    env = lab.env | {"PYTHONPATH": f"{lab.folder / 'none'}:{lab.env['PYTHONPATH']}"}
    done = subprocess.run([*lab.argv("run", "--job"), "--", "true"], env=env, cwd=lab.work, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, "pip install 'metamori[job]'" in done.stderr) == (125, True)


def test_one_file_in_turn_while_a_timer_takes_checkpoints(lab: Lab) -> None:
    """Nobody waits for the checkpoints: a record is of one instant if each number in it is of one or two rounds."""
    ranks = job(lab, 3, "--every", "200ms")
    for number, rank in enumerate(ranks):
        rank.do("write", "turn", 10 * number, f"{0:010}")
    first = checkpoint(lab, {})
    limit, turn = time.monotonic() + 3, 1
    while time.monotonic() < limit:
        for number, rank in enumerate(ranks):
            rank.do("write", "turn", 10 * number, f"{turn:010}")
        turn += 1
    end(ranks)
    indexes = [entry["index"] for entry in lab.log()["checkpoints"] if entry["index"] >= first]
    assert len(indexes) > 4
    for index in indexes:
        text = lab.verb("cat", index, lab.work / "turn").stdout
        turns = [int(text[at:at + 10]) for at in range(0, len(text), 10)]
        assert turns == sorted(turns, reverse=True) and turns[0] - turns[-1] <= 1, (index, turns)
