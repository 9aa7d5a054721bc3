/* write_through.c - a write that is durable when it answers (O_DSYNC, O_SYNC, RWF_DSYNC, RWF_SYNC).
 *
 * What makes it durable takes room in the store, after the bytes are in their place: so that room is set aside before.  A
 * disk that is full says so while nothing has been written.
 */
#include "engine/engine.h"

#include <errno.h>

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
