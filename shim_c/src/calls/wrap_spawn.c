/* wrap_spawn.c - posix_spawn with file actions that change files.
 *
 * glibc carries file actions out by internal system calls in the child.  When one of them opens a file for writing, the
 * spawn is done here instead: fork, the actions through our own calls, exec.  Everything else stays glibc's.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

/* glibc's struct __spawn_action (posix/spawn_int.h), unchanged but for kinds added at its end */
enum { DO_CLOSE, DO_DUP2, DO_OPEN, DO_CHDIR, DO_FCHDIR, DO_CLOSEFROM, DO_TCSETPGRP };
struct action {
    int kind;
    union {
        struct { int fd; } close;
        struct { int fd, to; } dup2;
        struct { int fd; char *path; int flags; mode_t mode; } open;
        struct { char *path; } chdir;
        struct { int fd; } fchdir;
        struct { int from; } closefrom;
        struct { int fd; } terminal;
    };
};

static int changes_files(const posix_spawn_file_actions_t *actions)
{
    const struct action *list = actions ? (const struct action *)actions->__actions : NULL;
    int changes = 0;
    for (int i = 0; list && i < actions->__used; i++) {
        if (list[i].kind > DO_TCSETPGRP)
            return 0;                  /* a kind that this does not know: glibc's */
        if (list[i].kind == DO_OPEN && (list[i].open.flags & (O_ACCMODE | O_CREAT | O_TRUNC)))
            changes = 1;
    }
    return changes;
}

/* Does it open anything?  A FIFO may keep it waiting. */
static int opens(const posix_spawn_file_actions_t *actions)
{
    const struct action *list = actions ? (const struct action *)actions->__actions : NULL;
    for (int i = 0; list && i < actions->__used; i++)
        if (list[i].kind == DO_OPEN)
            return 1;
    return 0;
}

static int one(const struct action *a)
{
    switch (a->kind) {
    case DO_CLOSE: close(a->close.fd); return 0;   /* a descriptor that is not open is no error */
    case DO_DUP2:
        if (a->dup2.fd == a->dup2.to) {            /* it stays open over the exec */
            int flags = fcntl(a->dup2.fd, F_GETFD);
            return flags < 0 ? -1 : fcntl(a->dup2.fd, F_SETFD, flags & ~FD_CLOEXEC);
        }
        return dup2(a->dup2.fd, a->dup2.to);
    case DO_OPEN: {
        close(a->open.fd);
        int fd = open(a->open.path, a->open.flags, a->open.mode);
        if (fd < 0 || fd == a->open.fd)
            return fd;
        int r = dup2(fd, a->open.fd);
        close(fd);
        return r;
    }
    case DO_CHDIR: return chdir(a->chdir.path);
    case DO_FCHDIR: return fchdir(a->fchdir.fd);
    case DO_CLOSEFROM: closefrom(a->closefrom.from); return 0;
    default: return tcsetpgrp(a->terminal.fd, getpgrp());
    }
}

/* glibc 2.39's POSIX_SPAWN_SETCGROUP; the descriptor is in what was room for it before. */
#define SET_CGROUP 0x100
static long move_to_group(const posix_spawnattr_t *attr)
{
    long list = sys_openat((&attr->__policy)[1], "cgroup.procs", O_WRONLY | O_CLOEXEC, 0);
    long r = list < 0 ? list : sys(SYS_write, list, "0", 1);
    if (list >= 0)
        sys_close((int)list);
    return r;
}

static int set_attributes(const posix_spawnattr_t *attr, short flags, sigset_t *mask)
{
    sigset_t set;
    pid_t group;
    struct sched_param parameter;
    int policy;
    long moved = flags & SET_CGROUP ? move_to_group(attr) : 0;
    if (moved < 0)
        return fail(moved);
    if ((flags & POSIX_SPAWN_SETSIGDEF) && posix_spawnattr_getsigdefault(attr, &set) == 0)
        for (int i = 1; i < _NSIG; i++)
            if (sigismember(&set, i) == 1)
                signal(i, SIG_DFL);
    if ((flags & POSIX_SPAWN_SETSCHEDULER) && posix_spawnattr_getschedparam(attr, &parameter) == 0
        && posix_spawnattr_getschedpolicy(attr, &policy) == 0 && sched_setscheduler(0, policy, &parameter) < 0)
        return -1;
    if ((flags & POSIX_SPAWN_SETSCHEDPARAM) && !(flags & POSIX_SPAWN_SETSCHEDULER)
        && posix_spawnattr_getschedparam(attr, &parameter) == 0 && sched_setparam(0, &parameter) < 0)
        return -1;
    if ((flags & POSIX_SPAWN_SETSID) && setsid() < 0)
        return -1;
    if ((flags & POSIX_SPAWN_SETPGROUP) && posix_spawnattr_getpgroup(attr, &group) == 0 && setpgid(0, group) < 0)
        return -1;
    if ((flags & POSIX_SPAWN_RESETIDS) && (setgid(getgid()) < 0 || setuid(getuid()) < 0))
        return -1;
    if (flags & POSIX_SPAWN_SETSIGMASK)
        posix_spawnattr_getsigmask(attr, mask);
    return 0;
}

/* Handlers are of the program that goes: from here on a signal does what it will do to the one that comes. */
static void forget_handlers(void)
{
    struct sigaction now;
    for (int i = 1; i < _NSIG; i++)
        if (sigaction(i, NULL, &now) == 0 && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
            signal(i, SIG_DFL);
}

/* What is searched for and is no program is none of the shell's either: in that execvpe differs. */
static int become(const char *file, char *const argv[], char *const envp[], int search)
{
    SCRATCH(found);
    if (!search || strchr(file, '/'))
        return execve(file, argv, envp);
    for (const char *list = mm_search_list(); mm_search_on(file, &list, found, 4096);) {
        execve(found, argv, envp);
        if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT)
            return -1;
    }
    return execvpe(file, argv, envp);          /* it is nowhere: with the errno that says so */
}

static int spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                 char *const argv[], char *const envp[], int search)
{
    int report[2], error = 0;
    short flags = 0;
    if (attr)
        posix_spawnattr_getflags(attr, &flags);
    if (pipe2(report, O_CLOEXEC) < 0)
        return errno;
    report[1] = mm_high_fd(report[1]);
    uint64_t before = sys_mask_all();
    pid_t child = LIKELY(!mm_memory_head) ? _Fork() : fork();      /* glibc calls no handlers of forks */
    if (child == 0) {
        sigset_t mask = { { 0 } };
        memcpy(&mask, &before, sizeof before);
        mm_report_fd = report[1];      /* no action closes it, or takes its number */
        forget_handlers();
        int r = set_attributes(attr, flags, &mask);
        const struct action *list = actions ? (const struct action *)actions->__actions : NULL;
        for (int i = 0; list && r >= 0 && i < actions->__used; i++)
            r = one(&list[i]);
        if (r >= 0) {
            sigprocmask(SIG_SETMASK, &mask, NULL);
            r = become(path, argv, envp, search);
        }
        error = errno;
        sys(SYS_write, mm_report_fd, &error, sizeof error);
        sys(SYS_exit_group, 127);
    }
    if (child < 0)
        error = errno;
    sys_close(report[1]);
    if (child > 0 && sys(SYS_read, report[0], &error, sizeof error) > 0)
        waitpid(child, NULL, 0);
    sys_close(report[0]);
    sys_mask_back(before);             /* what comes until then waits, as it does for the C library */
    if (!error && pid)
        *pid = child;
    return error;
}

/* Where glibc's own way will do, the new program's environment must still lead here. */
static int spawn_leading_here(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attr, char *const argv[], char *const envp[], int search)
{
    struct mm_exec image;
    SCRATCH(found);
    if (changes_files(actions) && following())
        return spawn(pid, file, actions, attr, argv, envp, search);
    active();
    mm_before_exec(&image, AT_FDCWD, search ? mm_searched(file, found, 4096) : file, 0, envp, 0);
    int here = image.outside, r = -image.refused;      /* its process slot tells how long it lives */
    image.outside = 0;
    if (!here && r == 0) {
        int may_wait = opens(actions);
        uint64_t mask = may_wait ? 0 : mm_limit_begin();
        uint32_t numbers = mm_numbers;
        pid_t child = 0;
        mm_numbers = mm_memory_head != NULL;
        r = search ? REAL(posix_spawnp)(&child, file, actions, attr, argv, image.envp)
                   : REAL(posix_spawn)(&child, file, actions, attr, argv, image.envp);
        child = r == 0 ? mm_number_out(child) : 0;
        if (r == 0 && pid)
            *pid = child;
        mm_numbers = numbers;
        if (!may_wait)
            mm_limit_end(mask);
        if (r == 0)
            mm_started(child, image.envp);
    }
    mm_exec_failed(&image);
    return here ? spawn(pid, file, actions, attr, argv, envp, search) : r;
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    return spawn_leading_here(pid, path, actions, attr, argv, envp, 0);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    return spawn_leading_here(pid, file, actions, attr, argv, envp, 1);
}
