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

SPACE = """
import fcntl, os, struct
fd = os.open("old", os.O_RDWR)
os.lseek(fd, 4096, 0)
for number, whence, start, length in (43, 0, 8192, 4096), (57, 1, 8192, 100), (42, 2, 0, 8192), (40, 0, 0, 10), \\
        (41, 2, -4, 4), (41, 0, 0, -1), (41, 7, 0, 1):
    try:
        fcntl.ioctl(fd, 0x40305800 | number, struct.pack("@hhqqiI16x", 0, whence, start, length, 0, 0))
        print(number, os.fstat(fd).st_size, os.lseek(fd, 0, 1))
    except OSError as error:
        print(number, error.errno)
"""

BY_NUMBER = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
class Handle(ctypes.Structure):
    _fields_ = [("room", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_char * 128)]
handle, mount = Handle(128), ctypes.c_int()
found = libc.name_to_handle_at(-100, b"old", ctypes.byref(handle), ctypes.byref(mount), 0)
fd = libc.syscall(304, os.open(".", os.O_RDONLY), ctypes.byref(handle), os.O_RDWR)
print(found, os.pwrite(fd, b"X" * 4096, 4096))
at = libc.mmap(None, ctypes.c_size_t(8192), 1, 1, os.open("mapped", os.O_RDWR), ctypes.c_long(0))
print(libc.syscall(329, ctypes.c_void_p(at), ctypes.c_size_t(8192), 3, -1))
ctypes.memset(at, 7, 100)
place = ctypes.c_void_p(at), ctypes.c_size_t(8192)
print(libc.syscall(26, *place, 4), libc.syscall(28, *place, 4), libc.syscall(162))
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


@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
def test_space_reserved_and_given_back_by_ioctl(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    assert same(lab, native_lab, SPACE, options)[-2:] == ["41 22", "41 22"]


@pytest.mark.skipif(os.geteuid() != 0, reason="handles of files are for root")
@pytest.mark.parametrize("options", MODES, ids=["default", "isolate"])
def test_calls_by_number(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    assert same(lab, native_lab, BY_NUMBER, options) == ["0 4096", "0", "0 0 0"]


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


IN_GROUP = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
int main(int count, char **words)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child;
    posix_spawnattr_init(&attributes);
    attributes.__flags = 0x100;        /* POSIX_SPAWN_SETCGROUP of glibc 2.39 */
    (&attributes.__policy)[1] = open(words[count - 1], O_RDONLY | O_DIRECTORY);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    char *cat[] = { "cat", "/proc/self/cgroup", NULL }, *environment[] = { NULL };
    printf("%d ", posix_spawn(&child, "/bin/cat", &actions, &attributes, cat, environment));
    waitpid(child, &status, 0);
    printf("%d\n", status);
    return 0;
}
"""


def test_a_program_spawned_into_a_control_group(lab: Lab) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    mounted = [words[1] for words in mounts if words[2] == "cgroup2"]
    group = Path(mounted[0] if mounted else "/nowhere", f"metamori-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        program = lab.folder / "in_group"
        subprocess.run(["gcc", "-xc", "-", "-o", program], input=IN_GROUP.encode(), check=True)
        done = lab.run([program, group])
        assert (done.returncode, done.stdout, done.stderr) == (0, b"0 0\n", b"")
        assert f"0::/{group.name}\n" in (lab.work / "out").read_text()
    finally:
        group.rmdir()
