/* write_through.c - a write that is durable when it answers (O_DSYNC, O_SYNC, RWF_DSYNC, RWF_SYNC).
 *
 * What makes it durable takes room in the store, after the bytes are in their place: so that room is set aside before.  A
 * disk that is full says so while nothing has been written.
 */
#include "engine/engine.h"

#include <errno.h>

/* Frames of the cache that a file may have after a write of so many pieces: each piece takes one at each of its ends. */
static uint64_t frames_after(const struct mm_pif *p, int pieces)
{
    uint64_t most = mm_area->head->cache_size / MM_CHUNK + 1, frames = p->frames + 2 * (uint64_t)pieces;
    if (frames <= most)
        return frames;
    return p->frames > most ? p->frames : most;
}

/* Of the program's memory the kernel tries the first byte before it looks for room. */
static int unreadable(const struct iovec *v, int n)
{
    while (n > 1 && !v->iov_len)
        v++, n--;
    return !mm_usable(v->iov_base, 1, 0);
}

/* Before such a write, which nothing else refuses: blocks of the store's disk that mm_ahead_blocks may take after it, for frames
 * of the cache, the ranges of the log's record, the record, and what the filesystem needs to find them.  0, -EFAULT,
 * -ENOSPC or -EDQUOT. */
long mm_set_aside(struct mm_pif *p, const struct iovec *v, int n, uint64_t at, size_t asked, uint32_t *aside)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (is_native(p) && at >= p->fresh_from)
        return 0;                      /* all is in place, and so is this */
    uint64_t ranges = p->redirected + asked / MM_BLOCK + 2;
    uint64_t blocks = frames_after(p, n) * (MM_CHUNK / MM_BLOCK) + ranges * sizeof(struct mm_range) / MM_BLOCK + 8;
    long e = mm_room_set_aside(mm_area, mm_self, (uint32_t)blocks);
    if (e < 0)
        return unreadable(v, n) ? -EFAULT : e;
    *aside = (uint32_t)blocks;
    return 0;
}

/* As mm_write, whose arguments these are. */
long mm_write_through(uint32_t slot, int fd, const struct iovec *vector, int count, off_t at, int append)
{
    uint32_t aside = 0;
    long r = mm_write_with(slot, fd, vector, count, at, append, &aside);
    long e = r > 0 ? mm_ahead_blocks(slot) : 0;
    int full = e == -ENOSPC || e == -EDQUOT;
    if (aside)
        mm_room_set_back(mm_area, mm_self, aside, full);
    if (full)
        e = mm_ahead_blocks(slot);
    /* by now it is written, and must not be made once more when there is room again */
    if (e == -ENOSPC || e == -EDQUOT)
        return -EIO;
    return e < 0 ? e : r;
}
