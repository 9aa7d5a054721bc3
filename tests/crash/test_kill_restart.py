"""`metamori restart` of two processes that have one of each is killed at a system call, any of the whole restart; all
processes, or the one that calls. Restarted, the program ends as if nothing had happened: what is left is replaced.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory, built
from conftest import Compile
from slices import PARTS, Tried

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed")]
SECONDS = 60.0
HOWS = pytest.mark.parametrize("how", ["k", "p"], ids=["all", "one"])


class Killed:
    """A run that has come to its end, with one checkpoint on the way."""

    def __init__(self, folder: Path, killer: Path) -> None:
        self.killer = killer
        self.case = Memory(folder, [built(folder, "much.c")])
        done = self.case.verb("run", "--memory", "--", *self.case.command)
        assert (self.case.native.status, done.returncode) == (5, 5), done
        self.calls = self.restart(0, "k")
        assert self.calls > 1000

    def restart(self, nth: int, how: str) -> int:
        """How many calls there were."""
        counted = self.case.folder / "counted"
        command = [self.killer, str(nth), how, self.case.store, counted, *METAMORI, "restart", "1"]
        done = subprocess.run(command, cwd=self.case.work, env=self.case.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=SECONDS, check=False)
        assert nth or done.returncode == 5, done
        return int(counted.read_text())

    def goes_on(self) -> None:
        self.case.goes_on(1)

    def is_whole(self) -> None:
        checked = self.case.verb("verify")
        assert checked.returncode == 0, checked.stderr


@pytest.fixture
def killed(tmp_path: Path, compiled: Compile) -> Killed:
    return Killed(tmp_path, compiled("killer"))


def test_killed_again_and_again(killed: Killed) -> None:
    """One after the other: what a killed one left is met by the next."""
    step = killed.calls // 6
    for nth in range(step // 2, killed.calls, step):
        killed.restart(nth, "kp"[nth // step % 2])
    killed.goes_on()
    killed.is_whole()


@pytest.mark.slow
@HOWS
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_call(killed: Killed, tried: Tried, how: str, part: int) -> None:
    def attempt(nth: int) -> None:
        killed.restart(nth, how)
        killed.goes_on()

    tried(range(1, killed.calls + 1), part, attempt)
    killed.is_whole()
