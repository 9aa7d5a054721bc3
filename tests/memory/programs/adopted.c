/* adopted.c - whom the kernel tells, of processes that are brought back; checkpoints are taken where all stand.
 *
 *   adopted orphans          a process in the middle of the tree takes orphans: one that it has already, one that comes later
 *   adopted waits            for any child, and for one by a descriptor
 *   adopted terminal         a terminal's foreground group is another than its session's leader: a job has it, then a job that
 *                            stopped when it read from behind */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static int up[2], down[2];                 /* to the first process, and from it: a byte each */

static void tell(int fd, char c) { MUST(write(fd, &c, 1) == 1); }
static char hear(int fd)
{
    char c;
    MUST(read(fd, &c, 1) == 1);
    return c;
}

static int ends(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* -- orphans -------------------------------------------------------------------------------------------------------------- */

static int let_go[2], let_end[2];

static void orphan(pid_t taker, int has_it)
{
    pid_t parent = getppid();
    MUST((parent == taker) == has_it);
    tell(up[1], 'o');
    hear(let_end[0]);
    MUST(getppid() == taker);
    _exit(has_it ? 11 : 12);
}

static void middle(void)
{
    pid_t me = getpid();
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    pid_t between = fork();
    if (between == 0) {
        if (fork() == 0) {
            while (getppid() != me)
                usleep(1000);
            orphan(me, 1);
        }
        _exit(3);
    }
    MUST(ends(between) == 3);
    pid_t later = fork();
    if (later == 0) {
        if (fork() == 0)
            orphan(me, 0);
        hear(let_go[0]);
        _exit(4);
    }
    tell(up[1], 'm');
    hear(down[0]);
    tell(let_go[1], 'x');
    MUST(ends(later) == 4);
    tell(up[1], 'l');
    hear(down[0]);
    tell(let_end[1], 'x'), tell(let_end[1], 'x');
    int sum = 0, count = 0;
    for (int status; wait(&status) > 0; count++)
        sum += WEXITSTATUS(status);
    _exit(count == 2 && errno == ECHILD ? sum : 98);
}

static void orphans(void)
{
    MUST(pipe(let_go) == 0 && pipe(let_end) == 0);
    pid_t pid = fork();
    if (pid == 0)
        middle();
    for (int i = 0; i < 3; i++)
        printf("%c", "mo"[hear(up[0]) == 'o']);
    printf("\n");
    fflush(stdout);
    metamori_checkpoint();
    tell(down[1], 'x');
    printf("%c\n", hear(up[0]));
    fflush(stdout);
    metamori_checkpoint();
    tell(down[1], 'x');
    printf("%d\n", ends(pid));
    MUST(wait(NULL) == -1 && errno == ECHILD);
}

/* -- waits ---------------------------------------------------------------------------------------------------------------- */

static int let_all[2];

static pid_t waits(int how)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid)
        return pid;
    siginfo_t info;
    pid_t own = fork();
    if (own == 0) {
        hear(let_all[0]);
        _exit(30 + how);
    }
    int fd = (int)syscall(SYS_pidfd_open, own, 0);
    MUST(fd >= 0 && (how == 0 ? waitid(P_ALL, 0, &info, WEXITED) : how == 1 ? waitid(P_PIDFD, (id_t)fd, &info, WEXITED)
                     : waitid(P_PID, (id_t)own, &info, WEXITED)) == 0);
    _exit(info.si_pid == own ? info.si_status : 97);
}

static void await_waiting(pid_t pid)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", pid);
    do {
        usleep(1000);
        int fd = open(path, O_RDONLY);
        MUST(fd >= 0 && read(fd, text, sizeof text) > 0 && close(fd) == 0);
    } while (*text == 'r' || atol(text) != SYS_waitid);
}

static void all_wait(void)
{
    pid_t pid[3];
    MUST(pipe(let_all) == 0);
    for (int i = 0; i < 3; i++)
        pid[i] = waits(i);
    for (int i = 0; i < 3; i++)
        await_waiting(pid[i]);
    printf("wait\n");
    fflush(stdout);
    metamori_checkpoint();
    tell(let_all[1], 'x'), tell(let_all[1], 'x');
    metamori_checkpoint();
    tell(let_all[1], 'x');
    printf("%d %d %d\n", ends(pid[0]), ends(pid[1]), ends(pid[2]));
}

/* -- a terminal ----------------------------------------------------------------------------------------------------------- */

static int slave;
static void interrupted(int number) { (void)number; _exit(21); }

static pid_t job(int behind)
{
    pid_t pid = fork();
    MUST(pid >= 0 && (pid == 0 || setpgid(pid, pid) == 0));
    if (pid)
        return pid;
    setpgid(0, 0);
    if (behind) {
        char line[16] = "";
        ssize_t n = read(slave, line, sizeof line);            /* SIGTTIN stops it here */
        _exit(n == 5 && memcmp(line, "line\n", 5) == 0 ? 22 : 97);
    }
    signal(SIGINT, interrupted);
    tell(up[1], 'j');
    for (;;)
        pause();
}

static void leader(void)
{
    int status;
    MUST(setsid() == getpid() && ioctl(slave, TIOCSCTTY, 0) == 0);
    signal(SIGTTOU, SIG_IGN);
    pid_t first = job(0);
    MUST(tcsetpgrp(slave, first) == 0);
    pid_t second = job(1);
    MUST(waitpid(second, &status, WUNTRACED) == second && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
    tell(up[1], 's');
    MUST(ends(first) == 21 && tcgetpgrp(slave) == first);      /* whom the first process interrupts by a byte */
    MUST(tcsetpgrp(slave, second) == 0);
    tell(up[1], 'f');
    hear(down[0]);
    MUST(tcgetpgrp(slave) == second && kill(second, SIGCONT) == 0);
    tell(up[1], 'c');
    int r = ends(second);
    MUST(tcsetpgrp(slave, getpgrp()) == 0);
    _exit(r);
}

static void terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    MUST((slave = open(ptsname(master), O_RDWR | O_NOCTTY)) >= 0);
    struct termios how;
    MUST(tcgetattr(slave, &how) == 0);
    how.c_lflag &= ~(tcflag_t)ECHO;        /* which nobody would read */
    MUST(tcsetattr(slave, TCSANOW, &how) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(master);
        leader();
    }
    for (int i = 0; i < 2; i++)
        printf("%d\n", strchr("js", hear(up[0])) != NULL);
    fflush(stdout);
    metamori_checkpoint();
    tell(master, 3);                       /* ^C */
    printf("%c\n", hear(up[0]));
    fflush(stdout);
    metamori_checkpoint();
    tell(down[1], 'x');
    printf("%c\n", hear(up[0]));
    MUST(write(master, "line\n", 5) == 5);
    printf("%d\n", ends(pid));
}

int main(int count, char **words)
{
    alarm(60);
    MUST(pipe(up) == 0 && pipe(down) == 0);
    MUST(count == 2);
    strcmp(words[1], "orphans") == 0 ? orphans() : strcmp(words[1], "waits") == 0 ? all_wait() : terminal();
    return 6;
}
