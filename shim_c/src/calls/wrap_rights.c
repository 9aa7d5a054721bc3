/* wrap_rights.c - processes that give rights up: they confine themselves, or change their user or group; and what part of the machine
 * processes and threads get, which are told by the numbers that the program knows (wrap_pid.c).
 *
 * Following a program takes system calls that it does not make by itself.  A seccomp filter that refuses one of them would
 * end the program, or make its calls fail; one that lets all of them pass changes nothing.  So a filter is asked about
 * each of them first, as the kernel would ask it (seccomp(2), Documentation/networking/filter.rst); where it refuses one,
 * the process leaves the run before the filter holds.  Landlock's rules cannot be asked.
 *
 * The run area and the store belong to whoever started the run.  A process that gives up the right to write them could
 * not track its own calls any longer: it leaves the run before that, its files in place, as a program that cannot be
 * tracked (exec.c).  The runtime's thread is not one that libc knows, so what libc does for all threads is repeated
 * there: no thread keeps rights that the program has given up.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

static const int needed[] = {
    SYS_clock_gettime, SYS_clone3, SYS_close, SYS_dup3, SYS_fallocate, SYS_fcntl, SYS_fdatasync, SYS_fsync, SYS_fstat, SYS_ftruncate, SYS_futex,
    SYS_getcwd, SYS_getdents64, SYS_geteuid, SYS_getpid, SYS_gettid, SYS_kcmp, SYS_linkat, SYS_llistxattr, SYS_lseek, SYS_madvise,
    SYS_mmap, SYS_mremap, SYS_munmap, SYS_newfstatat, SYS_openat, SYS_pread64, SYS_preadv, SYS_prlimit64, SYS_pwrite64,
    SYS_pwritev2, SYS_read, SYS_readlinkat, SYS_rt_sigprocmask, SYS_statx, SYS_tkill, SYS_unlinkat, SYS_utimensat, SYS_write,
    SYS_name_to_handle_at,             /* the last: only where files have no births (birth.c) */
};

static int has_births(const char *path)
{
    struct statx st;
    return sys_statx(AT_FDCWD, path, 0, STATX_BTIME, &st) < 0 || st.stx_mask & STATX_BTIME;
}

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static uint32_t computed(int operation, uint32_t a, uint32_t b)
{
    switch (operation) {
    case BPF_ADD: return a + b;
    case BPF_SUB: return a - b;
    case BPF_MUL: return a * b;
    case BPF_DIV: return b ? a / b : 0;
    case BPF_OR: return a | b;
    case BPF_AND: return a & b;
    case BPF_LSH: return b < 32 ? a << b : 0;
    case BPF_RSH: return b < 32 ? a >> b : 0;
    case BPF_XOR: return a ^ b;
    default: return -a;
    }
}

static int holds(int condition, uint32_t a, uint32_t b)
{
    return condition == BPF_JA ? 1 : condition == BPF_JEQ ? a == b : condition == BPF_JGT ? a > b
         : condition == BPF_JGE ? a >= b : (a & b) != 0;
}

/* What the filter says of a system call whose arguments are all 0: SECCOMP_RET_...; a filter that is none refuses. */
static uint32_t verdict(const struct sock_fprog *filter, int number)
{
    struct seccomp_data call = { .nr = number, .arch = ARCHITECTURE };
    uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = { 0 };
    for (uint32_t at = 0; at < filter->len; at++) {
        const struct sock_filter *f = &filter->filter[at];
        uint32_t k = f->k, other = BPF_SRC(f->code) == BPF_X ? x : k, *to = BPF_CLASS(f->code) == BPF_LDX ? &x : &a;
        switch (BPF_CLASS(f->code)) {
        case BPF_LD:
        case BPF_LDX:
            if (BPF_MODE(f->code) == BPF_ABS && k <= sizeof call - 4)
                memcpy(to, (char *)&call + k, 4);
            else
                *to = BPF_MODE(f->code) == BPF_IMM ? k : BPF_MODE(f->code) == BPF_MEM ? memory[k % BPF_MEMWORDS] : sizeof call;
            break;
        case BPF_ST: memory[k % BPF_MEMWORDS] = a; break;
        case BPF_STX: memory[k % BPF_MEMWORDS] = x; break;
        case BPF_ALU: a = computed(BPF_OP(f->code), a, other); break;
        case BPF_JMP:
            if (BPF_OP(f->code) == BPF_JA && k >= filter->len)     /* back: the kernel will not take it */
                return SECCOMP_RET_ALLOW;
            at += BPF_OP(f->code) == BPF_JA ? k : holds(BPF_OP(f->code), a, other) ? f->jt : f->jf; break;
        case BPF_RET: return BPF_RVAL(f->code) == BPF_A ? a : k;
        default: BPF_MISCOP(f->code) == BPF_TAX ? (x = a) : (a = x);
        }
    }
    return SECCOMP_RET_KILL_PROCESS;
}

/* Does the filter refuse any call that following takes?  One that the kernel would not take refuses nothing. */
static int refuses(const struct sock_fprog *filter)
{
    if (!filter || mm_usable(filter, sizeof *filter, 0) < sizeof *filter || !filter->len || filter->len > BPF_MAXINSNS)
        return 0;
    size_t bytes = filter->len * sizeof *filter->filter;
    if (!filter->filter || mm_usable(filter->filter, bytes, 0) < bytes)
        return 0;
    size_t count = sizeof needed / sizeof *needed - (!mm_area || (has_births(".") && has_births(mm_area->store)
                                                                  && mm_scope_all(mm_area, has_births)));
    for (size_t i = 0; i < count; i++) {
        uint32_t action = verdict(filter, needed[i]) & SECCOMP_RET_ACTION_FULL;
        if (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG && action != SECCOMP_RET_TRACE
            && action != SECCOMP_RET_USER_NOTIF)
            return 1;
    }
    return 0;
}

/* The process leaves the run before it is confined, and comes back if it was not. */
static int leave_if(int confines) { return confines && active() && mm_leave_confined(); }

static long confined(int left, long r)
{
    if (r < 0 && left)
        mm_leave_undone(left);
    return r;
}

/* seccomp(2) and landlock_restrict_self(2), which have no function in the C library. */
long mm_confining(long number, long a, long b, long c)
{
    int confines = number != SYS_seccomp || a == SECCOMP_SET_MODE_STRICT
                || (a == SECCOMP_SET_MODE_FILTER && refuses((const struct sock_fprog *)c));
    int left = leave_if(confines);
    return confined(left, REAL(syscall)(number, a, b, c));
}

EXPORT int prctl(int option, ...)
{
    va_list list;
    va_start(list, option);
    unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long);
    unsigned long c = va_arg(list, unsigned long), d = va_arg(list, unsigned long);
    va_end(list);
    int confines = option == PR_SET_SECCOMP && (a == SECCOMP_MODE_STRICT
                || (a == SECCOMP_MODE_FILTER && refuses((const struct sock_fprog *)b)));
    int left = leave_if(confines);
    if (option == PR_SET_MM)
        mm_memory_places(1);
    if (option == PR_SET_CHILD_SUBREAPER && a && active())
        mm_area->head->reaps = 1;
    long r = confined(left, REAL(prctl)(option, a, b, c, d));
    if (option == PR_SET_MM)
        mm_memory_places(0);
    return (int)r;
}

#define KEPT ((uid_t)-1)

/* The process becomes another user: what mm_leave_for did before it. */
static int leave_for(uid_t uid) { return active() ? mm_leave_for(uid) : 0; }

static int user_changed(int left, int r)
{
    if (r < 0)
        mm_leave_undone(left);
    else
        mm_runtime_credentials();
    return r;
}

static int group_changed(int r)
{
    if (r == 0)
        mm_runtime_credentials();
    return r;
}

EXPORT int setuid(uid_t uid)
{
    int left = leave_for(uid);
    return user_changed(left, REAL(setuid)(uid));
}
EXPORT int seteuid(uid_t uid)
{
    int left = leave_for(uid);
    return user_changed(left, REAL(seteuid)(uid));
}
EXPORT int setreuid(uid_t real, uid_t effective)
{
    int left = leave_for(effective);
    return user_changed(left, REAL(setreuid)(real, effective));
}
EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
    int left = leave_for(effective);
    return user_changed(left, REAL(setresuid)(real, effective, saved));
}
/* Of this thread alone, and so are those by system call: what the whole run may write is no longer one thing. */
EXPORT int setfsuid(uid_t uid)
{
    int left = leave_for(uid), was = REAL(setfsuid)(uid);
    if (left && (uid_t)REAL(setfsuid)(KEPT) != uid)
        mm_leave_undone(left);
    return was;
}
long mm_user_by_number(long number, long a, long b, long c)
{
    int left = leave_for((uid_t)(number == SYS_setuid ? a : b));
    long r = REAL(syscall)(number, a, b, c);
    if (r < 0)
        mm_leave_undone(left);
    return r;
}
EXPORT int setgid(gid_t gid) { return group_changed(REAL(setgid)(gid)); }
EXPORT int setegid(gid_t gid) { return group_changed(REAL(setegid)(gid)); }
EXPORT int setregid(gid_t real, gid_t effective) { return group_changed(REAL(setregid)(real, effective)); }
EXPORT int setresgid(gid_t real, gid_t effective, gid_t saved) { return group_changed(REAL(setresgid)(real, effective, saved)); }
EXPORT int setgroups(size_t count, const gid_t *groups) { return group_changed(REAL(setgroups)(count, groups)); }

/* -- what part of the machine they get ---------------------------------------------------------------------------------- */

/* Of a process or thread, or of a group; a user's is none. */
id_t mm_share_number(int is_process, int is_group, id_t known)
{
    pid_t number = (pid_t)known;
    return (id_t)(is_process ? mm_real_thread_number(number) : is_group ? mm_number_in(number) : number);
}

static id_t of_priority(__priority_which_t which, id_t who) { return mm_share_number(which == PRIO_PROCESS, which == PRIO_PGRP, who); }

EXPORT int getpriority(__priority_which_t which, id_t who)
{
    return MM_NUMBERS(int, REAL(getpriority)(which, of_priority(which, who)));
}
EXPORT int setpriority(__priority_which_t which, id_t who, int value)
{
    return MM_NUMBERS(int, REAL(setpriority)(which, of_priority(which, who), value));
}
EXPORT int sched_getparam(pid_t pid, struct sched_param *parameters)
{
    return MM_NUMBERS(int, REAL(sched_getparam)(mm_real_thread_number(pid), parameters));
}
EXPORT int sched_setparam(pid_t pid, const struct sched_param *parameters)
{
    return MM_NUMBERS(int, REAL(sched_setparam)(mm_real_thread_number(pid), parameters));
}
EXPORT int sched_getscheduler(pid_t pid) { return MM_NUMBERS(int, REAL(sched_getscheduler)(mm_real_thread_number(pid))); }
EXPORT int sched_setscheduler(pid_t pid, int policy, const struct sched_param *parameters)
{
    return MM_NUMBERS(int, REAL(sched_setscheduler)(mm_real_thread_number(pid), policy, parameters));
}
EXPORT int sched_rr_get_interval(pid_t pid, struct timespec *time)
{
    return MM_NUMBERS(int, REAL(sched_rr_get_interval)(mm_real_thread_number(pid), time));
}

/* -- a descriptor of one ------------------------------------------------------------------------------------------------ */

EXPORT int pidfd_open(pid_t pid, unsigned flags) { return MM_NUMBERS(int, REAL(pidfd_open)(mm_real_thread_number(pid), flags)); }

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_rights(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
