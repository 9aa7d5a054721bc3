"""Static programs: names of what they have open and where they are, where they work, and calls seldom made."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import built_once
import pytest
from lab import Lab
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static

pytestmark = pytest.mark.skipif(not is_static(BUSYBOX), reason="no static busybox")


@OPTIONS
def test_names_in_proc(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """/proc/self is the program's own, and so are /dev/fd and /dev/stdout."""
    steps = [
        "exec 3< log; echo proc > /proc/self/fd/3; exec 3<&-; cat log",
        "exec 4< old; printf X > /dev/fd/4; chmod 600 /proc/$$/fd/4; exec 4<&-",
        "mkdir d; cd d; echo in > /proc/self/cwd/made; mv /proc/self/cwd/made /proc/thread-self/cwd/moved; cd ..",
        "(exec > out; echo one; echo two > /dev/stdout)",
        "(exec 5< d 6< log; cd /; echo far > proc/self/fd/5/far; echo more >> .//proc/self/fd/6)",
        "(exec 5< log; cd /; echo again >> /..//./proc/self/fd/5; rm /../proc/self/fd/5/x 2> log || echo refused)",
    ]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


@pytest.fixture
def in_dev(installed: None) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        lab = Lab(Path(name), Path(BUSYBOX))
        lab.env["METAMORI_TRACK"] = name
        yield lab
        lab.close()


@OPTIONS
def test_a_folder_below_dev(in_dev: Lab, native_lab: Lab, options: list[str]) -> None:
    """Scratch space in memory: tracked when a run is asked for it."""
    steps = [
        f"echo one > one; echo more >> log; {BUSYBOX} dd if=log of=old bs=3 seek=5 conv=notrunc 2> /dev/null",
        f"chmod 600 log; mv one two; echo > $PWD/three; mkdir d; {BUSYBOX} cp two $PWD/d; rm old",
    ]
    every_index(in_dev, native_lab, [BUSYBOX, "sh"], steps, options)


PROGRAM = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void flags(void)
{
    static const int asked[] = { O_WRONLY, O_RDWR | O_CREAT, O_WRONLY | O_APPEND | O_CLOEXEC,
                                 O_RDWR | O_CREAT | O_NONBLOCK, O_WRONLY | O_NOATIME, O_WRONLY | O_ASYNC | O_SYNC,
                                 O_RDWR | O_CREAT | O_NOFOLLOW };
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        int fd = open(i < 6 ? "log" : "made", asked[i], 0600);
        printf("%d %x %x %d\\n", fd, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD), fcntl(fd, F_GETSIG));
        close(fd);
    }
}

static void how_of_tomorrow(void)
{
    struct { struct open_how how; long more[2]; } given = { { .flags = O_CREAT | O_WRONLY, .mode = 0600 }, { 0 } };
    int fd = syscall(SYS_openat2, AT_FDCWD, "tomorrow", &given, sizeof given);
    printf("%d %d\\n", fd >= 0, (int)write(fd, "more", 4));
    given.more[1] = 1;
    printf("%ld\\n", syscall(SYS_openat2, AT_FDCWD, "refused", &given, sizeof given));
}

static void refused(const char *name)
{
    static const struct open_how asked[] = {
        { .flags = O_WRONLY | O_TRUNC | 0x40000000 }, { .flags = O_WRONLY | O_CREAT | 0x40000000, .mode = 0600 },
        { .flags = O_WRONLY | O_TRUNC, .resolve = RESOLVE_CACHED },
        { .flags = O_WRONLY | O_CREAT, .mode = 0600, .resolve = RESOLVE_CACHED },
        { .flags = O_WRONLY | O_TRUNC | O_PATH }, { .flags = O_WRONLY | __O_TMPFILE },
        { .flags = O_WRONLY | O_CREAT, .mode = 010600 }, { .flags = O_WRONLY, .mode = 0600 },
        { .flags = O_WRONLY, .resolve = RESOLVE_BENEATH | RESOLVE_IN_ROOT },
    };
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        errno = 0;
        printf("%s %u %ld", name, i, syscall(SYS_openat2, AT_FDCWD, name, &asked[i], sizeof *asked));
        printf(" %d\\n", errno);
    }
    errno = 0;
    printf("%d", openat(AT_FDCWD, name, O_WRONLY | __O_TMPFILE, 0600));
    printf(" %d\\n", errno);
}

static void by_handle(void)
{
    struct { struct file_handle head; char rest[MAX_HANDLE_SZ]; } handle = { .head.handle_bytes = MAX_HANDLE_SZ };
    int mount, here = open(".", O_RDONLY);
    printf("%d\\n", name_to_handle_at(AT_FDCWD, "old", &handle.head, &mount, 0));
    int fd = open_by_handle_at(here, &handle.head, O_WRONLY);
    printf("%d %d\\n", fd >= 0, (int)pwrite(fd, "by handle", 9, 4000));
    printf("%d\\n", open_by_handle_at(AT_FDCWD, &handle.head, O_RDWR | O_TRUNC | O_DIRECTORY));
}

static void sockets(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "socket" };
    struct sockaddr_un other = { .sun_family = AF_UNIX, .sun_path = "/no/socket" };
    int one = socket(AF_UNIX, SOCK_STREAM, 0), two = socket(AF_UNIX, SOCK_STREAM, 0);
    umask(027);
    printf("%d\\n", bind(one, (void *)&name, sizeof name));
    printf("%d %d\\n", bind(one, (void *)&name, sizeof name), bind(two, (void *)&name, sizeof name));
    printf("%d\\n", bind(two, (void *)&other, sizeof other));
    printf("%d %d\\n", listen(one, 1), connect(two, (void *)&name, sizeof name));
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1) {
        sockets();
        return 0;
    }
    flags();
    how_of_tomorrow();
    refused("old");
    refused("missing");
    by_handle();
    return 0;
}
"""

OF_A_GROUP = """
#include <fcntl.h>
#include <sys/fsuid.h>
static int makes(const char *name) { return open(name, O_CREAT | O_WRONLY, 0600) >= 0; }
int main(void) { return !makes("before") || setfsgid(1234) || !makes("after"); }
"""

BENEATH = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **argument)
{
    struct open_how how = { .flags = O_WRONLY | O_TRUNC, .resolve = RESOLVE_BENEATH };
    return count != 2 || chdir("/") || syscall(SYS_openat2, AT_FDCWD, argument[1] + 1, &how, sizeof how) < 0;
}
"""


def built(folder: Path, text: str, flags: Sequence[str] = ("-static",)) -> str:
    program = folder / "program"
    program.with_suffix(".c").write_text(text)
    try:
        built_once.build(["gcc", "-w", *flags, program.with_suffix(".c")], program)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no static C library")
    return str(program)


@OPTIONS
def test_seldom_calls(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """By a handle, with more than openat2 takes today; a file's flags are those that were asked for."""
    every_index(lab, native_lab, [built(lab.folder, PROGRAM)], [""], options)


def test_a_path_beneath_the_root(lab: Lab) -> None:
    """Where it works in `/`; by openat2, which refuses what begins there."""
    (lab.work / "old").write_bytes(b"o" * 300_000)
    done = lab.run([built(lab.folder, BENEATH), lab.work / "old"])
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "old").read_bytes() == b""
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 300_000


def test_a_socket(lab: Lab, native_lab: Lab) -> None:
    """Its name is one that the run made."""
    program = built(lab.folder, PROGRAM)
    natively, done = native_lab.run([program], native=True), lab.run([program])
    assert (done.returncode, done.stdout) == (natively.returncode, natively.stdout)
    assert lab.state() == native_lab.state() != {}
    lab.restore(0)
    assert lab.state() == {}


def test_a_group_for_files(lab: Lab) -> None:
    """By setfsgid: what is made is that group's."""
    if os.geteuid() != 0:
        pytest.skip("it takes another group")
    done = lab.run([built(lab.folder, OF_A_GROUP)])
    assert done.returncode == 0
    why = b"metamori: program cannot be tracked: it has another user, group, "
    assert done.stderr.count(why) == done.stderr.count(b"\n") == 1, done.stderr
    assert [(lab.work / name).stat().st_gid for name in ("before", "after")] == [0, 1234]


def test_in_another_user_namespace(lab: Lab) -> None:
    """What is started below a static program, and then looks at users in its own way: said once."""
    other = ["unshare", "-Ur", BUSYBOX, "sh", "-c", "echo a > f; echo b > g; mv f h"]
    if subprocess.run([*other[:2], "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of users")
    done = lab.run([BUSYBOX, "sh", "-c", shlex.join(other) + "; echo c > i"])
    assert done.returncode == 0
    assert done.stderr.count(b"metamori: unshare cannot be tracked: ") == done.stderr.count(b"\n") == 1, done.stderr
    assert set(lab.state()) == {"g", "h", "i"}
    lab.restore(0)
    assert "i" not in lab.state()
