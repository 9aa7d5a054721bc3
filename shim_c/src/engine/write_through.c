/* write_through.c - a write that is durable when it answers (O_DSYNC, O_SYNC, RWF_DSYNC, RWF_SYNC).
 *
 * What makes it durable takes room in the store, after the bytes are in their place: so that room is set aside before.  A
 * disk that is full says so while nothing has been written.
 */
#include "engine/engine.h"

#include <errno.h>

/* Blocks of the store's disk that mm_ahead_blocks may take after a write of so many bytes: frames of the cache, an end at
 * each side of the write, the record of the log, and what the filesystem needs to find them. */
static uint64_t needed(uint32_t slot, const struct iovec *vector, int count)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t blocks = 2, frames;
    for (int i = 0; i < count && blocks < MM_TRANSFER / MM_BLOCK; i++)
        blocks += vector[i].iov_len / MM_BLOCK + 1;
    uint64_t mask = hold(p);
    uint64_t ranges = mm_ahead_ranges(p) + blocks;
    frames = p->frames + 1;
    release(p, mask);
    return blocks + frames * (MM_CHUNK / MM_BLOCK) + ranges * sizeof(struct mm_range) / MM_BLOCK + 8;
}

/* As mm_write, whose arguments these are. */
long mm_write_through(uint32_t slot, int fd, const struct iovec *vector, int count, off_t at, int append)
{
    uint64_t aside = needed(slot, vector, count);
    long e = mm_room_set_aside(mm_area, mm_self, (uint32_t)aside);
    if (e < 0)
        return e;
    long r = mm_write(slot, fd, vector, count, at, append);
    e = r > 0 ? mm_ahead_blocks(slot) : 0;
    int full = e == -ENOSPC || e == -EDQUOT;
    mm_room_set_back(mm_area, mm_self, (uint32_t)aside, full);
    if (full)
        e = mm_ahead_blocks(slot);
    /* by now it is written, and must not be made once more when there is room again */
    if (e == -ENOSPC || e == -EDQUOT)
        return -EIO;
    return e < 0 ? e : r;
}
