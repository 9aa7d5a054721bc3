/* old_libc.c - what a C library before glibc 2.36 has no symbol for, as the kernel does it.
 *
 * Programs of such a library ask through __xstat, __fxstat and their like, which it has; but the wrappers call each other by
 * today's names, and a program that looks a newer name up (dlsym, a weak reference) finds the wrapper of it.  Every name of
 * calls.def that came after glibc 2.17 is here: tests/packaging/test_old_libc.py asks the C library's own version table.
 */
#include "libc/libc.h"

static int old_stat(const char *path, struct stat *out) { return (int)result(sys(SYS_newfstatat, AT_FDCWD, path, out, 0)); }
static int old_lstat(const char *path, struct stat *out)
{
    return (int)result(sys(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW));
}
static int old_fstat(int fd, struct stat *out) { return (int)result(sys(SYS_fstat, fd, out)); }
static int old_fstatat(int dir, const char *path, struct stat *out, int flags)
{
    return (int)result(sys(SYS_newfstatat, dir, path, out, flags));
}
static int old_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
    return (int)result(sys_statx(dir, path, flags, mask, out));
}

static int old_mknodat(int dir, const char *path, mode_t mode, dev_t device)
{
    if (device != (unsigned)device) {      /* the kernel takes 32 bits of it */
        errno = EINVAL;
        return -1;
    }
    return (int)result(sys(SYS_mknodat, dir, path, mode, device));
}
static int old_mknod(const char *path, mode_t mode, dev_t device) { return old_mknodat(AT_FDCWD, path, mode, device); }
static int old_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return (int)result(sys(SYS_renameat2, from_dir, from, to_dir, to, flags));
}

static ssize_t old_preadv2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    return result(sys(SYS_preadv2, fd, vector, count, at, 0, flags));
}
static ssize_t old_pwritev2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    return result(sys(SYS_pwritev2, fd, vector, count, at, 0, flags));
}
static ssize_t old_copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    return result(sys(SYS_copy_file_range, from, from_at, to, to_at, count, flags));
}

static int old_close_range(unsigned first, unsigned last, int flags)
{
    return (int)result(sys(SYS_close_range, first, last, flags));
}
static void old_closefrom(int first) { sys(SYS_close_range, first < 0 ? 0 : first, ~0u, 0); }
static int old_pidfd_getfd(int pidfd, int fd, unsigned flags) { return (int)result(sys(SYS_pidfd_getfd, pidfd, fd, flags)); }
static int old_pidfd_open(pid_t pid, unsigned flags) { return (int)result(sys(SYS_pidfd_open, pid, flags)); }
static int old_pkey_mprotect(void *address, size_t length, int protection, int key)
{
    return (int)result(key == -1 ? sys(SYS_mprotect, address, length, protection)
                               : sys(SYS_pkey_mprotect, address, length, protection, key));
}

static int old_execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    return (int)result(sys(SYS_execveat, dir, path, argv, envp, flags));
}
static pid_t old_fork(void) { return REAL(fork)(); }
static pid_t old_gettid(void) { return (pid_t)sys_gettid(); }
static int old_tgkill(pid_t pid, pid_t tid, int number) { return (int)result(sys(SYS_tgkill, pid, tid, number)); }

static int old_thrd_sleep(const struct timespec *time, struct timespec *left)
{
    long r = sys(SYS_clock_nanosleep, CLOCK_REALTIME, 0, time, left);
    return r == 0 ? 0 : r == -EINTR ? -1 : -2;
}
static int old_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask)
{
    return (int)result(sys(SYS_epoll_pwait2, fd, events, count, timeout, mask, 8));
}
/* The semaphore of such a library waits on the clock of the day only: the same moment, told by that one. */
static int old_sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    struct timespec now, day, same = *until;
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) {
        errno = EINVAL;
        return -1;
    }
    if (clock == CLOCK_MONOTONIC && until->tv_nsec >= 0 && until->tv_nsec < 1000000000) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        clock_gettime(CLOCK_REALTIME, &day);
        long ns = until->tv_nsec + day.tv_nsec - now.tv_nsec;
        same.tv_sec = until->tv_sec + day.tv_sec - now.tv_sec + (ns >= 1000000000) - (ns < 0);
        same.tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return REAL(sem_timedwait)(semaphore, &same);
}

void mm_old_libc(void)
{
#define OLD(name, own) \
    if (!real_##name)  \
        real_##name = own;
    OLD(stat, old_stat)
    OLD(lstat, old_lstat)
    OLD(fstat, old_fstat)
    OLD(fstatat, old_fstatat)
    OLD(statx, old_statx)
    OLD(mknod, old_mknod)
    OLD(mknodat, old_mknodat)
    OLD(renameat2, old_renameat2)
    OLD(preadv2, old_preadv2)
    OLD(pwritev2, old_pwritev2)
    OLD(copy_file_range, old_copy_file_range)
    OLD(close_range, old_close_range)
    OLD(closefrom, old_closefrom)
    OLD(pidfd_getfd, old_pidfd_getfd)
    OLD(pidfd_open, old_pidfd_open)
    OLD(pkey_mprotect, old_pkey_mprotect)
    OLD(execveat, old_execveat)
    OLD(_Fork, old_fork)
    OLD(gettid, old_gettid)
    OLD(tgkill, old_tgkill)
    OLD(thrd_sleep, old_thrd_sleep)
    OLD(epoll_pwait2, old_epoll_pwait2)
    OLD(sem_clockwait, old_sem_clockwait)
#undef OLD
}
