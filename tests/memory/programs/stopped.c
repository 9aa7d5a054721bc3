/* stopped.c - processes that job control has stopped, and what they and their parents notice of it.
 *
 *   stopped          children that one, the other or nobody has heard of, while this process works
 *   stopped chain    a process that is stopped has a child that is, too
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static volatile sig_atomic_t told, continued;
static void on_child(int number) { (void)number; told++; }
static void on_continue(int number) { (void)number; continued++; }

static void work(void)
{
    uint32_t state = 1;
    for (int step = 0; step < 400; step++) {
        for (int i = 0; i < 3000000; i++)
            state = state * 1664525u + 1013904223u;
        if (step % 100 == 99)
            printf("step %d: %u, told %d times\n", step, state, told), fflush(stdout);
    }
}

/* Begun when told is one more than before. */
static void await(int count)
{
    sigset_t none, child;
    sigemptyset(&none), sigemptyset(&child), sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    while (told < count)
        sigsuspend(&none);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
}

static void expect(const char *who, pid_t pid, int options)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, options);
    printf("%s: %s", who, got == pid ? "" : got == 0 ? "nothing\n" : "error\n");
    if (got == pid)
        printf(WIFSTOPPED(status) ? "stopped by %d\n" : WIFCONTINUED(status) ? "continued\n"
               : WIFSIGNALED(status) ? "killed by %d\n" : "status %d\n",
               WIFSTOPPED(status) ? WSTOPSIG(status) : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static pid_t child(void (*run)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        run();
        _exit(98);
    }
    return pid;
}

/* three threads that count, one that stops all of them */
static volatile uint32_t counted[3];
static void *counts(void *at)
{
    for (;;)
        (*(volatile uint32_t *)at)++;
    return NULL;
}
static int may_end[2];                     /* not before its parent has heard that it was continued */
static void threads(void)
{
    char byte;
    pthread_t thread[3];
    signal(SIGCONT, on_continue);
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&thread[i], NULL, counts, (void *)&counted[i]) == 0);
    while (!counted[0] || !counted[1] || !counted[2])
        usleep(100);
    raise(SIGSTOP);
    uint32_t before[3] = { counted[0], counted[1], counted[2] };
    usleep(20000);
    for (int i = 0; i < 3; i++)
        while (counted[i] == before[i])
            usleep(100);
    MUST(read(may_end[0], &byte, 1) == 1);
    _exit(40 + continued);
}
static void by_the_terminal(void)
{
    raise(SIGTSTP);
    for (;;)                               /* a signal that came meanwhile ends it */
        pause();
}
static void waits(void)
{
    int fd = epoll_create1(0);
    struct epoll_event event;
    int r = epoll_wait(fd, &event, 1, -1);
    _exit(r == -1 && errno == EINTR ? 50 : 51);
}
static void blocks(void)
{
    sigset_t cont, waiting;
    sigemptyset(&cont), sigaddset(&cont, SIGCONT);
    sigprocmask(SIG_BLOCK, &cont, NULL);
    kill(getpid(), SIGSTOP);
    sigpending(&waiting);
    _exit(60 + sigismember(&waiting, SIGCONT));
}

static void all(void)
{
    setpgid(0, 0);
    struct sigaction action = { .sa_handler = on_child };
    sigaction(SIGCHLD, &action, NULL);
    MUST(pipe(may_end) == 0);
    pid_t seen = child(threads);
    await(1);
    expect("seen", seen, WUNTRACED);
    pid_t unseen = child(by_the_terminal);
    await(2);
    pid_t waiting = child(waits);
    usleep(100000);
    kill(waiting, SIGSTOP);
    await(3);
    expect("waiting", waiting, WUNTRACED);
    pid_t blocking = child(blocks);
    await(4);
    expect("blocking", blocking, WUNTRACED);
    kill(unseen, SIGTERM);                 /* waits until it is continued */
    work();
    expect("seen", seen, WUNTRACED | WCONTINUED | WNOHANG);
    expect("waiting", waiting, WUNTRACED | WCONTINUED | WNOHANG);
    expect("blocking", blocking, WUNTRACED | WCONTINUED | WNOHANG);
    expect("unseen", unseen, WUNTRACED);
    expect("unseen", unseen, WUNTRACED | WCONTINUED | WNOHANG);
    signal(SIGCHLD, SIG_DFL);
    kill(seen, SIGCONT);
    expect("seen", seen, WCONTINUED);
    MUST(write(may_end[1], "", 1) == 1);
    expect("seen", seen, 0);
    kill(unseen, SIGCONT);
    expect("unseen", unseen, 0);
    kill(waiting, SIGCONT);
    expect("waiting", waiting, 0);
    kill(blocking, SIGCONT);
    expect("blocking", blocking, 0);
}

static pid_t inner;
static void works(void)
{
    work();
    _exit(7);
}
static void outer(void)
{
    inner = child(works);
    kill(inner, SIGSTOP);
    expect("inner", inner, WUNTRACED);
    raise(SIGSTOP);
    expect("inner", inner, WUNTRACED | WCONTINUED | WNOHANG);
    kill(inner, SIGCONT);
    expect("inner", inner, 0);
    _exit(8);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1) {
        all();
        return 0;
    }
    pid_t pid = child(outer);
    expect("outer", pid, WUNTRACED);
    work();
    expect("outer", pid, WUNTRACED | WCONTINUED | WNOHANG);
    kill(pid, SIGCONT);
    expect("outer", pid, 0);
    return 0;
}
