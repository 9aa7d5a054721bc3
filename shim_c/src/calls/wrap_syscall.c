/* wrap_syscall.c - raw system calls through libc's syscall(): those that we follow go to their wrappers.
 *
 * Where the kernel's call differs from libc's function of that name, what is done here is the kernel's.  Everything
 * else, the whole fast rest, goes straight through.  System call instructions in the program itself pass unseen.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <linux/sched.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_setattr
#define SYS_file_setattr 469
#endif

static long forked(long number, uint64_t flags, long a, long b, long c, long d, long e)
{
    if (flags & CLONE_NEWPID)
        mm_outsider_comes();
    mm_fork_begin();
    long r = mm_number_out((pid_t)REAL(syscall)(number, a, b, c, d, e));
    if (r == 0) {
        mm_elsewhere |= (flags & CLONE_NEWNS) != 0;
        mm_in_child();
    } else {
        mm_fork_in_parent();
    }
    if (r > 0)
        mm_other_world(flags & (CLONE_NEWPID | CLONE_FILES));
    return r;
}

#define P(x) ((void *)(x))
#define S(x) ((const char *)(x))
#define I(x) ((int)(x))
#define ON(name, call) case SYS_##name: return (long)(call)

#ifdef __x86_64__
/* The C library's functions of these names read the times themselves; the kernel says EFAULT where it cannot. */
static int times_readable(long times, size_t size) { return !times || mm_usable(P(times), size, 0) == size; }
#define TIMES(times, size, call) (times_readable(times, size) ? (call) : REAL(syscall)(number, a, b, c))

/* the older calls, which other processors do not have */
static long older(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    ON(open, open(S(a), I(b), (mode_t)c));
    ON(creat, creat(S(a), (mode_t)b));
    ON(dup2, dup2(I(a), I(b)));
    ON(stat, stat(S(a), P(b)));
    ON(lstat, lstat(S(a), P(b)));
    ON(unlink, unlink(S(a)));
    ON(rmdir, rmdir(S(a)));
    ON(rename, rename(S(a), S(b)));
    ON(link, link(S(a), S(b)));
    ON(symlink, symlink(S(a), S(b)));
    ON(mkdir, mkdir(S(a), (mode_t)b));
    ON(mknod, mknod(S(a), (mode_t)b, (dev_t)(unsigned)c));
    ON(chmod, chmod(S(a), (mode_t)b));
    ON(chown, chown(S(a), (uid_t)b, (gid_t)c));
    ON(lchown, lchown(S(a), (uid_t)b, (gid_t)c));
    ON(utime, TIMES(b, sizeof(struct utimbuf), utime(S(a), P(b))));
    ON(utimes, TIMES(b, 2 * sizeof(struct timeval), utimes(S(a), P(b))));
    ON(futimesat, TIMES(c, 2 * sizeof(struct timeval), futimesat(I(a), S(b), P(c))));
    ON(renameat, renameat(I(a), S(b), I(c), S(d)));
    case SYS_fork: return forked(number, 0, a, b, c, d, e);
    case SYS_vfork: return forked(SYS_fork, 0, a, b, c, d, e);
    default: return REAL(syscall)(number, a, b, c, d, e, f);
    }
}
#else
#define older REAL(syscall)
#endif

static long bytes(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    ON(read, read(I(a), P(b), (size_t)c));
    ON(write, write(I(a), P(b), (size_t)c));
    ON(pread64, pread(I(a), P(b), (size_t)c, d));
    ON(pwrite64, pwrite(I(a), P(b), (size_t)c, d));
    ON(readv, readv(I(a), P(b), I(c)));
    ON(writev, writev(I(a), P(b), I(c)));
    ON(preadv, preadv(I(a), P(b), I(c), d));
    ON(pwritev, pwritev(I(a), P(b), I(c), d));
    ON(preadv2, preadv2(I(a), P(b), I(c), d, I(f)));
    ON(pwritev2, pwritev2(I(a), P(b), I(c), d, I(f)));
    ON(lseek, lseek(I(a), b, I(c)));
    ON(ftruncate, ftruncate(I(a), b));
    ON(truncate, truncate(S(a), b));
    ON(fallocate, fallocate(I(a), I(b), c, d));
    ON(fsync, fsync(I(a)));
    ON(fdatasync, fdatasync(I(a)));
    ON(syncfs, syncfs(I(a)));
    ON(sync, (sync(), 0));
    ON(sync_file_range, sync_file_range(I(a), b, c, (unsigned)d));
    ON(copy_file_range, copy_file_range(I(a), P(b), I(c), P(d), (size_t)e, (unsigned)f));
    ON(sendfile, sendfile(I(a), I(b), P(c), (size_t)d));
    ON(splice, splice(I(a), P(b), I(c), P(d), (size_t)e, (unsigned)f));
    ON(ioctl, ioctl(I(a), (unsigned long)b, P(c)));
    ON(mmap, mmap(P(a), (size_t)b, I(c), I(d), I(e), f));
    ON(munmap, munmap(P(a), (size_t)b));
    ON(mprotect, mprotect(P(a), (size_t)b, I(c)));
    ON(pkey_mprotect, pkey_mprotect(P(a), (size_t)b, I(c), I(d)));
    ON(madvise, madvise(P(a), (size_t)b, I(c)));
    ON(msync, msync(P(a), (size_t)b, I(c)));
    ON(mremap, mremap(P(a), (size_t)b, (size_t)c, I(d), P(e)));
    ON(fstat, fstat(I(a), P(b)));
    ON(newfstatat, fstatat(I(a), S(b), P(c), I(d)));
    ON(statx, statx(I(a), S(b), I(c), (unsigned)d, P(e)));
    default: return older(number, a, b, c, d, e, f);
    }
}

static long names(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    ON(openat, openat(I(a), S(b), I(c), (mode_t)d));
    ON(openat2, mm_open_resolved(I(a), S(b), P(c), (size_t)d));
    ON(open_by_handle_at, open_by_handle_at(I(a), P(b), I(c)));
    ON(name_to_handle_at, name_to_handle_at(I(a), S(b), P(c), P(d), I(e)));
    ON(close, close(I(a)));
    ON(close_range, close_range((unsigned)a, (unsigned)b, I(c)));
    ON(dup, dup(I(a)));
    ON(dup3, dup3(I(a), I(b), I(c)));
    ON(fcntl, fcntl(I(a), I(b), P(c)));
    ON(unlinkat, unlinkat(I(a), S(b), I(c)));
    ON(renameat2, renameat2(I(a), S(b), I(c), S(d), (unsigned)e));
    ON(linkat, linkat(I(a), S(b), I(c), S(d), I(e)));
    ON(symlinkat, symlinkat(S(a), I(b), S(c)));
    ON(mkdirat, mkdirat(I(a), S(b), (mode_t)c));
    ON(mknodat, mknodat(I(a), S(b), (mode_t)c, (dev_t)(unsigned)d));
    ON(fchmod, fchmod(I(a), (mode_t)b));
    ON(fchmodat, fchmodat(I(a), S(b), (mode_t)c, 0));
    case SYS_fchmodat2: return mm_attributes_at(I(d), (mode_t)c, number, a, b, c, d, e, f);
    case SYS_setxattrat:
    case SYS_removexattrat: return mm_attributes_at(I(c), 0, number, a, b, c, d, e, f);
    case SYS_file_setattr: return mm_before_flags(I(a), S(b), I(e), P(c)), REAL(syscall)(number, a, b, c, d, e, f);
    ON(fchown, fchown(I(a), (uid_t)b, (gid_t)c));
    ON(fchownat, fchownat(I(a), S(b), (uid_t)c, (gid_t)d, I(e)));
    case SYS_utimensat:                /* without a name it is refused where that is wanted */
        return b ? utimensat(I(a), S(b), P(c), I(d)) : I(a) == AT_FDCWD || d ? REAL(syscall)(number, a, b, c, d) : futimens(I(a), P(c));
    ON(setxattr, setxattr(S(a), S(b), P(c), (size_t)d, I(e)));
    ON(lsetxattr, lsetxattr(S(a), S(b), P(c), (size_t)d, I(e)));
    ON(fsetxattr, fsetxattr(I(a), S(b), P(c), (size_t)d, I(e)));
    ON(removexattr, removexattr(S(a), S(b)));
    ON(lremovexattr, lremovexattr(S(a), S(b)));
    ON(fremovexattr, fremovexattr(I(a), S(b)));
    default: return bytes(number, a, b, c, d, e, f);
    }
}

#define MM_THREAD(n) mm_real_thread_number((pid_t)(n))
/* Those whose first words are numbers of processes or threads, which have no function in the C library or one that answers otherwise. */
static long of_threads(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    case SYS_sched_getaffinity: case SYS_sched_setaffinity: case SYS_sched_getattr: case SYS_sched_setattr: case SYS_sched_getparam:
    case SYS_sched_setparam: case SYS_sched_getscheduler: case SYS_sched_setscheduler: case SYS_sched_rr_get_interval:
    case SYS_get_robust_list: case SYS_move_pages: case SYS_migrate_pages: case SYS_process_vm_readv: case SYS_process_vm_writev:
    case SYS_rt_sigqueueinfo:
        return MM_NUMBERS(long, names(number, MM_THREAD(a), b, c, d, e, f));
    case SYS_tkill:
        return MM_NUMBERS_AS(MM_NUMBER_GIVEN, long, names(number, MM_THREAD(a), b, c, d, e, f));
    case SYS_rt_tgsigqueueinfo: case SYS_kcmp:
        return MM_NUMBERS(long, names(number, MM_THREAD(a), MM_THREAD(b), c, d, e, f));
    case SYS_getpriority: case SYS_setpriority:
        return MM_NUMBERS(long, names(number, a, mm_share_number(a == PRIO_PROCESS, a == PRIO_PGRP, (id_t)b), c, d, e, f));
    case SYS_ioprio_get: case SYS_ioprio_set:      /* IOPRIO_WHO_PROCESS, _PGRP */
        return MM_NUMBERS(long, names(number, a, mm_share_number(a == 1, a == 2, (id_t)b), c, d, e, f));
    default: return names(number, a, b, c, d, e, f);
    }
}

static long numbers(long number, long a, long b, long c, long d, long e, long f)
{
    if (LIKELY(!mm_memory_head))
        return names(number, a, b, c, d, e, f);
    switch (number) {
    ON(getpid, getpid());
    ON(getppid, getppid());
    ON(gettid, gettid());
    ON(kill, kill((pid_t)a, I(b)));
    ON(tgkill, tgkill((pid_t)a, (pid_t)b, I(c)));
    ON(wait4, wait4((pid_t)a, P(b), I(c), P(d)));
    ON(getpgid, getpgid((pid_t)a));
    ON(getsid, getsid((pid_t)a));
    ON(setsid, setsid());
    ON(setpgid, setpgid((pid_t)a, (pid_t)b));
    ON(shmget, shmget((key_t)a, (size_t)b, I(c)));
    ON(shmat, shmat(I(a), P(b), I(c)));
    ON(shmctl, shmctl(I(a), I(b), P(c)));
    ON(semget, semget((key_t)a, I(b), I(c)));
    ON(semctl, semctl(I(a), I(b), I(c), P(d)));
    ON(semop, semop(I(a), P(b), (size_t)c));
    ON(semtimedop, semtimedop(I(a), P(b), (size_t)c, P(d)));
    ON(msgget, msgget((key_t)a, I(b)));
    ON(mq_notify, mq_notify(I(a), P(b)));
    ON(msgctl, msgctl(I(a), I(b), P(c)));
    ON(msgsnd, msgsnd(I(a), P(b), (size_t)c, I(d)));
    ON(msgrcv, msgrcv(I(a), P(b), (size_t)c, d, I(e)));
    case SYS_mq_open: return MM_NUMBERS(long, mm_queue_opened(S(a), names(number, a, b, c, d, e, f)));
    case SYS_timer_create: {
        struct sigevent real;
        return MM_NUMBERS(long, names(number, a, (long)mm_event_in(P(b), &real), c, d, e, f));
    }
    case SYS_waitid: return e ? names(number, a, b, c, d, e, f) : waitid((idtype_t)a, (id_t)b, P(c), I(d));
    ON(pidfd_open, pidfd_open((pid_t)a, (unsigned)b));
    default: return of_threads(number, a, b, c, d, e, f);
    }
}

/* A fork by its own number; threads, and children with a stack of their own, are the kernel's. */
static long clone_by_number(long number, long a, long b, long c, long d, long e, long f)
{
    const struct clone_args *arguments = number == SYS_clone3 ? P(a) : NULL;
    mm_cloned |= arguments || (a & CLONE_VM);
    if (!active() || (arguments && ((size_t)b < CLONE_ARGS_SIZE_VER0
                                    || mm_usable(arguments, CLONE_ARGS_SIZE_VER0, 0) < CLONE_ARGS_SIZE_VER0)))
        return REAL(syscall)(number, a, b, c, d, e, f);
    unsigned long flags = arguments ? arguments->flags : (unsigned long)a, stack = arguments ? arguments->stack : (unsigned long)b;
    if (flags & CLONE_VM)
        mm_may_part(flags);
    if (flags & CLONE_VM || stack)
        return REAL(syscall)(number, a, b, c, d, e, f);
    return forked(number, flags, a, b, c, d, e);
}

static long raw_io(long number, long a, long b, long c, long d, long e, long f)
{
    long refused = active() ? mm_before_raw(number, a, b, c) : 0;
    return refused < 0 ? fail(refused) : REAL(syscall)(number, a, b, c, d, e, f);
}

static long process_call(long number, long a, long b, long c, long d, long e, long f)
{
    switch (number) {
    ON(execve, execve(S(a), P(b), P(c)));
    ON(execveat, execveat(I(a), S(b), P(c), P(d), I(e)));
    ON(sendto, sendto(I(a), P(b), (size_t)c, I(d), (__CONST_SOCKADDR_ARG){ P(e) }, (socklen_t)f));
    ON(sendmsg, sendmsg(I(a), P(b), I(c)));
    ON(bind, bind(I(a), (__CONST_SOCKADDR_ARG){ P(b) }, (socklen_t)c));
    ON(sendmmsg, sendmmsg(I(a), P(b), (unsigned)c, I(d)));
    ON(recvmsg, recvmsg(I(a), P(b), I(c)));
    ON(recvmmsg, recvmmsg(I(a), P(b), (unsigned)c, I(d), P(e)));
    ON(pidfd_getfd, pidfd_getfd(I(a), I(b), (unsigned)c));
    ON(unshare, unshare(I(a)));
    ON(setns, setns(I(a), I(b)));
    ON(chroot, chroot(S(a)));
    ON(chdir, chdir(S(a)));
    ON(fchdir, fchdir(I(a)));
    ON(prctl, prctl(I(a), b, c, d, e));
    ON(rseq, result(MM_NUMBERS(long, mm_rseq(a, b, c, d))));   /* no image is made between the call and the note of it */
    ON(membarrier, a & MM_REGISTER ? result(MM_NUMBERS(long, mm_membarrier(a, b, c))) : REAL(syscall)(number, a, b, c));
    case SYS_seccomp:
    case SYS_landlock_restrict_self:
        return mm_confining(number, a, b, c);
    ON(setfsuid, setfsuid((uid_t)a));
    case SYS_setuid:
    case SYS_setreuid:
    case SYS_setresuid:
        return mm_user_by_number(number, a, b, c);
    ON(umount2, umount2(S(a), I(b)));
    ON(inotify_add_watch, inotify_add_watch(I(a), S(b), (uint32_t)c));
    ON(fanotify_mark, fanotify_mark(I(a), (unsigned)b, (uint64_t)c, I(d), S(e)));
    ON(setrlimit, setrlimit(I(a), P(b)));
    ON(getrlimit, getrlimit(I(a), P(b)));
    ON(prlimit64, prlimit((pid_t)a, I(b), P(c), P(d)));
    case SYS_exit_group:
        _exit(I(a));
    case SYS_rt_sigaction:
        if (b)
            mm_unwrapped_handlers = 1; /* it may be a handler, and does not come through ours */
        return REAL(syscall)(number, a, b, c, d, e, f);
    case SYS_clone:
    case SYS_clone3:
        return clone_by_number(number, a, b, c, d, e, f);
    case SYS_io_submit:
    case SYS_io_uring_setup:
        return raw_io(number, a, b, c, d, e, f);
    default: return numbers(number, a, b, c, d, e, f);
    }
}

/* UCX, below MPICH, patches mmap and its like to call its own functions, which come back here for the real call.  A handler that
 * interrupts the thread is not within its call (wrap_signal.c). */
__thread int mm_within_syscall __attribute__((tls_model("initial-exec")));

EXPORT long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if ((!mm_active && mm_ready == 1) || mm_within_syscall)
        return REAL(syscall)(number, a, b, c, d, e, f);
    mm_within_syscall = 1;
    long result = process_call(number, a, b, c, d, e, f);
    mm_within_syscall = 0;
    return result;
}
