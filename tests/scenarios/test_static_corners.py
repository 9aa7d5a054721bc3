"""Static programs: threads with descriptors of their own, refused flags, inode numbers of files that are gone."""

from __future__ import annotations

import shutil

import pytest
from lab import Lab
from test_static_paths import built
from test_static_programs import OPTIONS, every_index, prepare

THREADS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int its;

static void *other_table(void *nothing)
{
    struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
    char name[64];
    printf("%d\\n", unshare(CLONE_FILES));
    close(its);
    int fd = open("log", O_RDWR);
    printf("%d %d\\n", fd == its, fchmod(fd, 0600));
    printf("%ld\\n", syscall(SYS_utimensat, fd, NULL, times, 0));
    printf("%d\\n", linkat(fd, "", AT_FDCWD, "by number", AT_EMPTY_PATH));
    sprintf(name, "/proc/self/fd/%d", its);        /* of the process, not of the thread */
    printf("%d\\n", linkat(AT_FDCWD, name, AT_FDCWD, "by name", AT_SYMLINK_FOLLOW));
    return nothing;
}

int main(void)
{
    struct stat st;
    pthread_t one;
    its = open("old", O_RDWR);
    pthread_create(&one, NULL, other_table, NULL);
    pthread_join(one, NULL);
    printf("%d\\n", fchmod(its, 0640));
    fstat(its, &st);
    printf("%o %d\\n", st.st_mode, (int)st.st_nlink);
    return 0;
}
"""

FLAGS = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } };
    int fd = open("log", O_RDWR), flags[] = { AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0 };
    for (int i = 0; i < 3; i++) {
        printf("%ld", syscall(SYS_utimensat, fd, NULL, times, flags[i]));
        printf(" %d\\n", errno);
        printf("%ld", syscall(SYS_utimensat, AT_FDCWD, NULL, times, flags[i]));
        printf(" %d\\n", errno);
    }
    return 0;
}
"""

NUMBERS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
    char name[16];
    int fd = open("gone", O_CREAT | O_WRONLY, 0600);
    close(fd);
    printf("%d\\n", unlink("gone"));
    for (int i = 0; i < 20; i++) {             /* one of them gets its number, on most filesystems */
        sprintf(name, "%d", i);
        mkfifo(name, 0600);
        printf("%d\\n", linkat(AT_FDCWD, name, AT_FDCWD, "link", AT_SYMLINK_FOLLOW));
        unlink("link");
    }
    return 0;
}
"""


# the kernel takes half of what is given, the C library refuses what does not fit
DEVICE = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    printf("%ld", syscall(SYS_mknodat, AT_FDCWD, "fifo", S_IFIFO | 0600, 1L << 40));
    printf(" %d\\n", errno);
#ifdef SYS_mknod
    printf("%ld", syscall(SYS_mknod, "other", S_IFIFO | 0600, 1L << 40));
    printf(" %d\\n", errno);
#endif
    return 0;
}
"""


# O_EXCL: nobody can link it, so the store has a copy
NAMELESS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
    for (int way = 0; way < 3; way++) {
        char again[64], back[64] = "";
        struct stat st;
        int fd = open(".", O_TMPFILE | O_EXCL | O_RDWR, 0600);
        snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
        printf("%zd", write(fd, "content", 7));
        int other = open(again, way == 0 ? O_WRONLY | O_TRUNC : O_WRONLY);
        printf(" %d", way == 1 ? truncate(again, 3) : way == 2 ? ftruncate(other, 3) : 0);
        fstat(fd, &st);
        printf(" %ld", (long)st.st_size);
        printf(" %zd", write(other, "ab", 2));
        printf(" %zd %s\\n", pread(fd, back, 63, 0), back);
    }
    return 0;
}
"""


@OPTIONS
@pytest.mark.parametrize("text", [THREADS, FLAGS, NUMBERS, DEVICE, NAMELESS],
                         ids=["threads", "flags", "numbers", "device", "nameless"])
def test_as_natively(lab: Lab, native_lab: Lab, text: str, options: list[str]) -> None:
    every_index(lab, native_lab, [built(lab.folder, text)], [""], options)


def test_flags_by_the_library(lab: Lab, native_lab: Lab) -> None:
    """The same calls through syscall(), of a program that the library is in."""
    program = built(lab.folder, FLAGS, [])
    prepare(native_lab)
    prepare(lab)
    natively, done = (each.run([program], native=each is native_lab) for each in (native_lab, lab))
    assert (done.returncode, done.stdout, done.stderr) == (0, natively.stdout, b"")


@OPTIONS
def test_an_interpreter_that_the_run_has_changed(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """Its old bytes name another one, which nobody has changed: it ran the script."""
    for each in (lab, native_lab):
        (each.work / "run").write_text("#!/bin/sh \necho old\n")
        (each.work / "by").write_text("#!./run\n")
        for name in ("run", "by"):
            (each.work / name).chmod(0o755)
    steps = ["env ./by", "printf '#!/bin/cat' | dd of=run conv=notrunc status=none; env ./by"]
    every_index(lab, native_lab, ["sh"], steps, options)


LEASE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    int fd = open("program", O_RDONLY), number = 0;
    time_t begin = time(NULL);
    sigset_t broken;
    sigemptyset(&broken);
    sigaddset(&broken, SIGIO);
    sigprocmask(SIG_BLOCK, &broken, NULL);
    printf("%d\\n", fcntl(fd, F_SETLEASE, F_WRLCK));
    fflush(stdout);
    for (int i = 0; i < 4; i++)
        if (!fork())
            return execl("program", "program", NULL);
    sigwait(&broken, &number);
    printf("%d\\n", unlink("log"));
    printf("%d\\n", fcntl(fd, F_SETLEASE, F_UNLCK));
    for (int i = 0; i < 4; i++) {
        wait(&number);
        printf("%d\\n", number);
    }
    printf("%d\\n", time(NULL) - begin >= 40);       /* the kernel waits for 45 */
    return 0;
}
"""


def test_programs_whose_file_another_holds(lab: Lab, native_lab: Lab) -> None:
    """They wait until it gives up its lease, after a call that is shown too."""
    for each in (lab, native_lab):
        shutil.copy("/bin/true", each.work / "program")
    every_index(lab, native_lab, ["sh"], [built(lab.folder, LEASE)], [])
