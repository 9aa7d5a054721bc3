"""One `metamori run --job` whose program starts others on other machines (docs/adr/0058): they are runs of the job."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import Lab, Tree, picture, wait_until
from machines import Machine, net
from ranks import RANK, Rank, checkpoint
from test_job import everything_back
from test_job_order import in_doubt

pytest.importorskip("zmq")

__all__ = ["net"]                          # pytest finds it here
APART_S = 0.03                             # overwrites of one byte: more than how far the machines' clocks are in doubt


class OnHub(Lab):
    """Commands are given on the first machine, as those of a batch script are."""

    hub: Machine

    def argv(self, verb: str, *words: object, store: Path | None = None) -> list[str]:
        return [*self.hub.enter, "env", "-C", str(self.work), *super().argv(verb, *words, store=store)]


@pytest.fixture
def hub(lab: Lab, net: list[Machine]) -> OnHub:
    made = OnHub(lab.folder, lab.driver)
    made.hub = net[0]
    return made


def given(rank: Rank) -> dict[str, str]:
    """The environment that a rank's program has."""
    pairs = Path(f"/proc/{rank.program()}/environ").read_bytes().decode().split("\0")
    return dict(each.split("=", 1) for each in pairs if each)


class There(Rank):
    """A rank on another machine, as srun starts it: with that environment."""

    def __init__(self, lab: Lab, machine: Machine, first: Rank | dict[str, str], command: list[str] | None = None,
                 cwd: Path | None = None, **more: str) -> None:
        known = first if isinstance(first, dict) else given(first)
        variables = [f"{name}={value}" for name, value in (known | machine.env | more).items()]
        self.process = subprocess.Popen(
            [*machine.enter, "env", "-i", "-C", str(cwd or lab.work), *variables,
             *(command or [sys.executable, "-c", RANK])],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_all_machines_have_one_count(hub: OnHub, net: list[Machine]) -> None:
    lab = hub
    (lab.work / "shared").write_bytes(b"." * 30000)
    seen: dict[int, Tree] = {0: picture(lab.work)}
    first = Rank(lab).ready()
    ranks = [first, *(There(lab, one, first).ready() for one in net[1:])]
    for step in range(3):
        for number, rank in enumerate(ranks):
            time.sleep(APART_S)
            for at in range(0, 30000, 300):
                rank.do("write", "shared", at + 100 * number, f"{step}{number}" * 50)
            rank.do("append", f"own.{number}", f"step {step}\n")
        index = ranks[step].do("checkpoint", f"step {step}") if step else checkpoint(lab, seen)
        assert index == step + 1
        seen[index] = picture(lab.work)
    runs = lab.verb("status").stdout
    assert "job of 3 runs" in runs and "n1." in runs and "n2." in runs, runs
    for number, rank in enumerate(ranks):      # no checkpoint comes before the end
        time.sleep(APART_S)
        rank.do("write", "shared", 50 * number, f"end {number}" * 50)
    seen[4] = picture(lab.work)
    for rank in reversed(ranks):
        assert rank.end() == ""
    everything_back(lab, seen)


def test_machines_write_one_file_at_one_time(hub: OnHub, net: list[Machine]) -> None:
    """Each its own bytes, of the same blocks: no clock is asked for what only one has written over."""
    size, width = 90_000, 1000
    (hub.work / "shared").write_bytes(b"." * size)
    seen: dict[int, Tree] = {0: picture(hub.work)}
    first = Rank(hub, "--durability", "process").ready()   # with the other nobody is so fast
    ranks = [first, *(There(hub, one, first).ready() for one in net[1:])]
    for step in "abc":
        for at in range(0, size, width * len(ranks)):
            for number, rank in enumerate(ranks):
                rank.do("write", "shared", at + width * number, step * (width - 100))
        checkpoint(hub, seen)
    for rank in ranks[::-1]:
        assert "lost" not in rank.end()
    everything_back(hub, seen)


def test_machines_write_the_same_bytes_at_one_time(hub: OnHub, net: list[Machine]) -> None:
    """No clock says who was first."""
    size = 600_000
    (hub.work / "shared").write_bytes(b"." * size)
    seen: dict[int, Tree] = {0: picture(hub.work)}
    first = Rank(hub, "--durability", "process").ready()
    ranks = [first, *(There(hub, one, first).ready() for one in net[1:])]
    for letter in "ab":
        for at in range(0, size, 4000):
            for number, rank in enumerate(ranks):
                rank.ask("write", "shared", at + 50 * number, f"{letter}{number}" * 1000)
            for rank in ranks:
                rank.answer()
        checkpoint(hub, seen)
    for rank in ranks[::-1]:
        assert "lost" not in rank.end()
    everything_back(hub, seen)


def test_machines_whose_clocks_nobody_knows_fail(hub: OnHub, net: list[Machine]) -> None:
    """What is left of each is the log of what it had saved: not which bytes of those blocks it wrote over."""
    size = 4 << 20
    (hub.work / "shared").write_bytes(b"." * size)
    seen: dict[int, Tree] = {0: picture(hub.work)}
    first = Rank(hub).ready()
    ranks = [first, *(There(hub, one, first).ready() for one in net[1:])]
    for last in (3, 3, 2):
        for at in range(0, size, 300_000):
            for number, rank in enumerate(ranks[:last]):
                rank.do("write", "shared", at + 50 * number, f"{len(seen)}{number}" * 1000)
        if len(seen) == 2:
            net[2].fail()
        if last == 3:
            checkpoint(hub, seen)
    for one, rank in zip(net[:2], ranks, strict=False):
        one.fail()
        rank.process.wait()
    in_doubt(hub)
    seen[3] = picture(hub.work)
    assert "went down" in hub.verb("log").stderr
    everything_back(hub, seen)


def test_the_program_is_as_it_was_started(hub: OnHub, net: list[Machine], tmp_path: Path) -> None:
    """Its arguments and folder, standard input, status and end by a signal; a script's interpreter, a program by
    another name, the dynamic loader as a program."""
    first = Rank(hub).ready()
    script = hub.work / "script"
    script.write_text("#!/bin/sh -e\necho \"$0|$1|$2|$#\"; cat; exit 7\n")
    script.chmod(0o755)
    loader = "/lib64/ld-linux-x86-64.so.2"
    for command, status, said in (
            (["./script", "a b", ""], 7, "./script|a b||2\nin\n"),
            (["bash", "-c", "exec -a -other sh -c 'echo $0; cat'"], 0, "-other\nin\n"),
            ([loader, "/bin/sh", "-c", "cat; exit 3"], 3, "in\n"),
            (["sh", "-c", "cat; kill -9 $$"], 137, "in\n"),
            ([sys.executable, "-c", "import sys; print(sys.argv, sys.prefix); input()", "\udcff"], 0,
             f"['-c', '\\udcff'] {sys.prefix}\n")):
        there = There(hub, net[1], first, command)
        out, err = there.process.communicate("in\n")
        assert (there.process.returncode, out, err) == (status, said, ""), command
    there = There(hub, net[1], first, ["sh", "-c", "trap 'echo got; exit 5' TERM; echo up; read x"], tmp_path)
    assert there.process.stdout and there.process.stdout.readline() == "up\n"
    there.process.send_signal(signal.SIGTERM)
    assert there.process.stdout.readline() == "got\n", "before its input ends"
    assert there.process.communicate() == ("", "") and there.process.returncode == 5
    assert first.end() == ""


def test_a_program_that_cannot_become_a_run_runs_without(hub: OnHub, net: list[Machine], tmp_path: Path) -> None:
    """The job is over; its folder is not there; Python is not there; each machine says that it is another one."""
    first = Rank(hub).ready()
    command = ["sh", "-c", "echo one > made; echo $0; exit 4", "zero"]
    environment = given(first)["METAMORI_ELSEWHERE"]
    for more, said in (
            ({"METAMORI_ELSEWHERE": environment.replace(str(hub.work), str(tmp_path / "not there"))}, "No such file"),
            ({"METAMORI_PYTHON": str(tmp_path / "python")}, "the run of"),
            ({"METAMORI_ELSEWHERE": "9" + environment[1:]}, "the run of")):
        there = There(hub, net[1], first, command, **more)
        out, err = there.process.communicate()
        assert (there.process.returncode, out) == (4, "zero\n"), err
        assert said in err and "not tracked" in err and err.count("\n") <= 2, err
    variables = given(first)
    assert first.end() == ""
    there = There(hub, net[1], variables, command)
    assert there.process.communicate() == ("zero\n", "") and there.process.returncode == 4
    assert not (hub.store / "nodes").exists()


def test_machines_fail_and_the_others_go_on(hub: OnHub, net: list[Machine]) -> None:
    """Of what two had overwritten since, too, no checkpoint loses a byte."""
    (hub.work / "shared").write_bytes(b"." * 200_000)
    seen: dict[int, Tree] = {0: picture(hub.work)}
    first = Rank(hub).ready()
    ranks = [first, *(There(hub, one, first).ready() for one in net[1:])]
    for number, rank in enumerate(ranks):
        rank.do("append", f"own.{number}", "before")
        time.sleep(APART_S)
        rank.do("write", "shared", 50 * number, f"{number}" * 100_000)
    checkpoint(hub, seen)
    for number, rank in reversed([*enumerate(ranks)]):
        rank.do("append", f"own.{number}", "after")
        for at in (0, 5000, 70_000):       # with its bytes in the log, and without
            time.sleep(APART_S)
            rank.do("write", "shared", at + 50 * number, f"again {number}" * 20_000)
    for one in net[1:]:
        one.fail()
    assert checkpoint(hub, seen) == 2
    first.do("append", "own.0", "last")
    said = first.end()
    assert "n1." in said and "n2." in said and "went down" in said
    everything_back(hub, seen)


def test_whose_standard_error_is_closed(hub: OnHub, net: list[Machine]) -> None:
    """It ended with 1."""
    first = Rank(hub).ready()
    variables = [f"{name}={value}" for name, value in (given(first) | net[1].env).items()]
    program = ["env", "-i", "-C", str(hub.work), *variables, "sh", "-c", "echo one > there; exit 7"]
    done = subprocess.run([*net[1].enter, "sh", "-c", 'exec "$@" 2>&-', "sh", *program], check=False)
    assert done.returncode == 7
    seen: dict[int, Tree] = {0: {}, 1: picture(hub.work)}
    assert first.end() == ""
    everything_back(hub, seen)


@pytest.mark.in_turn("cut", 2)
@pytest.mark.parametrize("cut", [(1, "eth0"), (0, "hub0")])
def test_the_network_is_gone_for_a_while(hub: OnHub, net: list[Machine], cut: tuple[int, str]) -> None:
    """Of one, or of the one that counts: who is not reached is named, all go on, the next checkpoint takes it in."""
    (hub.work / "shared").write_bytes(b"." * 20_000)
    seen: dict[int, Tree] = {0: picture(hub.work)}
    first = Rank(hub).ready()
    ranks = [first, *(There(hub, one, first).ready() for one in net[1:])]

    def write(text: str) -> None:
        for number, rank in enumerate(ranks):
            rank.do("append", "common", text)
            rank.do("write", "shared", 50 * number, f"{text}{number}" * 1000)

    write("before")
    checkpoint(hub, seen)
    line = ("ip", "link", "set", cut[1])
    net[cut[0]].do(*line, "down")
    try:
        for text in ("one", "two"):
            write(text)
            began = time.monotonic()
            done = hub.verb("checkpoint", code=1, cwd=hub.work)
            assert "no answer from n1." in done.stderr, done.stderr
            assert time.monotonic() - began < 30
    finally:
        net[cut[0]].do(*line, "up")
    write("after")
    wait_until(lambda: hub.verb("checkpoint", code=None, cwd=hub.work).returncode == 0, "a checkpoint again")
    assert [each for each in hub.messages() if each] == [1, 2]
    seen[2] = picture(hub.work)
    write("last")
    checkpoint(hub, seen)
    for rank in reversed(ranks):
        assert "Traceback" not in rank.end()
    everything_back(hub, seen)
