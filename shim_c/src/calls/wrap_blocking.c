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
#include <time.h>

/* This thread waits in a system call from here on: what it was in before.  since: when a time began that only this call knows. */
static struct mm_wait begin_wait(uint32_t number, uint64_t since)
{
    struct mm_wait outer = mm_wait;
    mm_wait = (struct mm_wait){ .number = number, .since = since };
    return outer;
}

static uint64_t since_now(void) { return LIKELY(!mm_memory_head) ? 0 : sys_now_ns(); }

static long end_wait(const struct mm_wait *outer, long r)
{
    mm_wait = *outer;
    return r;
}

EXPORT int pause(void)
{
    struct mm_wait outer = begin_wait(SYS_pause, 0);
    return (int)end_wait(&outer, REAL(pause)());
}

EXPORT int sigsuspend(const sigset_t *mask)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigsuspend, 0);
    return (int)end_wait(&outer, REAL(sigsuspend)(mask));
}

EXPORT int __sigpause(int number, int is_signal)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigsuspend, 0);
    return (int)end_wait(&outer, REAL(__sigpause)(number, is_signal));
}

/* <signal.h> gives one of these two the name of the other */
EXPORT int masked(int mask) __asm__("sigpause");
EXPORT int without(int number) __asm__("__xpg_sigpause");
int masked(int mask)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigsuspend, 0);
    return (int)end_wait(&outer, REAL(sigpause)(mask));
}
int without(int number)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigsuspend, 0);
    return (int)end_wait(&outer, REAL(__xpg_sigpause)(number));
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigtimedwait, 0);
    return (int)end_wait(&outer, REAL(sigwaitinfo)(set, info));
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigtimedwait, since_now());
    return (int)end_wait(&outer, REAL(sigtimedwait)(set, info, timeout));
}

/* The kernel says what is left where it is given a place for it; the interrupted call is made again from there. */
EXPORT int nanosleep(const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    struct mm_wait outer = begin_wait(SYS_clock_nanosleep, 0);
    return (int)end_wait(&outer, REAL(nanosleep)(time, left || !mm_memory_head ? left : &own));
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    struct mm_wait outer = begin_wait(SYS_clock_nanosleep, 0);
    return (int)end_wait(&outer, REAL(clock_nanosleep)(clock, flags, time, left || !mm_memory_head ? left : &own));
}

EXPORT int thrd_sleep(const struct timespec *time, struct timespec *left)
{
    struct timespec own;
    struct mm_wait outer = begin_wait(SYS_clock_nanosleep, 0);
    return (int)end_wait(&outer, REAL(thrd_sleep)(time, left || !mm_memory_head ? left : &own));
}

EXPORT int usleep(useconds_t us)
{
    struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    return LIKELY(!mm_memory_head) ? REAL(usleep)(us) : nanosleep(&time, NULL);
}

EXPORT unsigned sleep(unsigned seconds)
{
    struct mm_wait outer = begin_wait(SYS_clock_nanosleep, 0);
    return (unsigned)end_wait(&outer, REAL(sleep)(seconds));
}

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
    struct mm_wait outer = begin_wait(SYS_ppoll, 0);
    return (int)end_wait(&outer, REAL(ppoll)(list, count, timeout, mask));
}

EXPORT int __ppoll_chk(struct pollfd *list, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
    struct mm_wait outer = begin_wait(SYS_ppoll, 0);
    return (int)end_wait(&outer, REAL(__ppoll_chk)(list, count, timeout, mask, room));
}

EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout)
{
    struct mm_wait outer = begin_wait(SYS_pselect6, 0);
    return (int)end_wait(&outer, REAL(select)(count, in, out, other, timeout));
}

EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *other, const struct timespec *timeout, const sigset_t *mask)
{
    struct mm_wait outer = begin_wait(SYS_pselect6, 0);
    return (int)end_wait(&outer, REAL(pselect)(count, in, out, other, timeout, mask));
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
    struct mm_wait outer = begin_wait(SYS_epoll_wait, since_now());
    return (int)end_wait(&outer, REAL(epoll_wait)(fd, events, count, timeout));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    struct mm_wait outer = begin_wait(SYS_epoll_pwait, since_now());
    return (int)end_wait(&outer, REAL(epoll_pwait)(fd, events, count, timeout, mask));
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask)
{
    struct mm_wait outer = begin_wait(MM_SYS_epoll_pwait2, since_now());
    return (int)end_wait(&outer, REAL(epoll_pwait2)(fd, events, count, timeout, mask));
}

EXPORT int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    struct mm_wait outer = begin_wait(SYS_futex, 0);
    return (int)end_wait(&outer, REAL(sem_timedwait)(semaphore, until));
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until)
{
    struct mm_wait outer = begin_wait(SYS_futex, 0);
    return (int)end_wait(&outer, REAL(sem_clockwait)(semaphore, clock, until));
}

/* Of System V (wrap_sysv.c).  Brought back while it waits, the object has another number: the one before does not count. */
#define WAITS_FOR(kind, id, call) (LIKELY(!mm_memory_head) ? call(id) : MM_NUMBERS(long, waited_for(kind, id, \
                                                                        call(mm_sysv_real(mm_area, kind, id)))))
static long waited_for(uint32_t kind, int id, long r)
{
    if (r >= 0)
        mm_sysv_note(mm_area, kind, mm_sysv_real(mm_area, kind, id));
    return r;
}

static void note_undo(int id, const struct sembuf *operations, size_t count, long r)
{
    struct mm_sysv *o = NULL;
    for (size_t i = 0; i < count && r >= 0 && mm_memory_head && !o; i++)
        if (operations[i].sem_flg & SEM_UNDO)
            o = mm_sysv_note(mm_area, MM_SYSV_SEM, mm_sysv_real(mm_area, MM_SYSV_SEM, id));
    if (o)
        o->undo = 1;
}

EXPORT int semop(int id, struct sembuf *operations, size_t count)
{
    struct mm_wait outer = begin_wait(SYS_semtimedop, 0);
#define MAKE(real) REAL(semop)(real, operations, count)
    long r = WAITS_FOR(MM_SYSV_SEM, id, MAKE);
#undef MAKE
    note_undo(id, operations, count, r);
    return (int)end_wait(&outer, r);
}

EXPORT int semtimedop(int id, struct sembuf *operations, size_t count, const struct timespec *timeout)
{
    struct mm_wait outer = begin_wait(SYS_semtimedop, since_now());
#define MAKE(real) REAL(semtimedop)(real, operations, count, timeout)
    long r = WAITS_FOR(MM_SYSV_SEM, id, MAKE);
#undef MAKE
    note_undo(id, operations, count, r);
    return (int)end_wait(&outer, r);
}

EXPORT int msgsnd(int id, const void *message, size_t size, int flags)
{
    struct mm_wait outer = begin_wait(SYS_msgsnd, 0);
#define MAKE(real) REAL(msgsnd)(real, message, size, flags)
    return (int)end_wait(&outer, WAITS_FOR(MM_SYSV_MSG, id, MAKE));
#undef MAKE
}

EXPORT ssize_t msgrcv(int id, void *message, size_t size, long type, int flags)
{
    struct mm_wait outer = begin_wait(SYS_msgrcv, 0);
#define MAKE(real) REAL(msgrcv)(real, message, size, type, flags)
    return (ssize_t)end_wait(&outer, WAITS_FOR(MM_SYSV_MSG, id, MAKE));
#undef MAKE
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_wait(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
