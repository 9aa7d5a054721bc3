/* wrap_blocking.c - calls that a handled signal ends with EINTR, whatever SA_RESTART says.
 *
 * A checkpoint of a program with its memory comes as a signal; the program must not see it.  So each of these notes that its
 * thread waits in it, and the engine's handler makes the interrupted system call again, for the time that is left
 * (memory/waits.c).  Where a signal of the program's own came too, EINTR stays EINTR: wrap_signal.c marks it.
 * In a run without memory each of these is the libc's own.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
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

static int come(int number, siginfo_t *info)
{
    if (number > 0 && info && mm_have_come_back())
        mm_sender_out(info);
    return number;
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigtimedwait, 0);
    return (int)end_wait(&outer, MM_NUMBERS(int, come(REAL(sigwaitinfo)(set, info), info)));
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    struct mm_wait outer = begin_wait(SYS_rt_sigtimedwait, since_now());
    return (int)end_wait(&outer, MM_NUMBERS(int, come(REAL(sigtimedwait)(set, info, timeout), info)));
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

/* -- bytes that have to wait for whoever reads or writes at the other end ----------------------------------------------
 *
 * There the kernel ends a write to a pipe or a socket with what has gone so far, and so it does with a read that wants all
 * (MSG_WAITALL), or is of a device that always has more.  What is left follows, also in a process that was brought back in
 * the middle; where a handler of the program's ran too, the short count is the program's own affair.
 */
typedef ssize_t (*mover)(int fd, struct msghdr *part, int flags);

static ssize_t by_writev(int fd, struct msghdr *part, int flags)
{
    (void)flags;
    return REAL(writev)(fd, part->msg_iov, (int)part->msg_iovlen);
}
static ssize_t by_readv(int fd, struct msghdr *part, int flags)
{
    (void)flags;
    return REAL(readv)(fd, part->msg_iov, (int)part->msg_iovlen);
}
static ssize_t by_sendmsg(int fd, struct msghdr *part, int flags) { return REAL(sendmsg)(fd, part, flags); }
static ssize_t by_recvmsg(int fd, struct msghdr *part, int flags) { return REAL(recvmsg)(fd, part, flags); }

static int was_held_up(int fd)
{
    struct stat st;
    return __atomic_load_n(&mm_wait.came, __ATOMIC_RELAXED) && !__atomic_load_n(&mm_wait.handled, __ATOMIC_RELAXED)
        && REAL(fstat)(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

static size_t length(const struct iovec *vector, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += vector[i].iov_len;
    return sum;
}

/* Of a vector, what comes behind so many bytes. */
static size_t behind(const struct iovec *vector, size_t count, size_t done, struct iovec *left)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        size_t skipped = done < vector[i].iov_len ? done : vector[i].iov_len;
        done -= skipped;
        if (skipped < vector[i].iov_len)
            left[n++] = (struct iovec){ (char *)vector[i].iov_base + skipped, vector[i].iov_len - skipped };
    }
    return n;
}

static __attribute__((noinline)) ssize_t the_rest(ssize_t done, int fd, const struct iovec *vector, size_t count, int flags,
                                                  mover move)
{
    struct iovec left[IOV_MAX];
    size_t wanted = length(vector, count);
    int saved = errno;
    while ((size_t)done < wanted && was_held_up(fd)) {
        struct msghdr part = { .msg_iov = left, .msg_iovlen = behind(vector, count, (size_t)done, left) };
        mm_wait.came = 0;
        ssize_t r = move(fd, &part, flags);
        if (r <= 0)                        /* said when it is asked the next time, as where it came a moment later */
            break;
        done += r;
    }
    errno = saved;
    return done;
}

/* call: the whole of it, which notes that its thread waits; of a vector that the kernel took. */
#define HELD_UP(number_, call_, fd_, vector_, count_, flags_, move_) ({ \
    struct mm_wait outer_ = mm_wait; \
    mm_wait = (struct mm_wait){ .number = (number_) }; \
    ssize_t done_ = (call_); \
    if (UNLIKELY(done_ > 0 && mm_wait.came)) \
        done_ = the_rest(done_, fd_, vector_, count_, flags_, move_); \
    mm_wait = outer_; \
    done_; })
#define ONE(data, size) (&(struct iovec){ (void *)(data), (size) })

ssize_t mm_write_held_up(int fd, const void *data, size_t size)
{
    return HELD_UP(SYS_write, REAL(write)(fd, data, size), fd, ONE(data, size), 1, 0, by_writev);
}

/* Of the kernel's own memory: /dev/zero, /dev/urandom. */
static int always_has_more(int fd)
{
    struct stat st;
    return REAL(fstat)(fd, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 1;
}

ssize_t mm_read_held_up(int fd, void *data, size_t size)
{
    struct mm_wait outer = begin_wait(SYS_readv, 0);     /* the number of read is none */
    ssize_t done = REAL(read)(fd, data, size);
    if (UNLIKELY(done > 0 && (size_t)done < size && mm_wait.came) && always_has_more(fd))
        done = the_rest(done, fd, ONE(data, size), 1, 0, by_readv);
    return end_wait(&outer, done);
}

ssize_t mm_writev_held_up(int fd, const struct iovec *vector, int count)
{
    if (LIKELY(!mm_memory_head))
        return REAL(writev)(fd, vector, count);
    return HELD_UP(SYS_writev, REAL(writev)(fd, vector, count), fd, vector, (size_t)count, 0, by_writev);
}

ssize_t mm_sendmsg_held_up(int fd, const struct msghdr *message, int flags)
{
    if (LIKELY(!mm_memory_head))
        return REAL(sendmsg)(fd, message, flags);
    return HELD_UP(SYS_sendmsg, REAL(sendmsg)(fd, message, flags), fd, message->msg_iov, message->msg_iovlen, flags, by_sendmsg);
}

ssize_t mm_recvmsg_held_up(int fd, struct msghdr *message, int flags)
{
    if (LIKELY(!mm_memory_head) || !(flags & MSG_WAITALL) || flags & MSG_PEEK)
        return REAL(recvmsg)(fd, message, flags);
    return HELD_UP(SYS_recvmsg, REAL(recvmsg)(fd, message, flags), fd, message->msg_iov, message->msg_iovlen, flags, by_recvmsg);
}

EXPORT ssize_t send(int fd, const void *data, size_t size, int flags)
{
    if (LIKELY(!mm_memory_head))
        return REAL(send)(fd, data, size, flags);
    return HELD_UP(SYS_sendto, REAL(send)(fd, data, size, flags), fd, ONE(data, size), 1, flags, by_sendmsg);
}

EXPORT ssize_t sendto(int fd, const void *data, size_t size, int flags, __CONST_SOCKADDR_ARG to, socklen_t length)
{
    if (LIKELY(!mm_memory_head))
        return REAL(sendto)(fd, data, size, flags, to, length);
    return HELD_UP(SYS_sendto, REAL(sendto)(fd, data, size, flags, to, length), fd, ONE(data, size), 1, flags, by_sendmsg);
}

#define WANTS_ALL(flags) (UNLIKELY(mm_memory_head) && ((flags) & (MSG_WAITALL | MSG_PEEK)) == MSG_WAITALL)

EXPORT ssize_t recv(int fd, void *data, size_t size, int flags)
{
    if (!WANTS_ALL(flags))
        return REAL(recv)(fd, data, size, flags);
    return HELD_UP(SYS_recvfrom, REAL(recv)(fd, data, size, flags), fd, ONE(data, size), 1, flags, by_recvmsg);
}

EXPORT ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags)
{
    return size > room ? REAL(__recv_chk)(fd, data, size, room, flags) : recv(fd, data, size, flags);
}

EXPORT ssize_t recvfrom(int fd, void *data, size_t size, int flags, __SOCKADDR_ARG from, socklen_t *length)
{
    if (!WANTS_ALL(flags))
        return REAL(recvfrom)(fd, data, size, flags, from, length);
    return HELD_UP(SYS_recvfrom, REAL(recvfrom)(fd, data, size, flags, from, length), fd, ONE(data, size), 1, flags, by_recvmsg);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *data, size_t size, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *length)
{
    return size > room ? REAL(__recvfrom_chk)(fd, data, size, room, flags, from, length)
                       : recvfrom(fd, data, size, flags, from, length);
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_wait(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
