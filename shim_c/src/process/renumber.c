/* renumber.c - a descriptor's number comes to mean another file, or none, beside threads that use it.
 *
 * A call decides by the process's array what the kernel may do, and then names the file to the kernel by its number.
 * Invariants
 *  1. While the kernel's table may say the one thing and the array the other, the entry's generation is MM_CHANGING:
 *     whoever looks waits until both say the same.  So no call takes a tracked file for one that nobody follows.
 *  2. dup2 and dup3 give a number that is in use to another file.  No call of the process on a tracked file is under way then:
 *     what was decided about the old file is not done to the new one.
 *  3. Nor is a call under way that has seen at that number a file that nobody follows (threads_past.c).
 *  4. Where the kernel refuses, everything is as it was.
 */
#include "process/process.h"

#define PATIENCE_US 1000000            /* a call may wait for what this thread does next */

static uint32_t renumber_lock;

void mm_renumber_in_child(void) { renumber_lock = mm_renumbering = 0; }

/* fd has been duplicated: both numbers lead to one description. */
void mm_duplicated(int fd, int to)
{
    if ((unsigned)fd >= MM_FDS || (unsigned)to >= MM_FDS || !mm_fds[fd].fit || mm_stranger())
        return;
    int mine = mm_table_begin();
    struct mm_descriptor d = mm_fds[fd];
    if (d.fit)
        mm_fit_ref(mm_area, d.fit);
    mm_table_end(mine);
    if (!d.fit) {                      /* another thread has closed it since */
        mm_came(to, 1);
        return;
    }
    if (d.generation == MM_CHANGING)   /* or is about to */
        d.generation = 0;
    if (mm_fd_set(mm_area, mm_self_process, to, d.fit) < 0) {
        mm_fit_unref(mm_area, d.fit);
        return;
    }
    mm_map(to, d.fit, d.slot, d.generation);
}

/* The kernel's close of a tracked descriptor, or of any. */
long mm_close(int fd)
{
    struct mm_going going;
    int followed = mm_going(fd, &going);
    MM_STOP("renumber.closing");
    long r = sys_close(fd);
    if (followed)
        mm_went(fd, &going);
    return r;
}

/* Every other thread is outside of its calls, and those that begin wait. */
static void wait_for_calls(uint32_t own)
{
    uint32_t *calls = &mm_self->calls;
    __atomic_store_n(&mm_renumbering, 1, __ATOMIC_SEQ_CST);
    __atomic_or_fetch(calls, MM_RENUMBERING, __ATOMIC_SEQ_CST);
    for (long waited = 0, step = 5; __atomic_load_n(calls, __ATOMIC_SEQ_CST) > (MM_RENUMBERING | own) && waited < PATIENCE_US; waited += step) {
        sys_pause_us(step);
        if (step < 1000)
            step *= 2;
    }
}

static void go_on(void)
{
    __atomic_and_fetch(&mm_self->calls, ~MM_RENUMBERING, __ATOMIC_SEQ_CST);
    __atomic_store_n(&mm_renumbering, 0, __ATOMIC_SEQ_CST);
    sys_futex_wake(&mm_renumbering, 1 << 30);
}

/* From here to mm_let_calls_go no call of the process on a tracked file is under way. */
void mm_hold_calls(void)
{
    MM_ASSERT(!mm_depth);              /* it would wait for its own */
    mm_lock_own(&renumber_lock, MM_LOCK_RENUMBER);
    wait_for_calls(0);
}

void mm_let_calls_go(void)
{
    go_on();
    mm_unlock_own(&renumber_lock);
}

/* The process is no part of the run from here on: its descriptors are the kernel's.  None of its calls is under way. */
void mm_leave(void)
{
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit)
            mm_give_position(fd);
    mm_active = 0;
    mm_forget_descriptors();
}

void mm_onto_begin(struct mm_onto *onto, int fd, int to)
{
    *onto = (struct mm_onto){ .fd = fd, .to = to, .outermost = !mm_depth };
    if (onto->outermost)
        mm_lock_own(&renumber_lock, MM_LOCK_RENUMBER);
    enter_as(1);
    if (onto->outermost && !*mm_single_threaded)
        wait_for_calls(1);
    mm_stable(to);
    onto->was_followed = mm_going(to, &onto->before);
    uint32_t fit = mm_stable(fd);
    if (!onto->was_followed && fit)    /* whoever uses the number from here on waits, too */
        mm_map(to, fit, 0, MM_CHANGING);
    if (!onto->was_followed && fit && onto->outermost && !*mm_single_threaded && sys(SYS_fcntl, to, F_GETFD) >= 0)
        mm_threads_past();
    MM_STOP("renumber.onto");
}

/* As it was before. */
static void undo(const struct mm_onto *onto)
{
    struct mm_descriptor *d = &mm_fds[onto->to];
    if (onto->was_followed)
        mm_fd_set(mm_area, mm_self_process, onto->to, onto->before.fit);
    else
        __atomic_store_n(&d->fit, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&d->generation, 0, __ATOMIC_RELEASE);
}

void mm_onto_end(const struct mm_onto *onto, int done)
{
    int mine = mm_table_begin();
    if (!done && __atomic_load_n(&mm_fds[onto->to].generation, __ATOMIC_RELAXED) == MM_CHANGING)
        undo(onto);
    mm_table_end(mine);
    if (done)
        mm_duplicated(onto->fd, onto->to);
    if (done && onto->was_followed)
        mm_went(onto->to, &onto->before);
    struct mm_descriptor *d = &mm_fds[onto->to];
    if (UNLIKELY(__atomic_load_n(&d->generation, __ATOMIC_RELAXED) == MM_CHANGING)) {   /* no room to note it */
        __atomic_store_n(&d->fit, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&d->generation, 0, __ATOMIC_RELEASE);
    }
    if (__atomic_load_n(&mm_renumbering, __ATOMIC_RELAXED) && onto->outermost)
        go_on();
    leave();
    if (onto->outermost)
        mm_unlock_own(&renumber_lock);
}
