/* lift.c - a limit of the process, raised as far as may be while a thread of ours needs that.
 *
 * A limit is the whole process's, so it is raised by the first thread that needs it and put back by the last: in between
 * nobody reads or sets it for the program, or hands it to another one (mm_lifts_hold), and a forked child puts it back.
 * Callers see to it that no handler of the program runs in their thread from mm_lift to mm_lift_end, or while they hold.
 * The lock is this process's own, and its holder is never ended before it lets go.
 */
#define _GNU_SOURCE
#include "base/lift.h"
#include "base/check.h"
#include "base/lock_order.h"
#include "base/sys.h"

#include <sys/resource.h>

static const int resource[MM_LIMITS] = { RLIMIT_FSIZE, RLIMIT_NOFILE };
uint32_t mm_lifted[MM_LIMITS];
static uint64_t given[MM_LIMITS];      /* the program's own, of those that are lifted */
enum { FREE, HELD, WAITED };
static uint32_t lock;

static void take(void)
{
    uint32_t seen = FREE;
    mm_lock_taking(&lock, MM_LOCK_LIMITS);
    if (!__atomic_compare_exchange_n(&lock, &seen, HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        while (__atomic_exchange_n(&lock, WAITED, __ATOMIC_ACQUIRE) != FREE)
            sys_futex_wait(&lock, WAITED, 1000000);
    mm_lock_taken(&lock, MM_LOCK_LIMITS);
}

static void give(void)
{
    mm_lock_left(&lock);
    if (__atomic_exchange_n(&lock, FREE, __ATOMIC_RELEASE) == WAITED)
        sys_futex_wake(&lock, 1);
}

static int limit_now(enum mm_limit which, struct rlimit *limit)
{
    return sys(SYS_prlimit64, 0, resource[which], 0, limit) == 0;
}

static void put_back(enum mm_limit which)
{
    struct rlimit limit;
    if (limit_now(which, &limit) && limit.rlim_cur != given[which]) {
        limit.rlim_cur = given[which];
        sys(SYS_prlimit64, 0, resource[which], &limit, 0);
    }
}

/* Raised until mm_lift_end.  What the program has set; *hard (or NULL): how far it is raised. */
uint64_t mm_lift(enum mm_limit which, uint64_t *hard)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    take();
    limit_now(which, &limit);
    if (!mm_lifted[which])
        given[which] = limit.rlim_cur;
    __atomic_add_fetch(&mm_lifted[which], 1, __ATOMIC_SEQ_CST);    /* before it is: a child that is forked in between puts it back */
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        sys(SYS_prlimit64, 0, resource[which], &limit, 0);
    }
    uint64_t asked = given[which];
    give();
    if (hard)
        *hard = limit.rlim_max;
    return asked;
}

void mm_lift_end(enum mm_limit which)
{
    take();
    MM_ASSERT(mm_lifted[which]);
    if (mm_lifted[which] == 1)
        put_back(which);
    __atomic_sub_fetch(&mm_lifted[which], 1, __ATOMIC_SEQ_CST);
    give();
}

/* The limit as the program set it, whoever has it lifted, into *known unless something else than 0 is there; as zero where it
 * is 0. */
uint64_t mm_lift_know(enum mm_limit which, uint64_t *known, uint64_t zero)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    take();
    uint64_t asked = *known;
    if (!asked) {
        limit_now(which, &limit);
        asked = mm_lifted[which] ? given[which] : limit.rlim_cur;
        asked = asked ? asked : zero;
        __atomic_store_n(known, asked, __ATOMIC_RELAXED);
    }
    give();
    return asked;
}

/* From here to mm_lifts_let_go the kernel's limits are the program's, and nobody lifts them.  own_size_lift: but for what this
 * thread itself has lifted. */
void mm_lifts_hold(int own_size_lift)
{
    take();
    /* a checkpoint may last; who was killed in it has ended us */
    for (int i = 0; i < 50000 && ((mm_lifted[MM_SIZE_LIMIT] && !own_size_lift) || mm_lifted[MM_FILES_LIMIT]); i++) {
        give();
        sys_pause_us(100);
        take();
    }
}

void mm_lifts_let_go(void) { give(); }

/* In a forked child, of whose threads this is the only one. */
void mm_lifts_in_child(void)
{
    lock = FREE;
    for (enum mm_limit which = 0; which < MM_LIMITS; which++) {
        if (mm_lifted[which])
            put_back(which);
        mm_lifted[which] = 0;
    }
}
