/* state.c - what the kernel keeps for a process beside its mappings: said before, and in the same words after coming back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int locked(const char *path)        /* by a lock of an open description: can another description have one? */
{
    int fd = open(path, O_RDWR | O_CLOEXEC), r = flock(fd, LOCK_EX | LOCK_NB);
    close(fd);
    return r < 0 && errno == EWOULDBLOCK;
}

static int range_locked(const char *path)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 20, .l_len = 5 };
    int fd = open(path, O_RDWR | O_CLOEXEC), r = fcntl(fd, F_OFD_GETLK, &l);
    close(fd);
    return r == 0 && l.l_type != F_UNLCK ? (int)(l.l_start * 1000 + l.l_len) : 0;
}

static void tell(FILE *out, int signals)
{
    char folder[4096], name[16], command[4096] = "";
    struct rlimit files, core;
    mode_t mask = umask(0);
    umask(mask);
    getrlimit(RLIMIT_NOFILE, &files), getrlimit(RLIMIT_CORE, &core);
    prctl(PR_GET_NAME, name);
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    long n = read(fd, command, sizeof command - 1);
    close(fd);
    for (long i = 0; i < n - 1; i++)
        if (!command[i])
            command[i] = ' ';
    struct signalfd_siginfo got = { 0 };
    raise(SIGUSR1);
    long bytes = read(signals, &got, sizeof got);
    fprintf(out, "umask %03o, folder %s, files %ld, core %ld, name %s, nice %d, policy %d, flock %d, range %d, signal %d of %ld, %s\n",
            mask, strrchr(getcwd(folder, sizeof folder), '/'), (long)files.rlim_cur, (long)core.rlim_cur, name,
            getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), locked("whole"), range_locked("range"),
            (int)got.ssi_signo, bytes, strrchr(command, '/'));
    fflush(out);
}

int main(void)
{
    struct rlimit files = { 300, 300 }, core = { 0, 0 };
    struct sched_param parameters = { 0 };
    struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20 };
    sigset_t set;
    umask(027);
    if (mkdir("inner", 0777) < 0 || chdir("inner") < 0)
        return 1;
    getrlimit(RLIMIT_NOFILE, &files), files.rlim_cur = 300;
    setrlimit(RLIMIT_NOFILE, &files), setrlimit(RLIMIT_CORE, &core);
    prctl(PR_SET_NAME, "renamed");
    if (setpriority(PRIO_PROCESS, 0, 7) < 0 || sched_setscheduler(0, SCHED_BATCH, &parameters) < 0)
        return 2;
    int whole = open("whole", O_RDWR | O_CREAT | O_CLOEXEC, 0666), part = open("range", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (flock(whole, LOCK_EX) < 0 || fcntl(part, F_OFD_SETLK, &range) < 0)
        return 3;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    FILE *out = fopen("told", "w");
    volatile unsigned long work = 0;
    for (int i = 0; i < 40; i++) {
        tell(out, signals);
        for (int k = 0; k < 6000000; k++)
            work += (unsigned long)k * work + 1;
    }
    tell(stdout, signals);
    return 0;
}
