"""Signals that come while a thread is inside the library, threads that are there at once: each order, every time."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Compile
from lab import ROOT, Lab, wait_until
from stops import Stops


class Program:
    """`signals WHAT` under `metamori run`, with stop points."""

    def __init__(self, lab: Lab, compiled: Compile, what: str, *options: str) -> None:
        self.lab, self.stops = lab, Stops(lab.folder / "stops")
        self.argv = [*lab.argv("run"), *options, "--", str(compiled("signals")), what]
        for name in ("file", "one", "two", "cut"):
            (lab.work / name).write_bytes(b"before " * 1024)
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.argv, cwd=self.lab.work, env=self.lab.env | self.stops.env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True
        )  # fmt: skip

    def pid(self) -> int:
        """Of the program, which is the only child of `metamori run`."""
        assert self.process
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def go_on(self) -> None:
        assert self.process and self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process and self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> list[str]:
        assert self.process
        try:
            said, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.kill(self.pid(), signal.SIGKILL)
            self.process.communicate()
            raise AssertionError("the program does not end") from None
        assert self.process.returncode == 0, (self.process.returncode, said)
        return said.splitlines()

    def check_indexes(self) -> None:
        """Index 1 is the state before: nothing that was written since has destroyed it."""
        self.lab.verb("verify")
        self.lab.restore(1, "--to", self.lab.folder / "one")
        for copy in (self.lab.folder / "one").rglob("file"):
            assert copy.read_bytes() == b"before " * 1024


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE], ids=lambda n: n.name)
def test_a_signal_that_is_sent_waits_for_the_call(lab: Lab, compiled: Compile, number: signal.Signals) -> None:
    """Whatever its number. A handler of a SIGSEGV that somebody sent waited for its own thread's lock."""
    program = Program(lab, compiled, f"sent {int(number)}")
    program.stops.arm("data.write")
    program.start()
    program.stops.wait("data.write")
    os.kill(program.pid(), number)
    time.sleep(0.1)
    program.stops.go("data.write")
    assert program.end() == ["written 7", "came 1"]
    assert (lab.work / "file").read_bytes()[:7] == b"between"
    assert b"<%d 1>" % number in (lab.work / "file").read_bytes()
    program.check_indexes()


def test_a_fault_of_the_program_is_told_at_once(lab: Lab, compiled: Compile) -> None:
    program = Program(lab, compiled, "fault")
    program.start()
    assert program.end() == ["fault 11", "written 5"]
    program.check_indexes()


@pytest.mark.parametrize("what", ["within", "within and leave"])
def test_a_handler_makes_raw_calls_in_the_middle_of_one(lab: Lab, compiled: Compile, what: str) -> None:
    """It was not tracked: it wrote over what index 1 knows. After one that left by longjmp nothing ever was."""
    program = Program(lab, compiled, what)
    program.start()
    assert program.line() == "ready 0"
    time.sleep(0.2)
    os.kill(program.pid(), signal.SIGUSR1)
    expected = ["came 1"] if "leave" in what else ["read -1 Interrupted system call", "came 1"]
    assert program.end() == expected
    assert (lab.work / "file").read_bytes()[:7] == b"handler"
    program.check_indexes()


def test_a_signal_while_a_one_shot_handler_is_installed(lab: Lab, compiled: Compile) -> None:
    """It was asked whose it is, for ever, by the thread that was about to say so."""
    program = Program(lab, compiled, "one-shot")
    program.start()
    assert program.line() == "ready 0"
    program.stops.arm("signal.action")
    program.go_on()
    program.stops.wait("signal.action")
    os.kill(program.pid(), signal.SIGUSR1)
    time.sleep(0.1)
    program.stops.go("signal.action")
    assert program.end() == ["came 1", "left 1"]


def test_another_process_opens_a_file_that_is_being_emptied(lab: Lab, compiled: Compile) -> None:
    """A lease tells whether anybody has it open; who opened it in that moment ended the program by SIGIO."""
    program = Program(lab, compiled, "cut")
    program.stops.arm("fresh.leased")
    program.start()
    program.stops.wait("fresh.leased")
    try:
        os.close(os.open(lab.work / "cut", os.O_RDONLY | os.O_NONBLOCK))
    except BlockingIOError:
        pass
    program.stops.go("fresh.leased")
    assert program.end() == ["opened 1", "written 3"]
    assert (lab.work / "cut").read_bytes() == b"new"
    program.check_indexes()


@pytest.mark.parametrize("beyond", [False, True], ids=["both within", "one beyond"])
def test_a_size_limit_and_two_threads(lab: Lab, compiled: Compile, beyond: bool) -> None:
    """What the library writes is not under the limit, what the program writes is: whichever thread is in between."""
    program = Program(lab, compiled, "limit beyond" if beyond else "limit")
    program.stops.arm("limits.lifted")
    program.start()
    program.stops.wait("limits.lifted")
    program.go_on()
    time.sleep(0.3)                        # the other thread goes all its way meanwhile, if it can
    program.stops.go("limits.lifted")
    said = sorted(program.end())
    other = ["new -1 File too large", "came 1"] if beyond else ["two 8192", "came 0"]
    assert said == sorted(["limit 8192", "one 8192", *other])
    program.check_indexes()


@pytest.mark.parametrize("what, point, said", [("later", "data.write", "one 8192"),
                                               ("checkpoint", "runtime.call", "checkpoint 2")])  # fmt: skip
def test_a_size_limit_is_set_beside_another_thread(
    lab: Lab, compiled: Compile, what: str, point: str, said: str
) -> None:
    """A call that began without a limit had none to lift: what it wrote into the store met the new one (EFBIG)."""
    program = Program(lab, compiled, f"limit {what}")
    program.start()
    assert program.line() == "begun 0"
    program.stops.arm(point)
    program.go_on()
    program.stops.wait(point)
    program.go_on()
    time.sleep(0.3)                        # the other thread goes all its way meanwhile, if it can
    program.stops.go(point)
    assert sorted(program.end()) == sorted(["limit 10", said, "came 0"])
    program.check_indexes()


def test_a_limit_on_descriptors_and_two_threads(lab: Lab, compiled: Compile) -> None:
    """The library has it lifted where the program has used up its numbers: what the program sets meanwhile holds."""
    program = Program(lab, compiled, "descriptors")
    program.stops.arm("spare.lifted")
    program.start()
    program.stops.wait("spare.lifted")
    program.go_on()
    time.sleep(0.3)                        # the other thread goes all its way meanwhile, if it can
    program.stops.go("spare.lifted")
    assert sorted(program.end()) == sorted(["child 60", "limit 60", "cut 0", "limit 50"])
    assert (lab.work / "one").stat().st_size == 100
    program.check_indexes()


def test_a_process_leaves_the_run_while_a_thread_begins_to_write(lab: Lab, compiled: Compile) -> None:
    """It forbids itself what following takes: the thread that had seen a tracked descriptor fell over the run area."""
    program = Program(lab, compiled, "confined")
    program.start()
    assert program.line() == "redirected 10"
    program.stops.arm("data.looked")
    program.go_on()
    program.stops.wait("data.looked")
    program.go_on()
    assert program.line() == "confined 0"
    program.stops.go("data.looked")
    assert program.end() == ["written 7", "written 5"]
    content = (lab.work / "file").read_bytes()
    assert (content[:12], content[5000:5010]) == (b"betweenafter", b"redirected")
    program.check_indexes()


@pytest.mark.parametrize("turn", range(5))
def test_main_returns_while_threads_write(lab: Lab, compiled: Compile, turn: int) -> None:
    """By hand in LD_PRELOAD the last process ends the run in its exit. Threads fell, or what they wrote was lost."""
    for name in ("file", "one"):
        (lab.work / name).write_bytes(bytes(6400))
    library = ROOT / "metamori" / "libmetamori-checked.so"
    env = lab.env | {"LD_PRELOAD": str(library), "METAMORI_STORE": str(lab.store), "METAMORI_PYTHON": sys.executable}
    done = subprocess.run([compiled("signals"), "returns"], cwd=lab.work, env=env, capture_output=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, b"")
    told = len(done.stdout) // 8
    assert told >= 800
    found = struct.unpack("800q", (lab.work / "file").read_bytes())
    assert not [(place, number, told) for place, number in enumerate(found)
                if number % 800 != place or not told - 800 < number <= told + 1]
    in_sequence = (lab.work / "one").read_bytes()
    count = len(in_sequence) // 8
    assert count - told in (0, 1) and struct.unpack(f"{count}q", in_sequence) == tuple(range(1, count + 1))
    assert not (lab.store / "run").exists()
    lab.restore(1, "--force")              # what was written after the run's end is an external modification
    assert (lab.work / "file").read_bytes() == bytes(6400)


def is_put_aside(pid: int, number: int) -> bool:
    """Whether the library has blocked the signal until the call ends."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("SigBlk:")[1].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("what, point, said", [("stream", "streams.held", ["opened 1", "came 1"]),
                                               ("locked", "readers.held", ["locked 0", "came 1"]),
                                               ("child", "fork.child", ["came 1", "checkpoint 2"])])  # fmt: skip
def test_a_handler_waits_for_what_it_might_want(
    lab: Lab, compiled: Compile, what: str, point: str, said: list[str]
) -> None:
    """It waited for the lock of its own thread, for ever; in a child it opened its files as the parent."""
    program = Program(lab, compiled, what)
    program.stops.arm(point)
    program.start()
    program.stops.wait(point)
    pid = program.pid()
    if what == "child":
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    os.kill(pid, signal.SIGUSR1)
    came = lab.work / "came"
    wait_until(lambda: is_put_aside(pid, signal.SIGUSR1) or came.exists(), "the signal has come")
    assert not came.exists()
    program.stops.go(point)
    assert program.end() == said
    assert came.read_bytes() == (b"" if what == "locked" else b"handler")
    program.check_indexes()


def test_a_handler_takes_a_checkpoint_while_its_thread_does(lab: Lab, compiled: Compile) -> None:
    """With --memory `metamori run` is asked, one thread at a time: the handler waited for its own."""
    program = Program(lab, compiled, "asked", "--memory")
    program.start()
    assert program.line() == "ready 0"
    program.stops.arm("request.held")
    program.go_on()
    program.stops.wait("request.held")
    pid, came = program.pid(), lab.work / "came"
    os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: is_put_aside(pid, signal.SIGUSR1) or came.exists(), "the signal has come")
    assert not came.exists()
    program.stops.go("request.held")
    assert program.end() == ["checkpoint 2", "came 1"]
    program.check_indexes()


def test_a_signal_in_a_restore_comes_when_that_ends(lab: Lab, compiled: Compile) -> None:
    """It came with the next call on a tracked file, if there was one."""
    program = Program(lab, compiled, "restored")
    program.start()
    assert program.line() == "ready 0"
    program.stops.arm("runtime.call")
    program.go_on()
    program.stops.wait("runtime.call")
    os.kill(program.pid(), signal.SIGUSR1)
    program.stops.go("runtime.call")
    assert program.end() == ["restored 0", "came 1"]


def test_a_signal_while_a_run_cannot_begin(lab: Lab, compiled: Compile) -> None:
    """By hand in LD_PRELOAD, without a store that can be used: the signal was lost, as no tracked call came after."""
    (lab.work / "one").write_bytes(b"")
    stops = Stops(lab.folder / "stops")
    library = ROOT / "metamori" / "libmetamori-checked.so"
    env = lab.env | stops.env | {"LD_PRELOAD": str(library), "METAMORI_PYTHON": sys.executable,
                                 "METAMORI_STORE": str(lab.work / "one" / "store")}  # fmt: skip
    stops.arm("runtime.call")
    with subprocess.Popen([compiled("signals"), "late"], cwd=lab.work, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:  # fmt: skip
        stops.wait("runtime.call")
        program.send_signal(signal.SIGUSR1)
        stops.go("runtime.call")
        said, error = program.communicate(timeout=60)
    assert said.splitlines() == ["opened 1", "came 1"]
    assert "files are not tracked: the store" in error


def test_a_run_that_was_stopped_goes_on(lab: Lab) -> None:
    """For longer than it waits for signals: Python then asked the kernel to wait for less than nothing."""
    process = subprocess.Popen([*lab.argv("run"), "--", "sleep", "2"], env=lab.env, cwd=lab.work)
    wait_until(lambda: (lab.store / "run" / "header").exists(), "the run")
    time.sleep(0.3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.3)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 0


def test_an_ignored_interrupt_stays_ignored(lab: Lab) -> None:
    """As a shell script starts its background commands."""
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    program = ["sh", "-c", "kill -INT $$; echo still here"]
    native = lab.run([*command, *program], native=True)
    tracked = lab.run([*command, *lab.argv("run"), "--", *program], native=True)
    assert (tracked.returncode, tracked.stdout, tracked.stderr) == (0, native.stdout, b"") == (0, b"still here\n", b"")
