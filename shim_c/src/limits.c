/* limits.c - how far a file may reach: the process's RLIMIT_FSIZE, and the filesystem's own.
 *
 * The kernel's file size limit is about places in the program's files, not in the buffer: what the engine writes is checked by
 * mm_may_reach and then goes out without the limit, as far as the hard limit lets us.  The limit is the whole process's, so it
 * is lifted as long as any thread needs that; meanwhile
 *   - the engine writes all followed files and checks for itself (mm_unlimited, wrap_data.c);
 *   - nobody asks for it, sets it, or hands it to another program (mm_limit_begin);
 *   - a forked child puts it back (mm_limit_after_fork).
 */
#include "shim.h"

#include <sys/resource.h>

#define NOTHING_AT_ALL (RLIM_INFINITY - 1)     /* a limit of 0: 0 itself means not asked for yet */

uint64_t mm_size_limit;
uint32_t mm_lifters;                   /* threads that have lifted it: not 0 while the kernel's may not be the program's */
static uint32_t limit_lock;
/* Of this thread, and not back before the outermost call is done: within a write a pre-image may be logged. */
static __thread int lifted __attribute__((tls_model("initial-exec")));

static uint64_t size_limit(void)
{
    uint64_t limit = __atomic_load_n(&mm_size_limit, __ATOMIC_RELAXED);
    if (UNLIKELY(!limit)) {
        struct rlimit now;
        uint64_t mask = defer_handlers();
        mm_lock(&limit_lock);
        limit = mm_size_limit;
        if (!limit) {
            sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &now);
            limit = now.rlim_cur ? now.rlim_cur : NOTHING_AT_ALL;
            __atomic_store_n(&mm_size_limit, limit, __ATOMIC_RELAXED);
        }
        mm_unlock(&limit_lock);
        deliver_handlers(mask);
    }
    return limit == NOTHING_AT_ALL ? 0 : limit;
}
int mm_unlimited_slow(void) { return size_limit() == RLIM_INFINITY; }

static void set_limit(int back)
{
    struct rlimit limit;
    if (sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) < 0)
        return;
    limit.rlim_cur = back ? size_limit() : limit.rlim_max;
    sys(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, 0);
}

void mm_lift_limit(int back)
{
    if (back ? !lifted || --lifted : (!lifted && size_limit() == RLIM_INFINITY) || lifted++)
        return;
    uint64_t mask = defer_handlers();
    mm_lock(&limit_lock);
    if (!back)
        __atomic_add_fetch(&mm_lifters, 1, __ATOMIC_SEQ_CST);
    if (mm_lifters == 1)
        set_limit(back);
    if (back)
        __atomic_sub_fetch(&mm_lifters, 1, __ATOMIC_SEQ_CST);
    mm_unlock(&limit_lock);
    deliver_handlers(mask);
    if (!back)
        MM_STOP("limits.lifted");
}

/* From here to mm_limit_end the kernel's limit is the program's, and nobody lifts it.  Not within a counted call. */
uint64_t mm_limit_begin(void)
{
    uint64_t mask = defer_handlers();
    mm_lock(&limit_lock);
    for (int i = 0; i < 50000 && mm_lifters && !lifted; i++) {     /* a checkpoint may last; who was killed in it has ended us */
        mm_unlock(&limit_lock);
        sys_pause_us(100);
        mm_lock(&limit_lock);
    }
    return mask;
}

void mm_limit_end(uint64_t mask)
{
    mm_unlock(&limit_lock);
    deliver_handlers(mask);
}

/* In the child, of whose threads this is the only one. */
void mm_limit_after_fork(void)
{
    limit_lock = 0;
    if (mm_lifters)
        set_limit(1);
    mm_lifters = 0;
    lifted = 0;
}

/* Bytes at a place, as many as the limit allows: 0, or -EFBIG and the signal that goes with it. */
long mm_within_limit(uint64_t at, size_t *count)
{
    uint64_t limit = size_limit();
    if (limit == RLIM_INFINITY || at + *count <= limit)
        return 0;
    if (at >= limit) {
        sys(SYS_tkill, sys_gettid(), SIGXFSZ);
        return -EFBIG;
    }
    *count = limit - at;
    return 0;
}

/* How far a file may reach on its filesystem (s_maxbytes): the highest place that can be sought.  Only asked for places
 * that no ordinary file reaches.  The kernel's position is put back. */
static uint64_t furthest(int fd)
{
    long here = sys_lseek(fd, 0, SEEK_CUR), low = 1l << 31, high = INT64_MAX;
    while (low < high) {
        long middle = low + (high - low) / 2 + 1;
        if (sys_lseek(fd, middle, SEEK_SET) == middle)
            low = middle;
        else
            high = middle - 1;
    }
    sys_lseek(fd, here, SEEK_SET);
    return low;
}
#define FAR (1ull << 40)
int mm_reachable(int fd, uint64_t at) { return at < FAR || at <= furthest(fd); }

/* A write starts below the process's limit and the filesystem's, and ends at the lower of them. */
long mm_may_reach(int fd, uint64_t at, size_t *count)
{
    long r = mm_within_limit(at, count);
    if (r < 0 || at + *count <= FAR)
        return r;
    uint64_t last = furthest(fd);
    if (at >= last)
        return -EFBIG;
    if (*count > last - at)
        *count = last - at;
    return 0;
}
