/* order.c - which of the runs of a job was first, <store>/../order: one file of all of them (docs/adr/0060).
 *
 * A line is appended after a run has looked at what it is about to change (bytes in place, a name), and before it changes
 * it.  Its place in the file is the order.  Invariants:
 *  1. Whose line is first, looked before any other changed anything.  Take a byte, all who saved it since the checkpoint,
 *     and of these the one whose line is first.  Whoever wrote that byte had saved it; his line is not before that one, his
 *     write comes after his line, and the first had copied before its own line.  So that copy has nobody's write, whoever
 *     has written which bytes around it.  Who found the file shorter, saved nothing and wrote, did so after a truncation,
 *     which saved.  A freeze waits for the call: copy, line and write are of one interval, and bytes from `fresh_from` on are
 *     in no checkpoint.  A mapping, or an engine's use, begins after its pre-images; what is stored by it later needs none
 *     (settle.c).  A line whose pre-image is missing changes nothing: its run did not write.
 *  2. The lock of the file is held from before the stamp is taken until the line is there: lines stand in the order of
 *     their stamps' true times.  A line that is torn, or stands where another one stood, is none.
 *  3. Without a line (no lock in time, no room) the call goes on: clocks say then who was first, or nobody does.
 * Read by metamori/runtime/job/order.py.
 */
#include "engine/engine.h"

#include <stdio.h>

#define WAIT_NS 200000000u             /* a call may wait so long for other runs, */
#define REST_NS 1000000000u            /* and then there are no lines for a while */

static long open_order(void)
{
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/../order", mm_area->store);
    return mm_open_spare(mm_area->folder > 0 ? mm_area->folder : AT_FDCWD, mm_area->folder > 0 ? "../../order" : path,
                         O_WRONLY | O_APPEND | O_NOFOLLOW, 0);
}

/* A process's lock: it is gone with the process, and no child has it.  0 or -errno. */
static long lock_file(int fd, short how)
{
    struct flock lock = { .l_type = how, .l_whence = SEEK_SET };
    uint64_t began = sys_now_ns();
    for (long pause_us = 10;; pause_us += pause_us < 1000 ? pause_us : 0) {
        long r = sys(SYS_fcntl, fd, F_SETLK, &lock);
        if ((r != -EAGAIN && r != -EACCES) || sys_now_ns() - began > WAIT_NS)
            return r;
        sys_pause_us(pause_us);
    }
}

/* When something was as it was found, with a line of its own; 0 where the run is alone.  No two of a run are the same. */
uint64_t mm_stamp_of_job(void)
{
    struct mm_header *h = mm_area->head;
    if (LIKELY(!(h->flags & MM_JOB)))
        return 0;
    MM_STOP("order.looked");
    uint64_t mask = defer_handlers();
    mm_lift_limit(0);
    mm_lock(&h->order_lock, MM_LOCK_ORDER);
    long fd = sys_now_ns() < h->order_again ? -EAGAIN : open_order(), locked = fd < 0 ? fd : lock_file((int)fd, F_WRLCK);
    uint64_t stamp = sys_quartz_ns();
    if (stamp <= h->order_last)
        stamp = h->order_last + 1;
    h->order_last = stamp;
    if (locked == 0) {
        struct mm_order line = { .magic = MM_ORDER_MAGIC, .run = h->run, .stamp_ns = stamp };
        line.crc = mm_crc32(0, (char *)&line + offsetof(struct mm_order, run), sizeof line - offsetof(struct mm_order, run));
        sys(SYS_write, fd, &line, sizeof line);
        MM_STOP("order.written");
        lock_file((int)fd, F_UNLCK);
    } else if (fd >= 0)
        h->order_again = sys_now_ns() + REST_NS;
    if (fd >= 0)
        mm_close_spare((int)fd);
    mm_unlock(&h->order_lock);
    mm_lift_limit(1);
    deliver_handlers(mask);
    return stamp;
}
