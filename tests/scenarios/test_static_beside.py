"""Static programs beside tracked ones, under limits of their own, below tracers, and what they start themselves."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab, wait_until
from stops import Stops
from test_errors import as_nobody
from test_static_kills import READY, goes_on
from test_static_paths import built
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static, open_folder, prepare, programs  # noqa: F401

OPENS = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int fd = open("late", O_RDWR);
    printf("%d\\n", fd < 0 ? errno : (int)pwrite(fd, "S", 1, 0));
    return 0;
}
"""

# the descriptor that it executes: of what it is given
FEXECVE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv, char **envp)
{
    (void)argc;
    return execveat(open(argv[1], O_PATH | O_CLOEXEC), "", argv + 1, envp, AT_EMPTY_PATH);
}
"""

BESIDE_EXEC = """
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
static char block[1 << 20];
static int written[4];
static void *writes(void *file)
{
    int fd = open(file, O_WRONLY | O_CREAT, 0600);
    for (;; __atomic_fetch_add(&written[*(char *)file - 'a'], 1, __ATOMIC_RELAXED))
        pwrite(fd, block, sizeof block, 0);
}
int main(int argc, char **argv)
{
    const char *names[] = { "a", "b", "c", "d" };
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, writes, (void *)names[i]);
    for (int i = 0; i < 4; i++)
        while (__atomic_load_n(&written[i], __ATOMIC_RELAXED) < 3)
            usleep(1000);
    execl(argv[argc - 1], "sh", "-c", "touch ready; until [ -e go ]; do sleep 0.1; done", NULL);
}
"""

HIDES = """
#include <fcntl.h>
#include <sys/prctl.h>
int main(void) { return prctl(PR_SET_DUMPABLE, 0) || open("made", O_CREAT | O_WRONLY, 0600) < 0; }
"""

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


@OPTIONS
def test_a_tracked_program_below_a_static_one_becomes_static(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """It writes its files back before: calls that are shown, and that nobody else may make, for it holds locks."""
    steps = [f"bash -c '{BUSYBOX} echo more >> log; :'; cat log",
             f"bash -c 'exec 3<> old; echo X >&3; {BUSYBOX} echo Y >&3; :'; head -c 8 old"]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


def test_threads_that_an_exec_ended_in_calls(lab: Lab) -> None:
    """Nobody waits for their calls: a checkpoint is taken while the static program runs."""
    prepare(lab)
    program = built(lab.folder, BESIDE_EXEC, ["-pthread"])
    with subprocess.Popen([*lab.argv("run"), "--", program, BUSYBOX], cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "ready").exists(), "the static program runs")
        done = lab.run(lab.argv("checkpoint"), native=True)
        (lab.work / "go").touch()
        assert done.returncode == 0, done.stderr
        assert run.wait(60) == 0


def test_a_file_that_comes_while_it_is_looked_for(lab: Lab) -> None:
    """Of one that was not there the program hears that, and does not get one that nobody follows."""
    stops = Stops(lab.folder / "stops")
    prepare(lab)
    program = built(lab.folder, OPENS)
    with subprocess.Popen([*lab.argv("run"), "--", "sh", "-c", f"{READY}; {program}"], cwd=lab.work,
                          env=lab.env | stops.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout and run.stdout.readline() == b"ready\n"
        stops.arm("proxy.made")
        goes_on(run)
        stops.wait("proxy.made")
        (lab.work / "late").write_text("late\n")
        stops.go("proxy.made")
        assert run.stdout.read() == b"2\n"
        assert run.wait(60) == 0
    assert (lab.work / "late").read_text() == "late\n"


def ordinary(lab: Lab) -> list[str]:
    prepare(lab)
    return as_nobody(lab)


@pytest.mark.parametrize("limit", ["ulimit -n 1024", "ulimit -f 8"])
def test_the_first_static_program_is_under_limits(open_folder: Path, limit: str) -> None:  # noqa: F811
    """They are not those of the others, nor is it the end of tracking if it cannot be tracked itself."""
    lab = Lab(open_folder, Path(BUSYBOX))
    begin = ordinary(lab)
    (lab.work / "old").write_bytes(b"o" * 300000)
    script = f"({limit}; {BUSYBOX} true); {BUSYBOX} sh -c 'printf X | dd of=old bs=1 seek=200000 conv=notrunc'"
    done = lab.run([*begin, *lab.argv("run"), "--", "bash", "-c", script], native=True)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("metamori")]
    assert len(said) == 1 and "it is static" in said[0]
    assert (lab.work / "old").read_bytes()[200000:200002] == b"Xo"
    assert lab.run([*begin, *lab.argv("restore", 0)], native=True).returncode == 0
    assert (lab.work / "old").read_bytes() == b"o" * 300000


def test_a_static_program_that_hides_its_memory(open_folder: Path) -> None:  # noqa: F811
    lab = Lab(open_folder, Path(BUSYBOX))
    begin = ordinary(lab)
    done = lab.run([*begin, *lab.argv("run"), "--", built(lab.folder, HIDES)], native=True)
    assert done.returncode == 0 and (lab.work / "made").exists()
    why = "it hides its memory. Its files are not checkpointed"
    assert re.fullmatch(f"metamori: .* cannot be tracked: {why}\n", done.stderr.decode())


def test_nobody_copies_a_program_to_try_a_filter(open_folder: Path) -> None:  # noqa: F811
    """That is tried for each static program where no_new_privs would stay; the copy of a large one takes long."""
    lab = Lab(open_folder, Path(BUSYBOX))
    begin, calls = ordinary(lab), lab.folder / "calls"
    traced = [*begin, "strace", "-f", "-e", "trace=clone,vfork", "-o", calls]
    if not shutil.which("strace") or lab.run([*traced, "true"], native=True).returncode:
        pytest.skip("no strace here")
    script = f"{BUSYBOX} true; {BUSYBOX} rm log; :"
    done = lab.run([*traced, *lab.argv("run"), "--", "sh", "-c", script], native=True)
    assert (done.returncode, done.stderr) == (0, b"")
    ours = [line for line in calls.read_text().splitlines() if "CLONE_UNTRACED" in line]
    assert len(ours) == 3 and sum("CLONE_VM|CLONE_VFORK" in line for line in ours) == 2    # and the proxy's start
    assert not (lab.work / "log").exists()


def small(machine: int, bits: int, code: bytes) -> bytes:
    """A program that is nothing but these instructions."""
    at = 0x400000
    if bits == 2:
        head = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, at + 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        part = struct.pack("<IIQQQQQQ", 1, 5, 0, at, at, 120 + len(code), 120 + len(code), 4096)
    else:
        head = struct.pack("<HHIIIIIHHHHHH", 2, machine, 1, at + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
        part = struct.pack("<IIIIIIII", 1, 0, at, at, 84 + len(code), 84 + len(code), 5, 4096)
    return b"\x7fELF" + bytes((bits, 1, 1)) + bytes(9) + head + part + code


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86 instructions")
def test_a_32_bit_program_below_a_static_one(lab: Lab) -> None:
    """No filter shows its calls: said once."""
    program = lab.folder / "small"
    program.write_bytes(small(3, 1, bytes.fromhex("31db b801000000 cd80".replace(" ", ""))))       # exit(0)
    program.chmod(0o755)
    if subprocess.run([program], check=False).returncode:
        pytest.skip("no 32-bit programs here")
    done = lab.run([BUSYBOX, "sh", "-c", f"{program}; {program}; echo > made"])
    assert done.returncode == 0
    said = rb"metamori: \S+small cannot be tracked: it is a 32-bit program\. Its files are not checkpointed\n"
    assert re.fullmatch(said, done.stderr)


def test_a_static_program_executes_a_descriptor(lab: Lab, programs: Callable[[str], Path]) -> None:  # noqa: F811
    """AddressSanitizer's runtime would end a program that comes with our library before it."""
    prepare(lab)
    done = lab.run([built(lab.folder, FEXECVE), programs("asan")])
    assert (done.returncode, done.stderr) == (0, b"")
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"} and (lab.work / "log").read_text() == "first\n"


def test_a_tracer_sees_nothing_of_ours(lab: Lab) -> None:
    calls = lab.folder / "calls"
    if not shutil.which("strace") or lab.run(["strace", "-o", calls, "true"], native=True).returncode:
        pytest.skip("no strace here")
    prepare(lab)
    done = lab.run(["strace", "-f", "-o", calls, BUSYBOX, "rm", "log"])
    assert (done.returncode, done.stderr) == (0, b"")
    assert "metamori-proxy" not in calls.read_text() and "unlink" in calls.read_text()
    lab.restore(0)
    assert set(lab.state()) == {"old", "log"}
