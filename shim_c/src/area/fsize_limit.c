/* fsize_limit.c - how far a file may reach: the process's RLIMIT_FSIZE.  The filesystem's own limit: engine/file_size.c.
 *
 * The kernel's file size limit is about places in the program's files, not in the buffer: what the engine writes is checked by
 * mm_within_limit and then goes out without the limit, as far as the hard limit lets us.  It is lifted as long as any thread needs
 * that (lift.c); meanwhile the engine writes all tracked files and checks for itself (mm_unlimited, wrap_data.c).
 */
#include "area/area.h"

#include <sys/resource.h>

#define NOTHING_AT_ALL (RLIM_INFINITY - 1)     /* a limit of 0: 0 itself means not asked for yet */

uint64_t mm_size_limit;
/* Of this thread, and not back before the outermost call is done: within a write a pre-image may be logged. */
static __thread int lifted __attribute__((tls_model("initial-exec")));

static uint64_t size_limit(void)
{
    uint64_t limit = __atomic_load_n(&mm_size_limit, __ATOMIC_RELAXED);
    if (UNLIKELY(!limit)) {
        uint64_t mask = defer_handlers();
        limit = mm_lift_know(MM_SIZE_LIMIT, &mm_size_limit, NOTHING_AT_ALL);
        deliver_handlers(mask);
    }
    return limit == NOTHING_AT_ALL ? 0 : limit;
}
int mm_unlimited_slow(void) { return size_limit() == RLIM_INFINITY; }

void mm_lift_limit(int back)
{
    if (back ? !lifted || --lifted : (!lifted && size_limit() == RLIM_INFINITY) || lifted++)
        return;
    uint64_t mask = defer_handlers();
    if (back)
        mm_lift_end(MM_SIZE_LIMIT);
    else
        mm_lift(MM_SIZE_LIMIT, NULL);
    deliver_handlers(mask);
    if (!back)
        MM_STOP("limits.lifted");
}

/* From here to mm_limit_end the kernel's limits are the program's, and nobody lifts them. */
uint64_t mm_limit_begin(void)
{
    MM_ASSERT(!mm_depth);
    uint64_t mask = defer_handlers();
    mm_lifts_hold(lifted);
    return mask;
}

void mm_limit_end(uint64_t mask)
{
    mm_lifts_let_go();
    deliver_handlers(mask);
}

void mm_limit_after_fork(void)
{
    mm_lifts_in_child();
    lifted = 0;
}

/* Bytes at a place, as many as the limit allows: 0, or -EFBIG and the signal that goes with it. */
long mm_within_limit(uint64_t at, size_t *count)
{
    uint64_t limit = size_limit();
    if (limit == RLIM_INFINITY || at + *count <= limit)
        return 0;
    if (at >= limit) {
        siginfo_t as_the_kernel_s = { .si_signo = SIGXFSZ, .si_code = SI_USER };
        as_the_kernel_s.si_pid = (pid_t)sys_getpid(), as_the_kernel_s.si_uid = (uid_t)sys(SYS_getuid);
        sys(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), SIGXFSZ, &as_the_kernel_s);
        return -EFBIG;
    }
    *count = limit - at;
    return 0;
}
