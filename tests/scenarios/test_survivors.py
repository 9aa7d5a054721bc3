"""Processes that outlive the command, in lockstep with the end of the run: what they do last becomes an index, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab import Lab, picture, wait_until

HELD = r"""
import os, sys, time
from metamori.cli.main import main
from metamori.runtime.lifecycle import end_run

point = sys.argv.pop(1)
def held(*args, **named):
    result = call(*args, **named) if point == "finish" else None
    open("go", "w").close()
    while not os.path.exists("done") and os.path.exists("go"):
        time.sleep(0.002)
    while point == "finish" and not os.path.exists("in") and args[0].area.pids():
        time.sleep(0.002)
    return result if point == "finish" else call(*args, **named)
call = getattr(end_run, point)
setattr(end_run, point, held)
sys.exit(main())
"""
DESTRUCTOR = r"""
#include <fcntl.h>
#include <unistd.h>
void linked(void) { }
__attribute__((destructor)) static void last(void)
{
    close(open("in", O_WRONLY | O_CREAT, 0600));
    while (access("slow", F_OK) == 0)
        usleep(1000);
}
"""
PROGRAM = r"""
#include <fcntl.h>
#include <unistd.h>
void linked(void);
int main(void)
{
    while (access("go", F_OK) != 0)
        usleep(1000);
    linked();
    int fd = open("old", O_WRONLY | O_APPEND);
    if (write(fd, "more", 4) != 4)
        return 1;
    return close(open("done", O_WRONLY | O_CREAT, 0600));
}
"""


def run(lab: Lab, point: str, script: str) -> None:
    """A run that stops at a point of its end until the survivor has made `done`, and after a finish until it ends."""
    (lab.work / "old").write_bytes(b"o" * 5000)
    words = [sys.executable, "-c", HELD, point, *lab.argv("run")[3:], "--", "sh", "-c"]
    done = lab.run([*words, f"exec >/dev/null 2>&1 </dev/null; {script}"], native=True)
    assert done.returncode == 3, done.stderr


def everything_back(lab: Lab) -> None:
    wait_until(lambda: not (lab.store / "run").exists(), "the end of the run")
    after, said = picture(lab.work), lab.verb("status")
    assert "outside" not in said.stdout and "killed" not in said.stdout + said.stderr
    last = lab.log()["checkpoints"][-1]["index"]
    lab.verb("restore", 0)
    assert (lab.work / "old").read_bytes() == b"o" * 5000
    assert not (lab.work / "done").exists()
    lab.verb("restore", last)
    assert picture(lab.work) == after


def test_it_ends_amid_the_end_of_the_run(lab: Lab) -> None:
    """After the last index was taken, and before it would commit at its own end."""
    run(lab, "finish", "(while [ ! -e go ]; do sleep 0.05; done; echo more >> old; echo > done) & exit 3")
    everything_back(lab)


def test_it_takes_long_over_its_end(lab: Lab, tmp_path: Path) -> None:
    """It had left the end to `metamori run`, which thought that it would do it."""
    for name, code, words in (("liblast.so", DESTRUCTOR, ["-shared", "-fPIC"]), ("survivor", PROGRAM, [])):
        (tmp_path / f"{name}.c").write_text(code)
        linked = [] if words else [f"-L{tmp_path}", "-Wl,--no-as-needed", "-llast", f"-Wl,-rpath,{tmp_path}"]
        subprocess.run(["gcc", *words, "-o", tmp_path / name, tmp_path / f"{name}.c", *linked], check=True)
    (lab.work / "slow").touch()
    run(lab, "finish", f"{tmp_path}/survivor & exit 3")
    os.unlink(lab.work / "slow")
    everything_back(lab)


def test_it_becomes_another_program_when_the_end_begins(lab: Lab) -> None:
    """That one joins the run."""
    wait = "while [ ! -e go ]; do sleep 0.05; done", "while [ -e go ]; do sleep 0.05; done"
    run(lab, "has_staying", f"({wait[0]}; sh -c 'echo more >> old; echo > done'; {wait[1]}) & exit 3")
    os.unlink(lab.work / "go")
    everything_back(lab)
