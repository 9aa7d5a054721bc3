"""A run with memory is killed at a system call that changes a file: in a checkpoint, a commit, a rollback, a restart.

All processes, or the one that makes the call: the program, its child, an image's writer, metamori; before the call
happens, or when it has been done.

Afterwards the program continues from the newest and the first index that it was told of, and ends as if nothing had
happened. `make test` takes some of the calls, `make kills` every one of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from comeback import METAMORI, Memory
from conftest import Compile
from lab import ROOT, difference, picture
from slices import PARTS, Tried
from test_kill_points import killing
from tracing import Decide, Traced, go, trace

pytestmark = pytest.mark.usefixtures("installed")
SETUP = {"table": b"oldvalue" * 600, **{f"part{i}": b"x" * (i + 1) for i in range(4)}}


class Trial:
    """One program in a folder that is made anew for each attempt."""

    def __init__(self, folder: Path, tracer: Path, *words: str) -> None:
        self.folder, self.tracer, self.words = folder, tracer, words
        self.program = folder / "tries"
        source = ROOT / "tests" / "memory" / "programs" / "tries.c"
        subprocess.run(["gcc", "-O1", f"-I{ROOT / 'shim_c' / 'include'}", source, "-o", self.program], check=True)

    def prepare(self) -> None:
        place = self.folder / "lab"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.case = Memory(place, [self.program, *self.words], setup=SETUP)
        assert self.case.native.status == 5

    def traced(self, *words: object, decide: Decide = go) -> Traced:
        return trace(self.tracer, [*METAMORI, *words], self.case.folder, decide, cwd=self.case.work,
                     env=self.case.environment())

    def run(self, decide: Decide = go) -> Traced:
        self.prepare()
        return self.traced("run", "--memory", "--", *self.case.command, decide=decide)

    def restart(self, decide: Decide = go) -> Traced:
        """From the first checkpoint of a run that has come to its end."""
        self.prepare()
        done = self.case.verb("run", "--memory", "--", *self.case.command)
        assert done.returncode == 5, done
        return self.traced("restart", "1", decide=decide)

    def check(self, done: Traced) -> None:
        taken = [int(word) for word in re.findall(rb"^taken (\d+)$", done.stderr, re.MULTILINE)]
        if not (self.case.store / "format").exists():
            assert not taken and picture(self.case.work).keys() == SETUP.keys()
            return
        log = self.case.log()
        held = [each["index"] for each in log["checkpoints"] if each["memory"]]
        assert set(taken) <= set(held), "reported, and not there"
        for index in {*held[-1:], *taken[:1]}:
            self.goes_on(index)
        if not held:
            assert self.case.verb("restore", "0").returncode == 0
            assert {name: each.content for name, each in picture(self.case.work).items()} == SETUP
        assert self.case.verb("verify").returncode == 0

    def goes_on(self, index: int) -> None:
        again = self.case.verb("restart", str(index))
        assert again.returncode == 5, (index, again)
        assert difference(picture(self.case.work), self.case.native.files) == "", index


@pytest.fixture(params=[(), ("child",)], ids=["alone", "tree"])
def trial(tmp_path: Path, compiled: Compile, request: pytest.FixtureRequest) -> Trial:
    return Trial(tmp_path, compiled("tracer"), *request.param)


def killed_at(trial: Trial, what: str, nth: int, how: str) -> None:
    done = getattr(trial, what)(killing(nth, how))
    try:
        trial.check(done)
    except BaseException:
        print(f"{what} killed ({how}) at call {nth} of {len(done.calls)}: {done.calls[min(nth, len(done.calls)) - 1]}; "
              f"{done.stderr!r}")
        raise


WAYS = pytest.mark.parametrize("how", ["k", "p", "x", "y"], ids=["all", "one", "all-after", "one-after"])


@pytest.mark.in_turn("how")
@WAYS
@pytest.mark.parametrize("what", ["run", "restart"])
def test_killed_at_some_calls(trial: Trial, what: str, how: str) -> None:
    total = len(getattr(trial, what)().calls)
    step = total // (4 if how in "kp" else 2)
    for nth in range(1 + ord(how) * 7 % step, total, step):
        killed_at(trial, what, nth, how)


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("what", ["run", "restart"])
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_with_memory_at_every_call(trial: Trial, tried: Tried, what: str, how: str, part: int) -> None:
    calls = range(1, len(getattr(trial, what)().calls) + 1)
    tried(calls, part, lambda nth: killed_at(trial, what, nth, how))
