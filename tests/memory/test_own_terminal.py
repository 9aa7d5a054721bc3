"""A program in the terminal that its run was given: continued in another one."""

from __future__ import annotations

import os
import pty
import select
import termios
import time
from pathlib import Path

import pytest
from comeback import METAMORI, Memory
from lab import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("installed")


class Window:
    """A terminal of its own, and a verb in it."""

    def __init__(self, case: Memory, *words: str) -> None:
        argv = [*METAMORI, *words]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(case.work)
            os.execvpe(argv[0], argv, {**case.environment(), "PS1": "$ ", "TERM": "dumb", "HISTFILE": ""})
        self.shown = b""

    def in_front(self) -> str:
        """Of the group that has the terminal, the first."""
        try:
            return Path(f"/proc/{os.tcgetpgrp(self.master)}/comm").read_text().strip()
        except FileNotFoundError:          # it has just ended
            return ""

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def shows(self, text: str) -> bool:
        if select.select([self.master], [], [], 0.05)[0]:
            try:
                self.shown += os.read(self.master, 9999)
            except OSError:                # the last one has closed it
                pass
        return text.encode() in self.shown


def another(case: Memory, before: Window) -> Window:
    """In which the program goes on, when the first has gone with all that ran in it."""
    assert case.verb("checkpoint").returncode == 0
    case.kill_all(case.of_the_run())
    os.close(before.master)
    os.waitpid(before.pid, 0)
    return Window(case, "restart", "1")


@pytest.mark.parametrize("numbers", ["old", "new"])
def test_a_shell_at_its_prompt(tmp_path: Path, numbers: str) -> None:
    """It has the terminal, as it had, and gives it to its jobs."""
    case = Memory(tmp_path, ["true"])
    case.added = {"METAMORI_MEMORY_NUMBERS": "new"} if numbers == "new" else {}
    before = Window(case, "run", "--memory", "--", "bash", "--norc", "--noprofile", "-i")
    wait_until(lambda: before.shows("$ "), "it waits for a line")
    before.types("x=5; echo is $((x + 1))\n")
    wait_until(lambda: before.shows("is 6"), "it takes a line")
    time.sleep(0.3)
    after = another(case, before)
    after.types("echo was $x\n")
    wait_until(lambda: after.shows("was 5"), "it takes another")
    after.types("sleep 1000; echo ended by $?\n")
    wait_until(lambda: not after.shows("nothing") and after.in_front() == "sleep", "its job has the terminal")
    after.types("\x03")
    after.types("echo and goes on $((x + 2))\n")
    wait_until(lambda: after.shows("and goes on 7"), "its job ends")
    after.types("exit 7\n")
    deadline = time.monotonic() + PATIENCE
    while (ended := os.waitpid(after.pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        after.shows("")
    assert os.waitstatus_to_exitcode(ended[1]) == 7, after.shown
    os.close(after.master)


KEYS = """
import os, termios, tty
first = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"ready")
while (key := os.read(0, 1)) != b"q":
    os.write(1, b"[%s]" % key)
termios.tcsetattr(0, termios.TCSANOW, first)
"""


def test_a_program_that_takes_keys_one_by_one(tmp_path: Path) -> None:
    """As one that fills the screen: the new terminal gives it them so, too."""
    (tmp_path / "script").write_text(KEYS)
    case = Memory(tmp_path, ["true"])
    before = Window(case, "run", "--memory", "--", "/usr/bin/python3", str(tmp_path / "script"))
    wait_until(lambda: before.shows("ready"), "it is ready")
    before.types("a")
    wait_until(lambda: before.shows("[a]"), "it takes a key")
    after = another(case, before)
    after.types("b")
    wait_until(lambda: after.shows("[b]"), "it takes another")
    assert not termios.tcgetattr(after.master)[3] & termios.ICANON
    after.types("q")
    wait_until(lambda: not after.shows("nothing") and os.waitpid(after.pid, os.WNOHANG)[0], "it ends")
    assert termios.tcgetattr(after.master)[3] & termios.ICANON
    os.close(after.master)
