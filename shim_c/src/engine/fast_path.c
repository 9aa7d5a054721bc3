/* fast_path.c - the common read or write of a file with redirected blocks: one buffer, by a description without a will of its own.
 *
 * What mm_read and mm_write (read_write.c) do with it comes to no more than this: the same locks, limits and marks, and the same
 * pieces.  Small ones that lie in memory are a look and a copy.  Wherever anything is out of the ordinary the answer is
 * NOT_HERE, before anything was changed, and those do it.
 */
#include "engine/engine.h"

#define FAR (1ul << 40)                /* below it no filesystem's limit is asked for (file_size.c) */
#define USERS (1ul << 47)              /* a program's own memory ends there: stacks and what is mapped lie just below */

/* A description that is open for this, and at < 0: whose position is ours. */
static inline int ordinary(const struct mm_fit *f, const void *bytes, size_t count, off_t at, uint32_t wrong_access)
{
    return count - 1 < MM_TRANSFER && (uintptr_t)bytes < USERS && (f->attributes & O_ACCMODE) != wrong_access
        && (f->attributes & O_ACCMODE) != O_ACCMODE
        && !(f->attributes & (O_APPEND | O_DIRECT | O_DSYNC)) && (at >= 0 || f->owned) && mm_no_limit()
        && !mm_unwrapped_handlers;
}

/* Is the descriptor still this file's, is its position ours, and may its bytes be redirected? */
static inline int may_take_fast_path(const struct mm_fd_view *seen, int fd, off_t at)
{
    MM_ASSERT(mm_locked_by_me(&seen->p->lock));
    return LIKELY(__atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED) == seen->slot) && !(seen->p->flags & MM_HOME)
        && LIKELY(!seen->p->broken_off) && LIKELY(!mm_area->head->untracked) && (at >= 0 || LIKELY(seen->f->owned));
}

/* The call begins, with the file's lock.  0: it does not, and nothing is locked: the descriptor is not this file's any more, or a
 * checkpoint was under way. */
static inline __attribute__((always_inline)) int begin_plainly(const struct mm_fd_view *seen, int fd)
{
    int alone = mm_enter_alone();
    MM_STOP("data.counted");
    if (LIKELY(mm_still(seen, fd))) {
        hold_within(seen->p);
        MM_STOP("data.locked");
        MM_ASSERT(!alone || (seen->p->flags & MM_USED));
        if (!alone || LIKELY(mm_unfrozen()))
            return 1;
        release_within(seen->p);
        mm_enter_wait(1);
    }
    leave();
    return 0;
}

/* A place in the AML cache. */
struct spot { struct mm_frame *frame; uint32_t inside; };

/* The bytes [at, at + count) if they lie in a frame, and where in it; else NULL.  from_block: table entries
 * below it will not do.  size: what the file is known to have, or may come to have. */
static inline __attribute__((always_inline)) char *in_memory(struct mm_pif *p, uint64_t at, size_t count, uint64_t size,
                                                             uint64_t from_block, struct spot *spot)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    uint64_t inside = at % MM_BLOCK;
    if (at + count > size || inside + count > MM_BLOCK || mm_buffered_to(mm_tail(p), at, at + count) < at + count)
        return NULL;
    uint64_t entry = mm_table_walk(mm_area, &p->root, at / MM_BLOCK);
    uint32_t number = entry && entry >= from_block ? mm_frame_of(mm_area, entry / (MM_CHUNK / MM_BLOCK)) : 0;
    if (!number)
        return NULL;
    spot->frame = mm_frame_at(mm_area, number);
    spot->inside = entry % (MM_CHUNK / MM_BLOCK) * MM_BLOCK + inside;
    return mm_frame_bytes(mm_area, number) + spot->inside;
}

/* What a first piece of so many bytes has left.  moves: with each piece the position does, or NULL: a kill may come before the next. */
static __attribute__((noinline)) long write_rest(const struct mm_fd_view *seen, int fd, const char *from, size_t count, uint64_t at,
                                                 size_t done, int64_t *moves)
{
    struct mm_pif *p = seen->p;
    long size = mm_size_to(p, fd, mm_block_end(at + count)), r = size;
    while (done < count && r >= 0) {
        if (moves)
            *moves = (int64_t)(at + done);
        r = mm_write_some(seen->slot, p, fd, from + done, count - done, at + done, size);
        if (r == 0)
            break;
        if (r > 0 && (done += r) + at > (uint64_t)size)
            size = at + done;
    }
    return (long)done;
}

static long write_first(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at, int asked)
{
    long size = mm_size_to_write(p, fd, at, mm_block_end(at + count), asked), r = size;
    if (r >= 0 && !(p->flags & MM_VIRTUAL)) {
        if (mm_is_cut(p, size))
            r = mm_cut_by_others(slot, p, fd, size);
        if (r >= 0 && at + count > (uint64_t)size && mm_has_more(p, size))
            r = mm_end_for_good(slot, p, fd, size);
    }
    if (r >= 0)
        r = mm_write_some(slot, p, fd, from, count, at, size);
    if (r == -EFAULT)                  /* the kernel sets the time before it looks at the memory */
        mm_stamp(p, fd);
    return r;
}

static long read_pieces(uint32_t slot, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at)
{
    uint64_t done = 0;
    long size = mm_size_to(p, fd, at + count), r = size;
    if (size >= 0 && at + count > mm_known_size(p) && mm_is_shorter(p, size))
        return NOT_HERE;
    while (done < count && at + done < (uint64_t)size && r >= 0) {
        r = mm_read_some(slot, p, fd, to + done, count - done, at + done, size);
        if (UNLIKELY(r == -EAGAIN))
            return NOT_HERE;
        if (r == 0)
            break;
        if (r > 0)
            done += r;
    }
    return done || r >= 0 ? (long)done : r;
}

/* at < 0: at the description's position, which moves.  As the system call says it, or NOT_HERE. */
HOT long mm_plain_write(const struct mm_fd_view *seen, int fd, const void *from, size_t count, off_t at)
{
    struct mm_pif *p = seen->p;
    struct mm_fit *f = seen->f;
    struct spot spot;
    if (!ordinary(f, from, count, at, O_RDONLY))
        return NOT_HERE;
    pthread_testcancel();
    MM_STOP("data.looked");
    if (!begin_plainly(seen, fd))
        return NOT_HERE;
    uint64_t place = at < 0 ? (uint64_t)f->position : (uint64_t)at;
    long r = NOT_HERE;
    if (may_take_fast_path(seen, fd, at) && place + count <= FAR) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        int asked = mm_asked_at(p, &now);
        /* where the size is ours it may grow */
        uint64_t room = p->flags & MM_VIRTUAL ? FAR : LIKELY(asked) ? mm_known_size(p) : 0;
        char *to = in_memory(p, place, count, room, mm_area->head->epoch_block, &spot);
        touched(seen->slot, p);
        if (to && mm_lasting(from, count, 0) == count) {
            mm_frame_newer(spot.frame, spot.inside, spot.inside + count);
            memcpy(to, from, count);
            if (room == FAR && place + count > p->size)
                p->size = place + count;
            mm_stamp_at(p, fd, &now);
            r = count;
        } else {
            mm_write_begins(p);
            r = write_first(seen->slot, p, fd, from, count, place, asked);
            if (UNLIKELY(r > 0 && (size_t)r < count))
                r = write_rest(seen, fd, from, count, place, r, at < 0 ? &f->position : NULL);
            mm_write_ends(p);
        }
        if (r > 0 && at < 0)
            f->position = (int64_t)(place + r);
    }
    release_within(p);
    if (UNLIKELY(r < 0) && r != NOT_HERE)
        r = r == -ENOSPC || r == -EDQUOT ? NOT_HERE : result(r);       /* a prune may make room */
    mm_leave_alone();
    return r;
}

HOT long mm_plain_read(const struct mm_fd_view *seen, int fd, void *to, size_t count, off_t at)
{
    struct mm_pif *p = seen->p;
    struct mm_fit *f = seen->f;
    struct spot spot;
    /* mm_read takes a large one at a place without the lock, if it can */
    if (!ordinary(f, to, count, at, O_WRONLY) || (at >= 0 && count >= MM_BLOCK && FEW_FRAMES(p)))
        return NOT_HERE;
    pthread_testcancel();
    MM_STOP("data.looked");
    if (!begin_plainly(seen, fd))
        return NOT_HERE;
    uint64_t place = at < 0 ? (uint64_t)f->position : (uint64_t)at;
    long r = NOT_HERE;
    if (may_take_fast_path(seen, fd, at) && place + count <= FAR) {
        const char *from = in_memory(p, place, count, mm_known_size(p), 0, &spot);
        if (from && mm_lasting(to, count, 1) == count) {
            memcpy(to, from, count);
            mm_frame_used(spot.frame);
            r = count;
        } else {
            r = read_pieces(seen->slot, p, fd, to, count, place);
        }
        if (r >= 0)
            p->read_end = mm_mark_of(place + r);
        if (r > 0 && at < 0)
            f->position += r;
    }
    release_within(p);
    mm_leave_alone();
    return r == NOT_HERE ? r : result(r);
}
