"""A program that has used up its descriptors: whatever needs none natively needs none here, at each kind of limit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab, difference

MODES = [[], ["--isolate"], ["--mode", "single"]]


@pytest.mark.parametrize("options", MODES, ids=lambda words: " ".join(words) or "default")
@pytest.mark.parametrize("how", ["own", "soft", "hard"])
def test_same_as_natively(lab: Lab, native_lab: Lab, compiled: Compile, how: str, options: list[str]) -> None:
    """own: a limit that the program sets; soft: it begins under one; hard: and nobody may raise that."""
    command = [compiled("exhausted"), *([] if how == "own" else [how])]
    wanted = native_lab.run(command, native=True)
    assert b"= -1 EMFILE" in wanted.stdout, "it has used up its descriptors"
    done = lab.run(command, *options)
    assert done.stdout.decode().splitlines() == wanted.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (wanted.returncode, wanted.stderr)
    wrong = difference(lab.state(), native_lab.state())
    assert not wrong, wrong
    if "single" not in options:
        end = lab.state()
        lab.restore(0)
        assert not lab.state()
        lab.restore(max(lab.messages()))
        lab.assert_state(end, "after going to the end again")


NONE_LEFT = r"""
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    struct rlimit none = { 3, 3 };
    if (fork() == 0)
        return setrlimit(RLIMIT_NOFILE, &none);
    wait(0);
    return setrlimit(RLIMIT_NOFILE, &none);
}
"""


def test_who_can_look_at_nobody_takes_nobody_for_dead(lab: Lab, tmp_path: Path) -> None:
    """It took itself for the last of the run, whose end it was to write: the embedded Python could not start."""
    (tmp_path / "none.c").write_text(NONE_LEFT)
    subprocess.run(["gcc", "-o", lab.work / "none", tmp_path / "none.c"], check=True)
    done = lab.run(["./none"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
