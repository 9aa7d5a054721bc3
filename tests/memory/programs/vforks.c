/* vforks.c - a child that is on its way to another program while a checkpoint is asked for; its parent waits for that.
 *
 *   vforks vfork | clone | raw       by calls of the C library, by the kernel's alone
 *   vforks spawn | thread            by posix_spawn that opens a fifo, which a process, or a thread, has to open, too
 *
 * In the middle it makes "amid" and goes on when there is "go"; others come and go before it, and after it
 * until there is "end". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

extern char **environ;
static char shell[] = "sh", option[] = "-c", text[] = "read x; echo \"the other program $0\"; exit $0", number[8];
static char *words[] = { shell, option, text, number, NULL };
static volatile int waits;
static volatile uint32_t stored;

/* As languages have it that do not call the C library. */
static long kernel(long number, const volatile void *a, const volatile void *b, const volatile void *c)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}

static void amid(void)
{
    struct timespec little = { 0, 1000000 };
    kernel(SYS_creat, "amid", (void *)0600, NULL);
    while (kernel(SYS_access, "go", F_OK, NULL) != 0)
        kernel(SYS_nanosleep, &little, NULL, NULL);
}

static int child(void *calls_kernel)
{
    for (int i = 0; i < 1000000; i++)
        stored = stored * 1664525u + 1013904223u;
    if (waits)
        amid();
    calls_kernel ? (int)kernel(SYS_execve, "/bin/sh", words, environ) : execve("/bin/sh", words, environ);
    kernel(SYS_exit_group, (void *)98, NULL, NULL);
    return 98;
}

static char stack[65536] __attribute__((aligned(16)));
static pid_t by_clone(void) { return clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL); }

static pid_t raw(void)
{
    long r;
    register long none __asm__("r10") = 0, too __asm__("r8") = 0;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tmov $1, %%edi\n\tcall *%[run]\n1:"
                     : "=a"(r)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(stack + sizeof stack), "d"(0), "r"(none),
                       "r"(too), [run] "b"(child)
                     : "rcx", "r11", "memory");
    return (pid_t)r;
}

static pid_t by_fork(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        child(NULL);
    return pid;
}

/* The new process waits in the middle of it for whoever writes, which it could not be itself. */
static int writes(void)
{
    if (waits)
        amid();
    usleep(2000);
    int fd = open("fifo", O_WRONLY), r = fd >= 0 && write(fd, "x\n", 2) == 2;
    close(fd);
    return r;
}
static void *writes_too(void *unused)
{
    MUST(writes());
    return unused;
}

static pid_t spawn(int by_thread)
{
    posix_spawn_file_actions_t actions;
    pthread_t thread;
    pid_t pid, writer = 0;
    int status;
    if (by_thread)
        MUST(pthread_create(&thread, NULL, writes_too, NULL) == 0);
    else if ((writer = fork()) == 0)
        _exit(writes() ? 0 : 97);
    MUST(writer >= 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "fifo", O_RDONLY, 0);
    MUST(posix_spawn(&pid, "/bin/sh", &actions, NULL, words, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    if (by_thread)
        MUST(pthread_join(thread, NULL) == 0);
    else
        MUST(waitpid(writer, &status, 0) == writer && status == 0);
    return pid;
}
static pid_t spawn_beside_process(void) { return spawn(0); }
static pid_t spawn_beside_thread(void) { return spawn(1); }

int main(int count, char **argv)
{
    (void)count;
    pid_t (*begin)(void) = strcmp(argv[1], "raw") == 0 ? raw : strcmp(argv[1], "clone") == 0 ? by_clone :
        strcmp(argv[1], "spawn") == 0 ? spawn_beside_process : strcmp(argv[1], "thread") == 0 ? spawn_beside_thread : by_fork;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(mkfifo("fifo", 0600) == 0);
    for (int i = 0; i < 9; i++) {
        int status;
        snprintf(number, sizeof number, "%d", i + 1);
        waits = i == 4;
        pid_t pid = begin();
        MUST(pid > 0 && waitpid(pid, &status, 0) == pid);
        printf("%d: %d\n", i, WEXITSTATUS(status));
    }
    while (access("end", F_OK) != 0)
        usleep(1000);
    MUST(unlink("fifo") == 0);
    return 5;
}
