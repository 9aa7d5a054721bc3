/* write_through.c - a write that is durable when it answers (O_DSYNC, O_SYNC, RWF_DSYNC, RWF_SYNC).
 *
 * What makes it durable takes room in the store, after the bytes are in their place: so that room is set aside before.  A
 * disk that is full says so while nothing has been written.
 */
#include "engine/engine.h"

#include <errno.h>

/* What is in place was not made durable by the kernel: it had no flag of the call's, wrote by a descriptor of ours (O_APPEND), or
 * only the file's length is there. */
static int unsynced(struct mm_pif *p, int fd, long size)
{
    return (open_flags(fd) & (O_DSYNC | O_APPEND)) != O_DSYNC || mm_size(p, fd) > size;
}

/* As mm_write, whose arguments these are. */
long mm_write_through(uint32_t slot, int fd, const struct iovec *vector, int count, off_t at, int append)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint32_t aside = 0;
    long size = mm_size(p, fd), r = mm_write_with(slot, fd, vector, count, at, append, &aside);
    long e = r > 0 ? mm_ahead_blocks(slot) : 0;
    int full = e == -ENOSPC || e == -EDQUOT;
    if (aside)
        mm_room_set_back(mm_area, mm_self, aside, full);
    if (full)
        e = mm_ahead_blocks(slot);
    if (r > 0 && e == 0 && !(p->flags & MM_VIRTUAL) && unsynced(p, fd, size))
        e = mm_synced(sys(SYS_fdatasync, fd));
    /* by now it is written, and must not be made once more when there is room again */
    if (e == -ENOSPC || e == -EDQUOT)
        return -EIO;
    return e < 0 ? e : r;
}
