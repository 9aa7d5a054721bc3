"""A process belongs to its run from the instant on at which it exists: it may begin when its parent has ended."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROOT, Lab, gone, picture, wait_until
from stops import Stops

# The child's first call is on no open file, its next on one, and then it becomes another program. The stop point is
# armed by no call that the library sees.
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
static char *next[] = { "sh", "-c", "echo more >> old; echo new > new; mv new newest; echo > done", NULL };
static void child(void)
{
    int fd = mkdir("folder", 0700) == 0 ? open("old", O_WRONLY | O_APPEND) : -1;
    if (write(fd, "child", 5) == 5)
        execv("/bin/sh", next);
    _exit(1);
}
int main(int count, char **words)
{
    const char *how = words[count - 2], *point = words[count - 1];
    long pid = 1, r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_open), "D"(point), "S"(O_CREAT | O_WRONLY), "d"(0600)
                     : "rcx", "r11", "memory");
    if (strcmp(how, "fork") == 0)
        pid = fork();
    else if (strcmp(how, "raw") == 0)
        pid = syscall(SYS_fork);
    else if (strcmp(how, "spawn") == 0)
        posix_spawn((pid_t *)&pid, "/bin/sh", NULL, NULL, next, environ);
    else if (!popen(next[2], "w"))
        return 1;
    if (pid == 0)
        child();
    return 3;
}
"""
POINTS = {"fork": "fork.child", "raw": "fork.child", "spawn": "init.joins", "popen": "init.joins"}
EITHER = pytest.mark.parametrize("is_by_hand", [False, True], ids=["run", "by hand"])


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-Wall", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


def parent_ended(lab: Lab, program: Path, how: str, is_by_hand: bool) -> Stops:
    """The child stands before its first step."""
    (lab.work / "old").write_bytes(b"o" * 5000)
    stops = Stops(lab.folder / "stops")
    words, env = [str(program), how, str(stops.folder / POINTS[how])], lab.env | stops.env
    if is_by_hand:
        env |= {"LD_PRELOAD": str(ROOT / "metamori" / "libmetamori-checked.so"), "METAMORI_STORE": str(lab.store),
                "METAMORI_PYTHON": sys.executable}  # fmt: skip
        (lab.work / "begins").touch()      # by hand a run begins with the first change
        words = ["sh", "-c", 'echo > begins; exec "$@"', "sh", *words]
    else:
        words = [*lab.argv("run"), "--", *words]
    quiet = subprocess.DEVNULL
    run = subprocess.Popen(words, env=env, cwd=lab.work, stdin=quiet, stdout=quiet, stderr=quiet)
    stops.wait(POINTS[how])
    assert run.wait(60) == 3
    return stops


def all_is_in_an_index(lab: Lab) -> None:
    wait_until(lambda: not (lab.store / "run").exists(), "the end of the run")
    assert (lab.work / "done").exists()
    after, said = picture(lab.work), lab.verb("status")
    assert "outside" not in said.stdout and "killed" not in said.stdout + said.stderr
    last = lab.log()["checkpoints"][-1]["index"]
    lab.verb("restore", 0)
    assert (lab.work / "old").read_bytes() == b"o" * 5000
    assert not (lab.work / "newest").exists()
    lab.verb("restore", last)
    assert picture(lab.work) == after


@EITHER
@pytest.mark.parametrize("how", POINTS)
def test_it_begins_when_its_parent_has_ended(lab: Lab, program: Path, how: str, is_by_hand: bool) -> None:
    """The run was over after two seconds; it ended at its first call, with status 0, or nobody tracked it."""
    stops = parent_ended(lab, program, how, is_by_hand)
    lab.checkpoint()                       # for which a run must be alive
    stops.go(POINTS[how])
    all_is_in_an_index(lab)


def stopped_child(program: Path) -> int:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if os.readlink(f"/proc/{pid}/exe") == str(program):
                return pid
        except OSError:
            continue
    raise AssertionError("no child")


@pytest.mark.parametrize("limit", [150, 1024])
def test_what_tells_of_it_is_out_of_the_programs_way(lab: Lab, program: Path, limit: int) -> None:
    """Where the limit could be raised it had the lowest number, which is for what another thread opens."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        stops = parent_ended(lab, program, "fork", False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    folder, header = Path(f"/proc/{stopped_child(program)}/fd"), str(lab.store / "run" / "header")
    numbers = [int(each.name) for each in folder.iterdir() if os.readlink(each) == header]
    stops.go("fork.child")
    all_is_in_an_index(lab)
    assert len(numbers) == 1 and numbers[0] >= 100


@EITHER
def test_it_is_killed_before_it_begins(lab: Lab, program: Path, is_by_hand: bool) -> None:
    """Nobody waits for it any more."""
    parent_ended(lab, program, "fork", is_by_hand)
    child = stopped_child(program)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: gone(child), "its end")
    lab.verb("restore", 0)
    assert not (lab.store / "run").exists()


@EITHER
def test_it_is_stopped_before_it_begins(lab: Lab, program: Path, is_by_hand: bool) -> None:
    stops = parent_ended(lab, program, "fork", is_by_hand)
    child = stopped_child(program)
    os.kill(child, signal.SIGSTOP)
    stops.go("fork.child")
    lab.checkpoint()
    os.kill(child, signal.SIGCONT)
    all_is_in_an_index(lab)
