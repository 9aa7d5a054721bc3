/* Changes what a file's inode and names are, by each of the calls that do: of a name, of a descriptor, at a folder's descriptor.
 * Linked statically too (test_static_calls.py).  Where: the present folder; files "old" and "log" are there.  Argument: a step. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static int bad;
#define OK(call) do { if ((call) < 0) { perror(#call); bad = 1; } } while (0)

static void owners_and_modes(int dir, int fd)
{
    OK(chown("log", getuid(), getgid()));
    OK(lchown("log", getuid(), getgid()));
    OK(fchown(fd, getuid(), getgid()));
    OK(fchownat(dir, "log", getuid(), getgid(), 0));
    OK(chmod("log", 0640));
    OK(fchmod(fd, 0604));
    OK(fchmodat(dir, "log", 0600, 0));
    if (geteuid() == 0)
        OK(chown("log", 3, 4));
}

static void times(int dir, int fd)
{
    struct timespec two[2] = { { 1000000000, 5 }, { 1000000001, 6 } };
    struct timeval seconds[2] = { { 1000000002, 7 }, { 1000000003, 8 } };
    struct utimbuf whole = { 1000000004, 1000000005 };
    OK(utimensat(dir, "old", two, 0));
    OK(futimens(fd, two));
    OK(utimes("old", seconds));
    OK(futimesat(dir, "old", seconds));
    OK(utime("old", &whole));
}

static void extended(int fd)
{
    OK(setxattr("log", "user.one", "1", 1, 0));
    OK(lsetxattr("log", "user.two", "22", 2, XATTR_CREATE));
    OK(fsetxattr(fd, "user.three", "333", 3, 0));
    OK(setxattr("log", "user.four", "4", 1, 0));
    OK(removexattr("log", "user.four"));
}

static void fewer_extended(int fd)
{
    OK(removexattr("log", "user.one"));
    OK(lremovexattr("log", "user.two"));
    OK(fremovexattr(fd, "user.three"));
}

/* By calls for which the C library has no function yet, or as they are meant before Linux 6.13; nothing else is done to the
 * file in that step.  It has changed its name meanwhile. */
static void by_number(int dir, int sets)
{
    struct { uint64_t value; uint32_t size, flags; } given = { (uint64_t)"at", 2, 0 };
    if (sets && syscall(463, dir, "old", 0, "user.at", &given, sizeof given) < 0)
        OK(setxattr("old", "user.at", "at", 2, 0));
    if (!sets && syscall(466, dir, "log", AT_SYMLINK_NOFOLLOW, "user.at") < 0)
        OK(removexattr("log", "user.at"));
}

/* One in each step, and nothing else: a step's other calls would have the file looked at. */
static void by_descriptor(int step)
{
    struct timespec two[2] = { { 1000000006, 1 }, { 1000000007, 2 } };
    int fd = open("log", step == 7 ? O_PATH : O_RDONLY);
    if (step == 5)
        OK(utimensat(fd, "", two, AT_EMPTY_PATH));
    else if (step == 6 && syscall(452 /* fchmodat2 */, fd, "", 0611, AT_EMPTY_PATH) < 0)     /* before Linux 6.6 */
        OK(fchmod(fd, 0611));
    else if (step == 7)
        OK(fchownat(fd, "", geteuid() ? geteuid() : 5, -1, AT_EMPTY_PATH));
}

static void names(int dir)
{
    struct open_how how = { .flags = O_CREAT | O_RDWR, .mode = 0640 };
    long fd = syscall(SYS_openat2, dir, "made", &how, sizeof how);
    OK(fd);
    OK(write((int)fd, "made", 4));
    OK(close((int)fd));
    OK(mkfifo("pipe", 0600));
    OK(mknodat(dir, "node", S_IFREG | 0600, 0));
    OK(symlinkat("made", dir, "soft"));
    OK(linkat(dir, "made", dir, "hard", 0));
    OK(renameat2(dir, "old", dir, "log", RENAME_EXCHANGE));
    OK(renameat2(dir, "node", dir, "renamed", RENAME_NOREPLACE));
    OK(mkdirat(dir, "folder", 0711));
    OK(truncate("old", 3));
    OK(fd = creat("created", 0604));
    OK(close((int)fd));
}

/* Where the kernel resolves the path in its own way, and by a descriptor of the file itself. */
static void names_otherwise(int dir)
{
    struct open_how how = { .flags = O_CREAT | O_RDWR, .mode = 0600, .resolve = RESOLVE_IN_ROOT };
    long fd = syscall(SYS_openat2, dir, "/in_root", &how, sizeof how);
    OK(write((int)fd, "in root", 7));
    OK(linkat((int)fd, "", dir, "by_itself", AT_EMPTY_PATH));
    how = (struct open_how){ .flags = O_WRONLY | O_TRUNC, .resolve = RESOLVE_BENEATH };
    OK(fd = syscall(SYS_openat2, dir, "made", &how, sizeof how));
    OK(write((int)fd, "beneath", 7));
    char name[64];
    OK(fd = open(".", O_TMPFILE | O_RDWR, 0600));
    OK(write((int)fd, "nameless", 8));
    snprintf(name, sizeof name, "/proc/self/fd/%ld", fd);
    OK(linkat(AT_FDCWD, name, dir, "by_proc", AT_SYMLINK_FOLLOW));
}

/* To its own limit, not to that of whoever makes the call for it; what is longer already may be cut. */
static void size_limit(void)
{
    struct rlimit limit = { 1000, RLIM_INFINITY };
    signal(SIGXFSZ, SIG_IGN);
    OK(truncate("created", 3000));
    OK(setrlimit(RLIMIT_FSIZE, &limit));
    if (truncate("in_root", 2000) == 0 || errno != EFBIG)
        bad = 1;
    OK(truncate("in_root", 1000));
    OK(truncate("created", 2000));
}

static void fewer_names(int dir)
{
    OK(rename("hard", "made"));        /* one inode: nothing happens */
    OK(unlinkat(dir, "hard", 0));
    OK(unlink("pipe"));
    OK(rmdir("folder"));
    OK(renameat(dir, "soft", dir, "softer"));
    OK(link("made", "hard"));
    OK(symlink("hard", "soft"));
    OK(mkdir("folder", 0700));
    OK(unlinkat(dir, "folder", AT_REMOVEDIR));
}

int main(int argc, char **argv)
{
    int dir = open(".", O_PATH | O_DIRECTORY), fd = open("log", O_RDONLY);
    OK(dir);
    OK(fd);
    switch (argc > 1 ? atoi(argv[1]) : 0) {
    case 1: owners_and_modes(dir, fd); times(dir, fd); break;
    case 2: extended(fd); by_number(dir, 1); break;
    case 3: fewer_extended(fd); names(dir); names_otherwise(dir); break;
    case 4: fewer_names(dir); by_number(dir, 0); size_limit(); break;
    default: by_descriptor(argc > 1 ? atoi(argv[1]) : 0);
    }
    return bad;
}
