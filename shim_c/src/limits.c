/* limits.c - how far a file may reach: the process's RLIMIT_FSIZE, and the filesystem's own. */
#include "shim.h"

#include <sys/resource.h>

#define NOTHING_AT_ALL (RLIM_INFINITY - 1)     /* a limit of 0: 0 itself means not asked for yet */

/* The kernel's file size limit is about places in the program's files, not in the buffer: what the engine writes is
 * checked by mm_may_reach and then goes out without the limit, as far as the hard limit lets us. */
static uint64_t size_limit(void)
{
    uint64_t limit = __atomic_load_n(&mm_size_limit, __ATOMIC_RELAXED);
    if (UNLIKELY(!limit)) {
        struct rlimit now;
        sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &now);
        limit = now.rlim_cur ? now.rlim_cur : NOTHING_AT_ALL;
        __atomic_store_n(&mm_size_limit, limit, __ATOMIC_RELAXED);
    }
    return limit == NOTHING_AT_ALL ? 0 : limit;
}
/* Not back before the outermost call is done: within a write a pre-image may be logged. */
static __thread int lifted __attribute__((tls_model("initial-exec")));

void mm_lift_limit(int back)
{
    struct rlimit limit;
    if (back ? !lifted || --lifted : size_limit() == RLIM_INFINITY)
        return;
    lifted += !back;
    if (sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) < 0)
        return;
    limit.rlim_cur = back ? size_limit() : limit.rlim_max;
    sys(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, 0);
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
