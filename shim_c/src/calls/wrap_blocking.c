/* wrap_blocking.c - calls that a handled signal ends with EINTR, whatever SA_RESTART says.
 *
 * A checkpoint of a program with its memory comes as a signal; the program must not see it.  So each of these notes that its
 * thread waits in it, and the engine's handler makes the interrupted system call again, for the time that is left
 * (memory/waits.c).  Where a signal of the program's own came too, EINTR stays EINTR: wrap_signal.c marks it.
 * In a run without memory each of these is the libc's own.
 */
#include "calls/calls.h"
#include "memory/engine.h"

#include <errno.h>
#include <sys/msg.h>
#include <time.h>

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* number: of the system call; since: when a time began that only this call knows */
#define WAIT(type, system_call, begun, call) do { \
    struct mm_wait outer = mm_wait; \
    mm_wait = (struct mm_wait){ .number = system_call, .since = begun }; \
    type outcome = call; \
    mm_wait = outer; \
    return outcome; } while (0)
#define SAME(type, system_call, call) do { if (LIKELY(!mm_memory_head)) return call; WAIT(type, system_call, 0, call); } while (0)
#define TIMED(type, system_call, call) do { if (LIKELY(!mm_memory_head)) return call; WAIT(type, system_call, now(), call); } while (0)

EXPORT int pause(void) { SAME(int, SYS_pause, REAL(pause)()); }

EXPORT int sigsuspend(const sigset_t *mask) { SAME(int, SYS_rt_sigsuspend, REAL(sigsuspend)(mask)); }

EXPORT int __sigpause(int number, int is_signal) { SAME(int, SYS_rt_sigsuspend, REAL(__sigpause)(number, is_signal)); }

/* <signal.h> gives one of these two the name of the other */
EXPORT int masked(int mask) __asm__("sigpause");
EXPORT int without(int number) __asm__("__xpg_sigpause");
int masked(int mask) { SAME(int, SYS_rt_sigsuspend, REAL(sigpause)(mask)); }
int without(int number) { SAME(int, SYS_rt_sigsuspend, REAL(__xpg_sigpause)(number)); }

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    SAME(int, SYS_rt_sigtimedwait, REAL(sigwaitinfo)(set, info));
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    TIMED(int, SYS_rt_sigtimedwait, REAL(sigtimedwait)(set, info, timeout));
}

/* The kernel says what is left where it is given a place for it; the interrupted call is made again from there. */
EXPORT int nanosleep(const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    SAME(int, SYS_clock_nanosleep, REAL(nanosleep)(time, left || !mm_memory_head ? left : &own));
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    SAME(int, SYS_clock_nanosleep, REAL(clock_nanosleep)(clock, flags, time, left || !mm_memory_head ? left : &own));
}

EXPORT int thrd_sleep(const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    SAME(int, SYS_clock_nanosleep, REAL(thrd_sleep)(time, left || !mm_memory_head ? left : &own));
}

EXPORT int usleep(useconds_t us)
{
    struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    return LIKELY(!mm_memory_head) ? REAL(usleep)(us) : nanosleep(&time, NULL);
}

EXPORT unsigned sleep(unsigned seconds) { SAME(unsigned, SYS_clock_nanosleep, REAL(sleep)(seconds)); }

/* with a time in memory, which the kernel counts down */
EXPORT int poll(struct pollfd *list, nfds_t count, int timeout)
{
    struct timespec time = { timeout / 1000, timeout % 1000 * 1000000l };
    if (LIKELY(!mm_memory_head))
        return REAL(poll)(list, count, timeout);
    return ppoll(list, count, timeout < 0 ? NULL : &time, NULL);
}

EXPORT int __poll_chk(struct pollfd *list, nfds_t count, int timeout, size_t room)
{
    return LIKELY(!mm_memory_head) || room / sizeof *list < count ? REAL(__poll_chk)(list, count, timeout, room)
                                                                  : poll(list, count, timeout);
}

EXPORT int ppoll(struct pollfd *list, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    SAME(int, SYS_ppoll, REAL(ppoll)(list, count, timeout, mask));
}

EXPORT int __ppoll_chk(struct pollfd *list, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
    SAME(int, SYS_ppoll, REAL(__ppoll_chk)(list, count, timeout, mask, room));
}

EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout)
{
    SAME(int, SYS_pselect6, REAL(select)(count, in, out, other, timeout));
}

EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *other, const struct timespec *timeout, const sigset_t *mask)
{
    SAME(int, SYS_pselect6, REAL(pselect)(count, in, out, other, timeout, mask));
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
    TIMED(int, SYS_epoll_wait, REAL(epoll_wait)(fd, events, count, timeout));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    TIMED(int, SYS_epoll_pwait, REAL(epoll_pwait)(fd, events, count, timeout, mask));
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask)
{
    TIMED(int, MM_SYS_epoll_pwait2, REAL(epoll_pwait2)(fd, events, count, timeout, mask));
}

EXPORT int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    SAME(int, SYS_futex, REAL(sem_timedwait)(semaphore, until));
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    SAME(int, SYS_futex, REAL(sem_clockwait)(semaphore, clock, until));
}

EXPORT int semop(int id, struct sembuf *operations, size_t count)
{
    SAME(int, SYS_semtimedop, REAL(semop)(id, operations, count));
}

EXPORT int semtimedop(int id, struct sembuf *operations, size_t count, const struct timespec *timeout)
{
    TIMED(int, SYS_semtimedop, REAL(semtimedop)(id, operations, count, timeout));
}

EXPORT int msgsnd(int id, const void *message, size_t size, int flags)
{
    SAME(int, SYS_msgsnd, REAL(msgsnd)(id, message, size, flags));
}

EXPORT ssize_t msgrcv(int id, void *message, size_t size, long type, int flags)
{
    SAME(ssize_t, SYS_msgrcv, REAL(msgrcv)(id, message, size, type, flags));
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_wait(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
