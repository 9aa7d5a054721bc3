/* state.c - what the kernel keeps for a process beside its mappings: said before, and in the same words after coming back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
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

/* By locks of the process, whom other descriptions hinder.  To close one of them would drop the locks: both stay open. */
static int held, other;
static int process_locked(void)
{
    struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    pwrite(held, "overwritten", 11, 3);
    return fcntl(other, F_OFD_GETLK, &l) < 0 ? -1 : l.l_type == F_UNLCK ? 0 : (int)(l.l_start * 1000 + l.l_len);
}

/* Which of the processors that it was given a thread runs on: the first is 1; 0: all. */
static cpu_set_t given;
static void choose(int last)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0, found = 0; i < CPU_SETSIZE && (last || !found); i++)
        if (CPU_ISSET(i, &given)) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            found = 1;
        }
    sched_setaffinity(0, sizeof one, &one);
}
static int chosen(void)
{
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    for (int i = 0, number = 0; CPU_COUNT(&now) == 1 && i < CPU_SETSIZE; i++) {
        number += CPU_ISSET(i, &given) != 0;
        if (CPU_ISSET(i, &now))
            return number;
    }
    return 0;
}

/* A second thread, with a real-time policy where the user may have one. */
static sem_t asked, answered;
static int its_policy, its_priority, its_processor;
static void *second(void *nothing)
{
    struct sched_param p = { 3 };
    sched_setscheduler(0, SCHED_RR, &p);
    choose(0);
    for (;;) {
        sem_wait(&asked);
        sched_getparam(0, &p);
        its_policy = sched_getscheduler(0), its_priority = p.sched_priority, its_processor = chosen();
        sem_post(&answered);
    }
    return nothing;
}

static void tell(FILE *out, int signals)
{
    sem_post(&asked);
    sem_wait(&answered);
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
    fprintf(out, "umask %03o, folder %s, files %ld, core %ld, name %s, nice %d, policy %d, flock %d, range %d, process %d, processor %d, thread %d %d %d, signal %d of %ld, %s\n",
            mask, strrchr(getcwd(folder, sizeof folder), '/'), (long)files.rlim_cur, (long)core.rlim_cur, name,
            getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), locked("whole"), range_locked("range"),
            process_locked(), chosen(), its_policy, its_priority, its_processor,
            (int)got.ssi_signo, bytes, strrchr(command, '/'));
    fflush(out);
}

int main(void)
{
    struct rlimit files = { 300, 300 }, core = { 0, 0 };
    struct sched_param parameters = { 0 };
    struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20 };
    struct flock process = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 7 };
    sigset_t set;
    pthread_t thread;
    sched_getaffinity(0, sizeof given, &given);
    sem_init(&asked, 0, 0), sem_init(&answered, 0, 0);
    pthread_create(&thread, NULL, second, NULL);
    choose(1);
    umask(027);
    if (mkdir("inner", 0777) < 0 || chdir("inner") < 0)
        return 1;
    getrlimit(RLIMIT_NOFILE, &files), files.rlim_cur = 300;
    setrlimit(RLIMIT_NOFILE, &files), setrlimit(RLIMIT_CORE, &core);
    prctl(PR_SET_NAME, "renamed");
    if (setpriority(PRIO_PROCESS, 0, 7) < 0 || sched_setscheduler(0, SCHED_BATCH, &parameters) < 0)
        return 2;
    int whole = open("whole", O_RDWR | O_CREAT | O_CLOEXEC, 0666), part = open("range", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    held = open("process", O_WRONLY | O_CREAT | O_CLOEXEC, 0666), other = open("process", O_RDWR | O_CLOEXEC);
    if (fcntl(held, F_SETLK, &process) < 0 || flock(whole, LOCK_EX) < 0 || fcntl(part, F_OFD_SETLK, &range) < 0)
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
