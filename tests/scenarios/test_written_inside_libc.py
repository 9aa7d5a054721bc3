"""Functions of the C library that write, allocate or open by calls inside it or inside the kernel: the same files as
natively, and every index as before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from lab import Lab

OLD = bytes(range(256)) * 64
MODES = [[], ["--isolate"]]

LINES = """
import ctypes, os
libc = ctypes.CDLL(None)
fd = os.open("old", os.O_RDWR)
os.dup2(fd, 2)
os.pwrite(fd, b"X" * 4096, 4096)
os.lseek(fd, 4100, 0)
libc.herror(b"host")
libc.herror(None)
libc.backtrace_symbols_fd((ctypes.c_void_p * 2)(16, 32), 2, fd)
print(libc.dprintf(fd, b"%s %d\\n", b"long" * 700, 5), libc.dprintf(fd, b"%d%%\\n", 7), os.lseek(fd, 0, 1))
reader = os.open("old", os.O_RDONLY)
print(libc.dprintf(reader, b"text"), libc.__dprintf_chk(fd, 1, b"%s", b"checked"), os.lseek(fd, 0, 1))
"""

SHARED = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
name = sys.argv[1].encode()
fd = libc.shm_open(b"/" + name, os.O_RDWR, 0)
print(os.pwrite(fd, b"X" * 4096, 4096), libc.shm_unlink(name + b"-gone"), libc.shm_unlink(name + b"-none"),
      libc.shm_open(b"a/b", os.O_RDWR, 0), os.get_inheritable(fd))
"""

CANCELLED = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
static int came;
static const char *mode;
static FILE *f;
static void *writes(void *path)
{
    f = fopen(path, mode);
    pthread_cancel(pthread_self());
    fputs("text", f);
    fflush(f);
    came = 1;
    fclose(f);
    came = 2;
    pthread_testcancel();
    came = 3;
    return NULL;
}
int main(int count, char **words)
{
    pthread_t thread;
    mode = words[count - 1];
    pthread_create(&thread, NULL, writes, words[1]);
    pthread_join(thread, NULL);
    printf("%d\n", came);
    return 0;
}
"""


def same(lab: Lab, native_lab: Lab, program: str, options: list[str]) -> list[str]:
    """What it prints, natively too; the files are the same, and index 0 as before."""
    for each in (lab, native_lab):
        for name in ("old", "mapped"):
            (each.work / name).write_bytes(OLD)
    before = lab.state()
    native = native_lab.run(["/usr/bin/python3", "-c", program], native=True)
    done = lab.run(["/usr/bin/python3", "-c", program], *options)
    assert (done.returncode, done.stdout, done.stderr) == (native.returncode, native.stdout, native.stderr)
    lab.assert_state(native_lab.state(), "the end")
    lab.restore(0)
    lab.assert_state(before, "restore 0")
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
def test_lines_that_no_stream_writes(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    assert len(same(lab, native_lab, LINES, options)) == 2


def test_shared_memory_in_the_scope(lab: Lab) -> None:
    name = f"metamori-test-{os.getpid()}"
    paths = [Path("/dev/shm", name), Path("/dev/shm", f"{name}-gone")]
    try:
        for path in paths:
            path.write_bytes(OLD)
        done = lab.run(["/usr/bin/python3", "-c", SHARED, name], "--track", "/dev/shm")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"4096 0 -1 -1 False\n", b"")
        assert paths[0].read_bytes()[4096:8192] == b"X" * 4096 and not paths[1].exists()
        lab.restore(0)
        assert [path.read_bytes() for path in paths] == [OLD, OLD]
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("mode", ["w", "wc"])
def test_a_stream_that_is_not_cancelled(lab: Lab, mode: str) -> None:
    program = lab.folder / "cancelled"
    subprocess.run(["gcc", "-xc", "-", "-pthread", "-o", program], input=CANCELLED.encode(), check=True)
    native = lab.run([program, "native", mode], native=True)
    assert native.stdout == (b"2\n" if mode == "wc" else b"0\n")
    assert lab.run([program, "file", mode]).stdout == native.stdout
