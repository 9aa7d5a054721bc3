/* file_size.c - how long a file is, as the kernel knows it or as the run does, and may become. */
#include "engine/engine.h"

long mm_size(struct mm_pif *p, int fd)
{
    if (p->flags & MM_VIRTUAL)
        return (long)p->size;
    struct stat st;
    long r = sys(SYS_fstat, fd, &st);
    return r < 0 ? r : st.st_size;
}

/* was: the size so far. */
void mm_make_virtual(struct mm_pif *p, uint64_t was, uint64_t size)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (!(p->flags & MM_VIRTUAL)) {
        /* first as it is: who reads without the lock may still take that for the end of what the buffer has (mm_tail) */
        __atomic_store_n(&p->size, was, __ATOMIC_RELEASE);
        MM_STOP("size.said");
        if (was > p->home_limit)       /* somebody outside of the run has made it longer */
            __atomic_store_n(&p->home_limit, was, __ATOMIC_RELEASE);
        __atomic_or_fetch(&p->flags, MM_VIRTUAL, __ATOMIC_ACQ_REL);
        __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&p->size, size, __ATOMIC_RELEASE);
}

/* One that was longer for a while, of which nothing in place is cut off, has no size of its own any more: somebody outside of the run
 * may append to it as before. */
void mm_size_in_place(struct mm_pif *p, int fd)
{
    struct stat st;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if ((p->flags & (MM_VIRTUAL | MM_COPIED)) != MM_VIRTUAL || p->home_limit != p->size
        || sys(SYS_fstat, fd, &st) < 0 || (uint64_t)st.st_size != p->size)
        return;
    p->ahead_size = MM_NO_LIMIT;       /* so long as nothing else is said there */
    __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);    /* before: whoever has asked the kernel asks again */
    __atomic_and_fetch(&p->flags, ~MM_VIRTUAL, __ATOMIC_ACQ_REL);
}

/* Since Linux 6.13 a file that changes gets a time between two ticks of the clock where somebody was told the one of this tick, and what
 * changes later no earlier one.  So the kernel is asked for such a time, for the buffer, which it gives that of the tick at first. */
static void take_time_between_ticks(int64_t tick)
{
    struct stat st;
    int64_t *between = &mm_area->head->between_ticks, last = __atomic_load_n(between, __ATOMIC_RELAXED), ns = 0;
    for (int tries = 0; tries < 3 && ns <= tick; tries++) {
        sys(SYS_fstat, mm_buffer_fd, &st);
        sys(SYS_utimensat, mm_buffer_fd, NULL, NULL, 0);
        ns = sys(SYS_fstat, mm_buffer_fd, &st) < 0 ? 0 : sys_time_ns(st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    while (last < ns && !__atomic_compare_exchange_n(between, &last, ns, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Another time is due than was told. */
void mm_stamp_told(struct mm_pif *p, const struct timespec *at)
{
    __atomic_and_fetch(&p->flags, ~MM_TOLD, __ATOMIC_SEQ_CST);
    take_time_between_ticks(sys_time_ns(at->tv_sec, at->tv_nsec));
}

/* Before the first of a file's bytes is redirected, by way of fd.  The later of that time and the one in place counts, for some of
 * what is written goes there: one in place that lies in the future, as where the clock was set back, is replaced as the kernel
 * would have done it.  And what the program may do by file capabilities ends with its first changed byte. */
void mm_stamp_begins(int fd, const struct timespec *at)
{
    struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
    struct stat st;
    __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);
    sys(SYS_fremovexattr, fd, "security.capability");
    if (sys(SYS_fstat, fd, &st) < 0)
        return;
    if (st.st_mtim.tv_sec > at->tv_sec && sys(SYS_utimensat, fd, NULL, now, 0) == -EPERM) {
        now[0].tv_nsec = UTIME_NOW;    /* somebody else's file: who may write to it may set both */
        sys(SYS_utimensat, fd, NULL, now, 0);
    } else {
        int64_t tick = sys_time_ns(at->tv_sec, at->tv_nsec);
        if (!sys_is_later(tick, st.st_mtim.tv_sec, st.st_mtim.tv_nsec))
            take_time_between_ticks(tick);         /* it was told, maybe */
    }
}

#define FAR (1ull << 40)                 /* no ordinary file reaches so far */

/* How far a file may reach on its filesystem (s_maxbytes): the highest place that can be sought, by a position that no thread of
 * the program reads or writes at. */
static uint64_t furthest(uint32_t slot, int fd)
{
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    int own = mm_own_reader(slot, fd);
    if (own >= 0)
        fd = own;
    long here = sys_lseek(fd, 0, SEEK_CUR), low = 1l << 31, high = INT64_MAX;
    while (low < high) {
        long middle = low + (high - low) / 2 + 1;
        if (sys_lseek(fd, middle, SEEK_SET) == middle)
            low = middle;
        else
            high = middle - 1;
    }
    MM_STOP("size.probes");
    sys_lseek(fd, here, SEEK_SET);
    return low;
}

int mm_reachable(uint32_t slot, int fd, uint64_t at) { return at < FAR || at <= furthest(slot, fd); }

/* A write starts below the process's limit and the filesystem's, and ends at the lower of them. */
long mm_may_reach(uint32_t slot, int fd, uint64_t at, size_t *count)
{
    long r = mm_within_limit(at, count);
    if (r < 0 || at + *count <= FAR)
        return r;
    uint64_t last = furthest(slot, fd);
    if (at >= last)
        return -EFBIG;
    if (*count > last - at)
        *count = last - at;
    return 0;
}
