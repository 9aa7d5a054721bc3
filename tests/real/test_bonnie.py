"""Debian's Bonnie++, unmodified, to its end, with a checkpoint from outside while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from lab import Lab

BONNIE = shutil.which("bonnie++", path=os.environ.get("PATH", "") + ":/usr/sbin")
pytestmark = pytest.mark.skipif(not BONNIE, reason="bonnie++ is not installed")


def bonnie(lab: Lab, megabytes: int, options: list[str], patience: float) -> None:
    held = lab.folder / "taken"            # until this is there it begins again: never through before a checkpoint
    again = 'while "$@" || exit; do [ ! -e "$0" ] || break; done'
    command = [
        *lab.argv("run", *options), "--", "sh", "-c", again, str(held), str(BONNIE), "-q", "-d", ".",
        "-s", f"{megabytes}m", "-r", str(megabytes // 2), "-n", "0",
        "-u", "root" if os.getuid() == 0 else str(os.getuid()),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=lab.work, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    taken = []
    try:
        while not taken or (process.poll() is None and len(taken) < 3):
            done = lab.verb("checkpoint", code=None)
            if done.returncode == 0:
                taken.append(int(done.stdout))
                held.touch()
            elif process.poll() is not None:
                break
        out, errors = process.communicate(timeout=patience)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    lines = out.strip().splitlines()
    assert lines and all(len(line.split(",")) > 20 for line in lines), "a line of CSV each, nothing of ours"
    assert taken, "no checkpoint could be taken while it ran"
    assert not list(lab.work.iterdir()), "Bonnie++ removes its files"
    lab.verb("verify")


@pytest.mark.in_turn("options", 2)
@pytest.mark.parametrize(
    "options", [[], ["--isolate", "--cache-size", "0"], ["--isolate", "--cache-size", "25M"]], ids=" ".join
)
def test_small(lab: Lab, options: list[str]) -> None:
    bonnie(lab, 64, options, 120)


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["", "0", "25M", "50M", "100M"])
def test_two_gigabytes(lab: Lab, cache: str) -> None:
    bonnie(lab, 2048, ["--isolate", "--cache-size", cache] if cache else [], 1200)
