/* freeze.c - an instant at which no call on a tracked file is under way, in any process of the run.
 *
 * Calls count themselves in their process's slot and look for the freeze word (enter, area.h); whoever freezes sets the word
 * first and then waits for the counts.  A process that was killed in a call is not waited for, nor are threads that an exec has
 * ended in theirs: the program that comes may have no library to say so.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <errno.h>
#include <stdio.h>

/* A leader that has ended before its threads has none, which says nothing of theirs. */
static int has_mappings(uint32_t pid)
{
    char path[40], one;
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    int fd = (int)mm_open_spare(AT_FDCWD, path, O_RDONLY, 0);
    int r = fd >= 0 && sys(SYS_read, fd, &one, 1) == 1;
    if (fd >= 0)
        mm_close_spare(fd);
    return r;
}

int mm_freeze(struct mm_area *a, int timeout_ms)
{
    struct mm_header *h = a->head;
    __atomic_store_n(&h->freeze, (uint32_t)sys_getpid(), __ATOMIC_SEQ_CST);
    long waited_us = 0;
    for (uint32_t i = 1; i < h->process_high; i++) {
        struct mm_process *p = mm_proc(a, i);
        int looked = 0;
        for (long step = 20; p->pid && __atomic_load_n(&p->calls, __ATOMIC_SEQ_CST); waited_us += step) {
            if (waited_us > 5000 && !mm_process_alive(a, i))
                break;
            if (waited_us > 5000 && !looked++ && mm_owner_gone(p->pid, h) && has_mappings(p->pid))
                break;                 /* it executes what does not know us: the threads that were in calls have ended */
            if (waited_us > timeout_ms * 1000L) {
                mm_thaw(a);
                return -EAGAIN;
            }
            sys_pause_us(step);
            if (step < 1000)
                step *= 2;
        }
    }
    return 0;
}

void mm_thaw(struct mm_area *a)
{
    if (!(a->head->flags & MM_OVER))   /* then whoever comes finds that out (guard.c) */
        __atomic_store_n(&a->head->freeze, 0, __ATOMIC_SEQ_CST);
    if (sys_futex_wake(&a->head->freeze, 1 << 30) > 0)
        sys(SYS_sched_yield);          /* whoever was woken to this processor would wait for the end of our slice, 3 ms */
}
