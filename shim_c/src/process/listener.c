/* listener.c - seccomp filters with a listener: setting one, and whether this machine lets us.
 *
 * A container may refuse them, have a listener of its own, or keep the proxy from reading the memory of other processes.
 * Python asks too (metamori/runtime/lifecycle/elf.py).  Between fork and exec too: system calls only, no allocation.
 */
#define _GNU_SOURCE
#include "process/listener.h"
#include "base/sys.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)      /* Linux 5.19 */
#endif

/* A process that no handler and no wait of the program's tells of: no signal when it ends, and no tracer gets it. */
long mm_quiet_fork(void) { return sys(SYS_clone, CLONE_UNTRACED, 0, 0, 0, 0); }

long mm_set_listener(const struct sock_fprog *filter)
{
    return sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, filter);
}

static long try_both_ways(void)
{
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = { 1, &all };
    long r = mm_set_listener(&filter);
    if (r == -EACCES && sys(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        r = mm_set_listener(&filter);
    return r < 0 ? r : 0;
}

/* 0: one may be set, in need with no_new_privs; else -errno.  Tried in another process, for neither ever goes away again. */
int mm_listener_refused(void)
{
    int status = -1;
    long pid = mm_quiet_fork();
    if (pid == 0)
        sys(SYS_exit_group, -try_both_ways());
    if (pid < 0)
        return (int)pid;
    if (sys(SYS_wait4, pid, &status, __WCLONE, 0) != pid || !WIFEXITED(status))
        return -EPERM;                 /* a filter that ends who tries */
    return -WEXITSTATUS(status);
}

/* May one process of a user read the memory of another that is no child of it? */
int mm_may_read_others(void)
{
    char scope = '0';
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct caps[2] = { { 0 } };
    long fd = sys_openat(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd == -ENOENT;
    sys_pread((int)fd, &scope, 1, 0);
    sys_close((int)fd);
    return scope == '0' || (scope < '3' && sys(SYS_capget, &head, caps) == 0 && caps[0].effective >> CAP_SYS_PTRACE & 1);
}
