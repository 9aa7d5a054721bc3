"""A program in the terminal that its run was given: continued in another one."""

from __future__ import annotations

import os
import pty
import select
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

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def shows(self, text: str) -> bool:
        if select.select([self.master], [], [], 0.05)[0]:
            try:
                self.shown += os.read(self.master, 9999)
            except OSError:                # the last one has closed it
                pass
        return text.encode() in self.shown


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
    assert case.verb("checkpoint").returncode == 0
    case.kill_all(case.of_the_run())
    os.close(before.master)
    os.waitpid(before.pid, 0)
    after = Window(case, "restart", "1")
    after.types("echo was $x\n")
    wait_until(lambda: after.shows("was 5"), "it takes another")
    after.types("sleep 1000; echo ended by $?\n")
    time.sleep(0.5)
    after.types("\x03")
    after.types("echo and goes on $((x + 2))\n")
    wait_until(lambda: after.shows("and goes on 7"), "its job ends")
    after.types("exit 7\n")
    deadline = time.monotonic() + PATIENCE
    while (ended := os.waitpid(after.pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        after.shows("")
    assert os.waitstatus_to_exitcode(ended[1]) == 7, after.shown
    os.close(after.master)
