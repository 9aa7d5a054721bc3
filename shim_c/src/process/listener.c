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

static int found_by(long pid)
{
    int status = -1;
    if (pid < 0)
        return (int)pid;
    if (sys(SYS_wait4, pid, &status, __WCLONE, 0) != pid || !WIFEXITED(status))
        return -EPERM;                 /* a filter that ends who tries */
    return -WEXITSTATUS(status);
}

/* 0: one may be set, in need with no_new_privs; else -errno.  Tried in another process, for neither ever goes away again. */
int mm_listener_refused(void)
{
    long pid = mm_quiet_fork();
    if (pid == 0)
        sys(SYS_exit_group, -try_both_ways());
    return found_by(pid);
}

static int try_here(void) { return (int)-try_both_ways(); }

/* The same for who is about to execute a program: in its memory, on a stack of its own, while this process waits.  To copy a large
 * one's page tables takes longer than all else.  (Before Linux 5.16 a filter that ends who tries would end both; ours needs 5.19.) */
int mm_listener_refused_here(void)
{
    char stack[4096] __attribute__((aligned(16)));
    uint64_t mask = sys_mask_all();
    long pid;
#if defined(__x86_64__)
    register long none __asm__("r10") = 0;
    register long nor __asm__("r8") = 0;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tcall *%[try]\n\tmov %%eax, %%edi\n\tmov %[end], %%eax\n\tsyscall\n1:"
                     : "=a"(pid)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED), "S"(stack + sizeof stack), "d"(0), "r"(none),
                       "r"(nor), [try] "r"(try_here), [end] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
#else
    register long call __asm__("x8") = SYS_clone;
    register long how __asm__("x0") = CLONE_VM | CLONE_VFORK | CLONE_UNTRACED;
    register char *top __asm__("x1") = stack + sizeof stack;
    register long none __asm__("x2") = 0, nor __asm__("x3") = 0, neither __asm__("x4") = 0;
    __asm__ volatile("svc 0\n\tcbnz x0, 1f\n\tblr %[try]\n\tmov x8, %[end]\n\tsvc 0\n1:"
                     : "+r"(how)
                     : "r"(call), "r"(top), "r"(none), "r"(nor), "r"(neither), [try] "r"(try_here), [end] "i"(SYS_exit_group)
                     : "memory");
    pid = how;
#endif
    sys_mask_back(mask);
    return found_by(pid);
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
