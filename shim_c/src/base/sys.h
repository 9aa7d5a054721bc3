/* sys.h - system calls without libc: never intercepted, no cancellation points, errors as -errno. */
#ifndef MM_SYS_H
#define MM_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
    long r;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#elif defined(__aarch64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "Metamori knows x86-64 and aarch64"
#endif

#define SYS_N(_1, _2, _3, _4, _5, _6, _7, N, ...) N
#define sys(...) SYS_N(__VA_ARGS__, sys_6, sys_5, sys_4, sys_3, sys_2, sys_1, sys_0, 0)(__VA_ARGS__)
#define sys_0(n) sys6(n, 0, 0, 0, 0, 0, 0)
#define sys_1(n, a) sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define sys_2(n, a, b) sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define sys_3(n, a, b, c) sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys_4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define sys_5(n, a, b, c, d, e) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define sys_6(n, a, b, c, d, e, f) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline long sys_openat(int dir, const char *path, int flags, int mode)
{
    return sys(SYS_openat, dir, path, flags, mode);
}
static inline long sys_close(int fd) { return sys(SYS_close, fd); }
static inline long sys_pread(int fd, void *p, size_t n, off_t at) { return sys(SYS_pread64, fd, p, n, at); }
static inline long sys_pwrite(int fd, const void *p, size_t n, off_t at) { return sys(SYS_pwrite64, fd, p, n, at); }
static inline long sys_lseek(int fd, off_t at, int whence) { return sys(SYS_lseek, fd, at, whence); }
static inline long sys_gettid(void) { return sys(SYS_gettid); }
static inline long sys_getpid(void) { return sys(SYS_getpid); }
static inline long sys_readlink(const char *path, char *out, size_t n)
{
    return sys(SYS_readlinkat, AT_FDCWD, path, out, n);
}
static inline long sys_statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
    return sys(SYS_statx, dir, path, flags, mask, out);
}
static inline long sys_futex_wait(uint32_t *word, uint32_t value, long timeout_us)
{
    struct timespec t = { timeout_us / 1000000, timeout_us % 1000000 * 1000 };
    return sys(SYS_futex, word, FUTEX_WAIT, value, &t, 0, 0);
}
static inline long sys_futex_wake(uint32_t *word, int n) { return sys(SYS_futex, word, FUTEX_WAKE, n, 0, 0, 0); }
static inline void sys_pause_us(long us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };
    sys(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, 0);
}
static inline uint64_t sys_now_ns(void)                        /* monotonic; no system call where the kernel's page is */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t sys_quartz_ns(void)                     /* no time service hastens or slows it down */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
/* On x86 a locked instruction is a barrier for all of memory, and stores are seen in their order. */
#if defined(__x86_64__)
static inline void sys_barrier_behind_lock(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
static inline void sys_barrier_before_store(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
#else
static inline void sys_barrier_behind_lock(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void sys_barrier_before_store(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
#endif
static inline uint64_t sys_mask_all(void)
{
    uint64_t all = ~0ull, old = 0;
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
    return old;
}
static inline void sys_mask_back(uint64_t old) { sys(SYS_rt_sigprocmask, SIG_SETMASK, &old, 0, 8); }

/* scratch.c: a room for the time of a block */
/* Large tables lie behind the rest, so that what every program writes at its start lies in few pages (of which each fork
 * makes copies). */
#define LARGE __attribute__((section(".sbss.large")))

#define SCRATCH_BYTES 8704
char *mm_scratch_take(void);
void mm_scratch_give(char **room);
void mm_scratch_after_fork(void);
#define SCRATCH(name) char *name __attribute__((cleanup(mm_scratch_give))) = mm_scratch_take()

/* device number as struct stat gives it, from struct statx */
static inline uint64_t sys_dev(uint32_t major, uint32_t minor)
{
    return ((uint64_t)(major & 0xfffff000u) << 32) | ((uint64_t)(major & 0xfffu) << 8)
         | ((uint64_t)(minor & 0xffffff00u) << 12) | (minor & 0xffu);
}
/* A file's time, which may lie before 1970; the nearest that 64 bits reach where it lies before 1677 or after 2262. */
static inline int64_t sys_time_ns(int64_t seconds, uint64_t more)
{
    const int64_t most = INT64_MAX / 1000000000;
    return seconds >= most ? INT64_MAX : seconds < -most ? INT64_MIN : seconds * 1000000000 + (int64_t)more;
}
/* Whether a time of the clock's is later than one that a file may have. */
static inline int sys_is_later(int64_t ns, int64_t seconds, uint64_t more)
{
    return (uint64_t)seconds < 9223372036u ? ns > seconds * 1000000000 + (int64_t)more : seconds < 0;
}
static inline int64_t sys_ns(struct statx_timestamp t) { return sys_time_ns(t.tv_sec, t.tv_nsec); }
/* birth.c: with its birth, or what stands for that */
__attribute__((visibility("hidden"))) long mm_statx(int dir, const char *path, int flags, struct statx *out);
/* 0: nobody says */
static inline uint64_t sys_birth(const struct statx *st)
{
    return st->stx_mask & STATX_BTIME ? (uint64_t)st->stx_btime.tv_sec * 1000000000u + st->stx_btime.tv_nsec : 0;
}

#endif
