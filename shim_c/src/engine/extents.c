/* extents.c - where a file has data and where holes, while some of its blocks are in the buffer. */
#include "engine/engine.h"

/* Before the kernel changes bytes of a tracked file on its own. */
long mm_hand_over(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_depth > 0);
    touched(slot, p);
    if (p->flags & MM_MAPPED)
        mm_unseen_in(p);
    return p->fresh_from == 0 && is_native(p) ? 0 : mm_settle(slot, fd);
}

/* Where the table has blocks, they are data; between them the file in place says.  SEEK_DATA and SEEK_HOLE: a place or -errno. */
static long next_extent(struct mm_pif *p, int home, uint64_t at, int data, uint64_t size)
{
    while (at < size) {
        uint64_t end = (at / MM_BLOCK + 1) * MM_BLOCK;
        int buffered = mm_table_get(mm_area, p, at / MM_BLOCK) != 0;
        while (end < size && (mm_table_get(mm_area, p, end / MM_BLOCK) != 0) == buffered)
            end += MM_BLOCK;
        uint64_t limit = p->flags & MM_VIRTUAL && p->home_limit < end ? p->home_limit : end;
        if (buffered) {
            if (data)
                return at;
        } else if (at < limit) {
            long r = sys_lseek(home, at, data ? SEEK_DATA : SEEK_HOLE);
            if (r < 0 && r != -ENXIO)
                return r;
            if (!data && r < 0)            /* beyond what there is in place */
                return at;
            if (r >= 0 && (uint64_t)r < limit)
                return r;
            if (!data && limit < end)
                return limit;
        } else if (!data) {
            return at;
        }
        at = end;
    }
    return data ? -ENXIO : (long)size;
}

static long extent_held(uint32_t slot, int fd, off_t at, int whence)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    long size = mm_size(p, fd), r = size < 0 ? size : at < 0 || at >= size ? -ENXIO : 0;
    int home = r == 0 ? mm_home_reader(slot, fd) : -1;
    if (r == 0 && home < 0)
        r = home;
    if (r == 0) {
        long position = sys_lseek(home, 0, SEEK_CUR);  /* it may be the program's own descriptor */
        r = next_extent(p, home, at, whence == SEEK_DATA, size);
        sys_lseek(home, position, SEEK_SET);
    }
    return r;
}

long mm_extent(uint32_t slot, int fd, off_t at, int whence)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    long r = extent_held(slot, fd, at, whence);
    release(p, mask);
    return r;
}

/* Zeros over [start, end) as far as there is data; no limit applies.  0 or -errno. */
long mm_zero_held(uint32_t slot, int fd, uint64_t start, uint64_t end)
{
    static const char zeros[MM_BLOCK];
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    while (start < end) {
        long data = extent_held(slot, fd, start, SEEK_DATA);
        if (data == -ENXIO || (data >= 0 && (uint64_t)data >= end))
            return 0;
        long hole = data < 0 ? data : extent_held(slot, fd, data, SEEK_HOLE);
        if (hole < 0)
            return hole;
        uint64_t stop = (uint64_t)hole < end ? (uint64_t)hole : end;
        long size = mm_size(p, fd), r = 1;
        for (uint64_t at = data; r > 0 && at < stop; at += r > 0 ? r : 0)
            r = mm_write_some(slot, p, fd, zeros, stop - at < MM_BLOCK ? stop - at : MM_BLOCK, at, size);
        if (r <= 0)
            return r < 0 ? r : -ENOSPC;
        start = stop;
    }
    return 0;
}

/* How many there are of the file's first bytes, within a block, also by a descriptor that cannot read; or -errno. */
long mm_first_bytes(uint32_t slot, int fd, char *to, size_t count)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    long size = mm_size(p, fd), r = size, done = 0;
    int buffered = mm_table_get(mm_area, p, 0) && mm_buffered_to(mm_tail(p), 0, count) == count;
    int home = size <= 0 || buffered ? fd : mm_home_reader(slot, fd);
    if (home < 0)
        r = home;
    while (r > 0 && done < size && (size_t)done < count) {
        r = mm_read_some(slot, p, home, to + done, count - done, done, size);
        done += r > 0 ? r : 0;
    }
    release(p, mask);
    return done ? done : r;
}
