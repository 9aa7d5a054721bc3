/* waits.c - a system call that our signal interrupted goes on as if it had not been.
 *
 * The kernel restarts most calls by itself (SA_RESTART); those of wrap_blocking.c it ends with EINTR.  The signal's frame then
 * stands right behind their system call instruction: it is set back onto it, with the time that is left.  As the frame is
 * part of the image, a program that comes back goes on waiting for what was left when it was saved.
 */
#include "memory/image_engine.h"

#include <errno.h>
#include <ucontext.h>

struct mm_memory *mm_my_memory;
__thread struct mm_wait mm_wait __attribute__((tls_model("initial-exec")));
__thread struct mm_of_thread mm_of_thread __attribute__((tls_model("initial-exec")));

/* The program's own call. */
long mm_rseq(long area, long length, long flags, long signature)
{
    long r = sys(SYS_rseq, area, length, flags, signature);
    if (r == 0) {
        mm_of_thread.rseq = flags & 1 /* RSEQ_FLAG_UNREGISTER */ ? 0 : (uint64_t)area;
        mm_of_thread.rseq_length = (uint32_t)length;
        mm_of_thread.rseq_signature = (uint32_t)signature;
    }
    return r;
}

/* mov $number,%eax before it: the libc's own word for which call this is; else what the wrapper expects */
static uint32_t call_of(const unsigned char *after)
{
    if (((uint64_t)after & (MM_PAGE - 1)) >= 7 && after[-7] == 0xb8)
        return (uint32_t)after[-6] | (uint32_t)after[-5] << 8 | (uint32_t)after[-4] << 16 | (uint32_t)after[-3] << 24;
    return mm_wait.number;
}

/* What is left of a time, in a place of our own; of none, none. */
static greg_t left_of(greg_t time, uint64_t passed)
{
    const struct timespec *t = (const struct timespec *)time;
    if (!t)
        return 0;
    uint64_t ns = (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
    ns = ns > passed ? ns - passed : 0;
    mm_wait.rest = (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
    return (greg_t)&mm_wait.rest;
}

static greg_t milliseconds_left(greg_t time, uint64_t passed)
{
    int ms = (int)time;
    if (ms <= 0)
        return ms;
    uint64_t ns = (uint64_t)ms * 1000000u;
    return ns > passed ? (greg_t)((ns - passed + 999999) / 1000000) : 0;
}

static void shorten(greg_t *r, uint32_t number)
{
    uint64_t now = own_now(), passed = now - mm_wait.since;
    switch (number) {
    case SYS_nanosleep:
        r[REG_RDI] = r[REG_RSI];           /* there the kernel put what is left */
        return;
    case SYS_clock_nanosleep:
        if (!(r[REG_RSI] & TIMER_ABSTIME))
            r[REG_RDX] = r[REG_R10];
        return;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        r[REG_R10] = milliseconds_left(r[REG_R10], passed);
        break;
    case MM_SYS_epoll_pwait2:
    case SYS_semtimedop:
        r[REG_R10] = left_of(r[REG_R10], passed);
        break;
    case SYS_rt_sigtimedwait:
        r[REG_RDX] = left_of(r[REG_RDX], passed);
    }
    mm_wait.since = now;
}

/* Those that a process which was stopped finds ended, when it is continued: so it is to find them. */
static int ends_by_stop(uint32_t number)
{
    return number == SYS_epoll_wait || number == SYS_epoll_pwait || number == MM_SYS_epoll_pwait2 || number == SYS_semop
        || number == SYS_semtimedop || number == SYS_rt_sigtimedwait;
}

/* In our handler, before anything else. */
void mm_wait_again(void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *after = (const unsigned char *)r[REG_RIP];
    if (mm_my_memory && mm_my_memory->stands && ends_by_stop(mm_wait.number))
        return;
    mm_wait.came = mm_wait.number;
    /* a read ends so only where it has a time of its own (SO_RCVTIMEO), which would begin anew */
    if (r[REG_RAX] != -EINTR || !mm_wait.number || mm_wait.number == SYS_readv || mm_wait.handled
        || after[-2] != 0x0f || after[-1] != 0x05)
        return;
    uint32_t number = call_of(after);
    shorten(r, number);
    r[REG_RAX] = number;
    r[REG_RIP] -= 2;
    mm_wait.again = (uint64_t)r[REG_RIP];
}
