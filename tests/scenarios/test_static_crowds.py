"""More calls of static programs at once than the process that makes them has threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab, wait_until
from test_static_kills import goes_on, program_of, waits_in_proxy
from test_static_paths import built
from test_static_programs import BUSYBOX, is_static

from metamori.runtime.area.run_area import Area

THREADS, SERVED = 300, 256

CROWD = """
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *common;

static void *opens(void *number)
{
    char name[16];
    sprintf(name, "f%ld", (long)number);
    int fd = open(common ? common : name, common ? O_WRONLY : O_WRONLY | O_TRUNC);
    return (void *)(long)(fd < 0 || close(fd));
}

int main(int count, char **argument)
{
    static pthread_t all[1000];
    pthread_attr_t small;
    void *failed;
    int threads = atoi(argument[1]), bad = 0;
    common = argument[2];
    puts("ready"), fflush(stdout), getchar();
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN + 16384);
    for (long i = 0; i < threads; i++)
        bad |= pthread_create(&all[i], &small, opens, (void *)i);
    if (common) {
        getchar();                     /* when they wait */
        bad |= mkdir("made", 0755);
        puts("made"), fflush(stdout);
    }
    for (int i = 0; i < threads; i++)
        bad |= pthread_join(all[i], &failed) || failed;
    return bad;
}
"""
LEASES = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("ready", flush=True)
input()
"""

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


@contextmanager
def crowd(lab: Lab, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    program = built(lab.folder, CROWD, ("-static", "-pthread"))
    with subprocess.Popen([*lab.argv("run"), "--", program, str(THREADS), *words], cwd=lab.work, env=lab.env,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        yield run


def test_more_calls_than_threads_amid_a_checkpoint(lab: Lab) -> None:
    """They wait for its end, all of them."""
    files = [lab.work / f"f{number}" for number in range(THREADS)]
    for each in files:
        each.write_bytes(b"o" * 5000)
    with crowd(lab) as run:
        area, tasks = Area(str(lab.store)), Path(f"/proc/{program_of(run)}/task")
        with area.session_lock(), area.frozen():
            goes_on(run)
            wait_until(lambda: waits_in_proxy(lab) >= SERVED - 3, "calls that wait")
            wait_until(lambda: len(os.listdir(tasks)) == THREADS + 1, "all threads")
            assert {each.stat().st_size for each in files} == {5000}
        assert run.stderr
        assert (run.wait(60), run.stderr.read()) == (0, b"")
    assert {each.stat().st_size for each in files} == {0}
    lab.restore(0)
    assert {each.read_bytes() for each in files} == {b"o" * 5000}


@pytest.mark.slow
def test_more_calls_than_threads_that_wait_for_long(lab: Lab) -> None:
    """For something else than a checkpoint: others are not to wait for them. It is said."""
    (lab.work / "leased").write_bytes(b"o" * 5000)
    with subprocess.Popen([sys.executable, "-c", LEASES, lab.work / "leased"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as holder, crowd(lab, "leased") as run:
        assert holder.stdout and holder.stdout.readline() == b"ready\n"
        goes_on(run)
        tasks = Path(f"/proc/{program_of(run)}/task")
        wait_until(lambda: len(os.listdir(tasks)) == THREADS + 1, "all threads")
        goes_on(run)
        assert run.stdout and run.stdout.readline() == b"made\n"
        assert len(os.listdir(tasks)) == THREADS + 1
        goes_on(holder)
        assert run.wait(60) == 0
        said = "it makes too many calls at once. Some of its changes are not checkpointed"
        assert run.stderr and run.stderr.read().decode() == f"metamori: program cannot be tracked: {said}\n"
