/* watch.c - what the kernel keeps behind a descriptor, had by two processes: its output depends on nothing but itself.
 *
 *   watch timerfd | signalfd | epoll | nested */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 9000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static void works(const char *name, int steps)
{
    uint32_t state = (uint32_t)steps;
    for (int i = 0; i < steps; i++) {
        state = work(state);
        if (name)
            printf("%s %d %u\n", name, i, state);
    }
}

static int fd, ends[2], ready_fd, inner;

/* The child takes what the parent left, both work in between. */
static int timer_child(void)
{
    uint64_t count;
    works(NULL, 40);
    for (int i = 0; i < 3; i++)
        MUST(read(fd, &count, sizeof count) == sizeof count && count > 0);
    return 4;
}

static int signal_child(void)
{
    struct signalfd_siginfo info;
    MUST(kill(getpid(), SIGUSR1) == 0);
    works(NULL, 40);
    MUST(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
    return 5;
}

static int epoll_child(void)
{
    struct epoll_event event;
    uint64_t one = 1;
    works(NULL, 40);
    MUST(write(ends[1], "x", 1) == 1 && epoll_wait(fd, &event, 1, 5000) == 1 && event.data.u64 == 77);
    MUST(write(ready_fd, &one, sizeof one) == sizeof one);
    return 6;
}

static pid_t begin(int (*run)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        int status = run();
        fflush(stdout);
        _exit(status);
    }
    return pid;
}

static void ended(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    printf("%d\n", WEXITSTATUS(status));
}

static void timer(void)
{
    MUST((fd = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0);
    MUST(timerfd_settime(fd, 0, &(struct itimerspec){ { 0, 20000000 }, { 0, 20000000 } }, NULL) == 0);
    pid_t pid = begin(timer_child);
    works("parent", 30);
    ended(pid);
    struct itimerspec now;
    MUST(timerfd_gettime(fd, &now) == 0);
    printf("%ld\n", now.it_interval.tv_nsec);
}

static void signals(void)
{
    sigset_t set;
    struct signalfd_siginfo info;
    sigemptyset(&set), sigaddset(&set, SIGUSR1), sigprocmask(SIG_BLOCK, &set, NULL);
    MUST((fd = signalfd(-1, &set, 0)) >= 0);
    pid_t pid = begin(signal_child);
    works("parent", 30);
    MUST(kill(getpid(), SIGUSR1) == 0 && read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
    ended(pid);
}

static void watches(int nested)
{
    struct epoll_event event = { EPOLLIN, { .u64 = 77 } };
    uint64_t count;
    MUST(pipe(ends) == 0 && (ready_fd = eventfd(0, 0)) >= 0 && (fd = epoll_create1(0)) >= 0);
    int at = fd;
    if (nested) {
        MUST((inner = epoll_create1(0)) >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, inner, &event) == 0);
        at = inner;
    }
    MUST(epoll_ctl(at, EPOLL_CTL_ADD, ends[0], &event) == 0);
    pid_t pid = begin(epoll_child);
    works("parent", 30);
    MUST(read(ready_fd, &count, sizeof count) == sizeof count);
    MUST(epoll_wait(fd, &event, 1, 0) == 1 && event.data.u64 == 77);
    char c;
    MUST(read(ends[0], &c, 1) == 1 && epoll_wait(fd, &event, 1, 0) == 0);
    MUST(epoll_ctl(at, EPOLL_CTL_DEL, ends[0], NULL) == 0 && write(ends[1], "y", 1) == 1 && epoll_wait(fd, &event, 1, 0) == 0);
    ended(pid);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "timerfd") == 0)
        timer();
    else if (strcmp(what, "signalfd") == 0)
        signals();
    else
        watches(strcmp(what, "nested") == 0);
    return 0;
}
