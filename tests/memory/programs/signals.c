/* Descriptors that signal (O_ASYNC, F_SETOWN, F_SETSIG): a process, a thread, a group, another process.  Each round somebody writes
 * first, everybody sleeps, and then the signal must be there, of the descriptor; whom descriptors signal is asked and set, too, by the
 * numbers that the program knows. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <asm/sockios.h>
#include <time.h>
#include <unistd.h>

#define FIRST (SIGRTMIN + 1)
#define SECOND (SIGRTMIN + 2)
#define CHECK(condition) do { if (!(condition)) { printf("line %d: %s, errno %d\n", __LINE__, #condition, errno); fflush(stdout); \
                                                  kill(0, SIGKILL); } } while (0)

static int to_process[2], to_thread[2], to_group[2], to_child[2], quiet[2], done[2];
static pid_t parent, child, group;

static void begin(int fd, int type, pid_t pid, int number)
{
    struct f_owner_ex owner = { type, pid };
    CHECK(fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETSIG, number) == 0);
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
}

static void signals(int fd, int type, pid_t pid, int number)
{
    struct f_owner_ex owner = { F_OWNER_PID, -1 };
    CHECK(fcntl(fd, F_GETOWN_EX, &owner) == 0 && (int)owner.type == type && owner.pid == pid && fcntl(fd, F_GETSIG) == number);
}

static void await(int number, int fd)
{
    struct timespec time = { 20, 0 };
    sigset_t set;
    siginfo_t info;
    int r;
    sigemptyset(&set);
    sigaddset(&set, number);
    while ((r = sigtimedwait(&set, &info, &time)) < 0 && errno == EINTR)
        ;
    CHECK(r == number);
    CHECK(number == SIGIO || (info.si_fd == fd && info.si_code == POLL_IN));
}

static int waits(int number)
{
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, number);
}

static void take(int fd)
{
    char byte;
    ssize_t r;
    while ((r = read(fd, &byte, 1)) < 0 && errno == EINTR)
        ;
    CHECK(r == 1);
}

static void put(int fd) { CHECK(write(fd, "x", 1) == 1); }

static void *thread(void *unused)
{
    begin(to_thread[0], F_OWNER_TID, gettid(), SECOND);
    put(done[1]);
    for (;;) {
        await(SECOND, to_thread[0]);
        signals(to_thread[0], F_OWNER_TID, gettid(), SECOND);
        take(to_thread[0]);
        put(done[1]);
    }
    return unused;
}

static void work_of_child(int rounds)
{
    begin(to_child[1], F_OWNER_PID, getpid(), FIRST);
    put(done[1]);
    for (int i = 0; i < rounds; i++) {
        put(to_process[0]);
        put(done[1]);
        await(FIRST, to_child[1]);
        take(to_child[1]);
        await(SIGIO, 0);
        CHECK(!waits(FIRST) && !waits(SIGIO));
        signals(to_process[1], F_OWNER_PID, getppid(), FIRST);
        signals(quiet[0], F_OWNER_PID, getpid(), SIGURG);
        put(done[1]);
    }
    _exit(0);
}

static void set_and_ask(void)
{
    pid_t number = getpid();
    CHECK(fcntl(quiet[1], F_SETOWN, getpid()) == 0 && fcntl(quiet[1], F_GETOWN) == getpid());
    CHECK(fcntl(quiet[1], F_SETOWN, -getpgrp()) == 0 && fcntl(quiet[1], F_GETOWN) == -getpgrp());
    CHECK(ioctl(quiet[1], FIOSETOWN, &number) == 0 && (number = -1, ioctl(quiet[1], SIOCGPGRP, &number) == 0) && number == getpid());
    number = -getpgrp();
    CHECK(ioctl(quiet[1], SIOCSPGRP, &number) == 0 && (number = -1, ioctl(quiet[1], FIOGETOWN, &number) == 0) && number == -getpgrp());
    CHECK(fcntl(quiet[1], F_SETOWN, child) == 0);
    signals(quiet[1], F_OWNER_PID, child, 0);
}

static void nothing(int number) { (void)number; }

static void *disturb(void *first)
{
    for (;;)
        pthread_kill(*(pthread_t *)first, SIGUSR1);
    return NULL;
}

/* The first thread is busy with signals, so another one makes the images. */
static int disturbed(int rounds)
{
    static pthread_t first;                /* they go on until the process has ended */
    pthread_t other;
    first = pthread_self();
    signal(SIGUSR1, nothing);
    CHECK(pipe(to_process) == 0);
    begin(to_process[0], F_OWNER_PID, getpid(), FIRST);
    for (int i = 0; i < 4; i++)
        pthread_create(&other, NULL, disturb, &first);
    for (int i = 0; i < rounds; i++) {
        time_t until = time(NULL) + 1;
        put(to_process[1]);
        while (time(NULL) <= until)
            ;
        await(FIRST, to_process[0]);
        take(to_process[0]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct timespec a_while = { 0, 30000000 };
    int rounds = argc > 1 ? atoi(argv[1]) : 40, on = 1, status;
    sigset_t set;
    pthread_t other;
    setpgid(0, 0);
    sigemptyset(&set);
    sigaddset(&set, FIRST), sigaddset(&set, SECOND), sigaddset(&set, SIGIO);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (argc > 2)
        return disturbed(rounds);
    parent = getpid(), group = getpgrp();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, to_process) == 0 && pipe(to_thread) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, to_group) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, to_child) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, quiet) == 0 && pipe(done) == 0);
    begin(to_process[1], F_OWNER_PID, parent, FIRST);
    CHECK(fcntl(to_group[0], F_SETOWN, -group) == 0 && ioctl(to_group[0], FIOASYNC, &on) == 0);
    child = fork();
    if (child == 0)
        work_of_child(rounds);
    CHECK(fcntl(quiet[0], F_SETOWN, child) == 0 && fcntl(quiet[0], F_SETSIG, SIGURG) == 0);
    pthread_create(&other, NULL, thread, NULL);
    take(done[0]), take(done[0]);
    for (int i = 0; i < rounds; i++) {
        take(done[0]);                     /* the child has written */
        put(to_child[0]), put(to_thread[1]), put(to_group[1]);
        nanosleep(&a_while, NULL);
        await(FIRST, to_process[1]);
        await(SIGIO, 0);
        CHECK(!waits(SIGIO));
        take(to_process[1]), take(to_group[0]);
        signals(to_process[1], F_OWNER_PID, parent, FIRST);
        signals(to_group[0], F_OWNER_PGRP, group, 0);
        signals(to_child[1], F_OWNER_PID, child, FIRST);
        set_and_ask();
        take(done[0]), take(done[0]);
        printf("%d\n", i);
        fflush(stdout);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
