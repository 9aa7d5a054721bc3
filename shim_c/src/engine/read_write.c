/* read_write.c - the engine: where a byte is read from and where it goes.
 *
 * Invariants
 *  1. A byte in place below fresh_from is known to an index and is not overwritten: its block goes to the buffer.  But for
 *     a block whose pre-image was saved in this epoch (overwrite.c).
 *  2. A block with a table entry is read from and written to the buffer only.
 *  3. A buffer block is complete: the part that a write leaves out was copied up before the entry was set.  But for what
 *     comes to the file behind the end that it had then (mm_has_tail): that is in place.
 *  4. A buffer block of an earlier epoch (below epoch_block) is never overwritten: the block moves to a new one.
 *  5. Without MM_VIRTUAL the kernel's size in place is the file's size.
 *  6. home_limit is true of a block before its entry is cleared: who reads without the lock looks at the entry first.
 *  7. With MM_HOME (settle.c) there are no table entries: every byte is in place.
 *
 * O_APPEND: each write goes where the file ends at that moment, under the lock, whatever its offset says; the position then is
 * behind it.  The kernel does so itself where the end in place is the file's, so a pwrite of ours at another place needs
 * RWF_NOAPPEND, or a descriptor without O_APPEND (mm_home_writer).  RWF_APPEND and RWF_NOAPPEND say so of one write.
 *
 * Writes and the shared file position are guarded by the PIF's lock; the program's handlers wait while it is held.
 */
#include "engine/engine.h"

#include <sys/resource.h>

/* lseek on a file of ours, SEEK_SET, SEEK_CUR and SEEK_END: the new position or -errno */
long mm_seek(uint32_t slot, int fd, off_t at, int whence)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_depth > 0);
    uint32_t fit = mm_fds[fd].fit;     /* another thread may close it at any moment */
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    if (!fit)
        return -EBADF;
    uint64_t mask = hold(p);
    long base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? mm_own_position(f, fd) : mm_size_held(slot, p, fd), r = base;
    if (base >= 0) {
        if (whence == SEEK_CUR)
            base = f->position;
        r = __builtin_add_overflow(base, at, &r) || r < 0 || !mm_reachable(slot, fd, r) ? -EINVAL : r;
        if (r >= 0) {
            int held = mm_position_begin(f);
            f->position = r, f->owned = 1;
            mm_position_end(f, held);
        }
        mm_show_position(f, fd);
    }
    release(p, mask);
    return r;
}

static long write_own(uint32_t slot, struct mm_pif *p, const char *from, size_t count, uint64_t at, uint64_t entry)
{
    uint64_t block = at / MM_BLOCK, inside = at % MM_BLOCK, run = MM_BLOCK - inside;
    MM_ASSERT(mm_own(entry));          /* invariant 4 */
    for (uint64_t i = 1; run < count && mm_table_get(mm_area, p, block + i) == entry + i; i++)
        run += MM_BLOCK;
    return mm_buffer_write(slot, p, from, run < count ? run : count, entry * MM_BLOCK + inside, MM_WRITTEN_OVER);
}

/* So many blocks, with the bytes of this write in them, to new buffer blocks. */
static long write_to_new(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at, uint64_t size,
                         uint64_t blocks)
{
    uint64_t block = at / MM_BLOCK, inside = at % MM_BLOCK, to = mm_take_blocks(p, blocks), last = blocks - 1;
    int tail = (inside + count) % MM_BLOCK && at + count < size;
    int home = fd;
    if (inside || tail) {
        home = mm_home_reader(slot, fd);
        if (home < 0)
            return home;
    }
    long r = 0;
    if (inside || (tail && last == 0))
        r = mm_copy_up(slot, p, home, block, to, 0, size);
    if (r == 0 && tail && last > 0)
        r = mm_copy_up(slot, p, home, block + last, to + last, 0, size);
    if (r < 0)
        return r;
    MM_STOP("data.copied_up");
    /* what was copied up may lie in the disk buffer, where it found no frame: one that is free by now has to begin with it */
    int what = inside || tail ? MM_WRITTEN_OVER : MM_WRITTEN_NEW;
    r = mm_buffer_write(slot, p, from, count, to * MM_BLOCK + inside, what);
    if (r <= 0)
        return r;
    if ((size_t)r < count) {           /* the block where it stopped lacks what the rest would have overwritten */
        uint64_t stop = (inside + r) / MM_BLOCK, part = (inside + r) % MM_BLOCK;
        int whole = !part || (stop == 0 && inside) || (stop == last && tail);
        if (!whole && home == fd && (home = mm_home_reader(slot, fd)) < 0)
            return home;
        long e = whole ? 0 : mm_copy_up(slot, p, home, block + stop, to + stop, part, size);
        if (e < 0)
            return e;
        blocks = stop + (part != 0);
    }
    int e = mm_table_set_to(mm_area, p, block, to, blocks, (block + blocks) * MM_BLOCK > size ? size : 0);
    return e ? e : r;
}

/* Blocks that an index needs (or that must not go in place). */
static __attribute__((noinline)) long write_away(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count,
                                                 uint64_t at, uint64_t size)
{
    uint64_t block = at / MM_BLOCK, inside = at % MM_BLOCK, blocks = 1;
    uint64_t wanted = (inside + count + MM_BLOCK - 1) / MM_BLOCK;
    MM_ALWAYS(!(p->flags & MM_HOME));  /* invariant 7 */
    for (; blocks < wanted && blocks < MM_RUN_MAX; blocks++) {
        uint64_t entry = mm_table_get(mm_area, p, block + blocks);
        if (entry ? mm_own(entry) : (block + blocks) * MM_BLOCK >= p->fresh_from)
            break;
    }
    if (count > blocks * MM_BLOCK - inside)
        count = blocks * MM_BLOCK - inside;
    /* until the table has them: of two that only look both would find the same room */
    int full = mm_room_set_aside(mm_area, mm_self, (uint32_t)blocks);
    if (UNLIKELY(full))
        return full;
    long r = write_to_new(slot, p, fd, from, count, at, size, blocks);
    mm_room_set_back(mm_area, mm_self, (uint32_t)blocks, 0);
    return r;
}

/* The disk may look as if it had room: its user has to know what that is held for.  A run that may prune does that. */
static __attribute__((noinline, cold)) long full_disk(void)
{
    const struct mm_header *h = mm_area->head;
    if (!h->max_bytes && !h->keep_last && mm_first_time(0x726f6f6d))
        mm_say("the disk is full: redirected data needs as much room again until the run has ended; %llu MiB are held for "
               "that. Free some space, or use --keep-last", (unsigned long long)(h->room * MM_BLOCK >> 20));
    return -ENOSPC;
}

long mm_write_some(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at,
                       uint64_t size)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    uint64_t entry = mm_table_get(mm_area, p, at / MM_BLOCK);
    /* invariant 3, and as natively: somebody outside of the run may append at this moment, and to make the file longer would cut
       that off.  O_DIRECT takes no part of a block. */
    int grows = UNLIKELY(at + count > size) && !ISOLATED(p) && !(p->flags & MM_VIRTUAL) && !mm_direct(fd);
    if (grows && entry && at >= size && at >= p->size && mm_has_tail(p) && p->size / MM_BLOCK == at / MM_BLOCK)
        entry = 0;
    uint64_t saved = !entry && at < p->fresh_from ? mm_may_overwrite(slot, p, fd, at, count) : 0;
    if (!entry && (saved || at >= p->fresh_from)) {
        if (saved) {
            count = saved;
        } else if (p->root) {
            uint64_t run = MM_BLOCK - at % MM_BLOCK;
            for (uint64_t i = 1; run < count && !mm_table_get(mm_area, p, at / MM_BLOCK + i); i++)
                run += MM_BLOCK;
            if (run < count)
                count = run;
        }
        struct iovec v = { (char *)from, count };
        int appends = UNLIKELY(at != size) && UNLIKELY(open_flags(fd) & O_APPEND);     /* and RWF_NOAPPEND said not to */
        long r = appends ? sys(SYS_pwritev2, fd, &v, 1, at, 0, RWF_NOAPPEND) : sys_pwrite(fd, from, count, at);
        if (r > 0 && (p->flags & MM_VIRTUAL) && at + r > size)
            p->size = at + r;
        if (UNLIKELY(p->flags & MM_TOLD) && r > 0)         /* the kernel does not know that the time was told */
            mm_stamp(p, fd);
        return r;
    }
    if (grows && at < size)
        count = size - at;
    if (mm_is_longer(p, size)) {
        long e = mm_take_tail(slot, p, mm_home_reader(slot, fd), size);
        if (e < 0)
            return e;
        entry = mm_table_get(mm_area, p, at / MM_BLOCK);
    }
    long r = UNLIKELY(count >= MM_SCATTERED * MM_BLOCK) ? mm_write_together(slot, p, from, count, at) : 0;
    if (r == 0)
        r = mm_own(entry) ? write_own(slot, p, from, count, at, entry) : write_away(slot, p, fd, from, count, at, size);
    if (UNLIKELY(r == -ENOSPC || r == -EDQUOT) && !mm_usable(from, 1, 0))
        return -EFAULT;                /* as natively, where the file has room */
    if (r <= 0)
        return UNLIKELY(r == -ENOSPC) ? full_disk() : r;
    mm_stamp(p, fd);
    MM_STOP("data.grows");
    if (at + r > size) {
        if (ISOLATED(p) || (p->flags & MM_VIRTUAL)) {
            mm_make_virtual(p, size, at + r);
        } else {                   /* O_DIRECT, or no tail is known; invariant 5, the bytes themselves are in the buffer */
            __atomic_store_n(&p->size, at + r, __ATOMIC_RELEASE);      /* mm_has_tail: before it is longer */
            long e = sys(SYS_ftruncate, fd, at + r);
            if (e < 0) {           /* what lies before the old end is written */
                p->broken_off = 1;
                return at < size ? (long)(size - at) : e;
            }
        }
    }
    return r;
}

/* A write as it will be made: by which descriptor, where, of how many bytes, in a file of this size. */
struct resolved { int fd; off_t at; size_t asked; long size; };

/* As the kernel resolves it; 0 or -errno.  aside: as below. */
static long resolve_write(uint32_t slot, struct mm_pif *p, const struct iovec *v, int n, int append, uint32_t *aside,
                          struct resolved *w)
{
    if (w->asked && (uint64_t)w->at > INT64_MAX - w->asked)
        return -EINVAL;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    uint64_t end = mm_block_end(w->at + w->asked);
    w->size = append ? mm_size(p, w->fd) : mm_size_to_write(p, w->fd, w->at, end, mm_asked_at(p, &now));
    if (w->size < 0)
        return w->size;
    if (append && w->asked)
        w->at = w->size;
    long r = UNLIKELY(mm_direct(w->fd)) ? mm_unaligned(w->fd, v, n, w->at) : 0;
    if (r == 0 && w->asked)
        r = mm_may_reach(slot, w->fd, w->at, &w->asked);
    if (r == 0 && !append && (open_flags(w->fd) & O_APPEND))
        r = w->fd = mm_home_writer(slot, w->fd);       /* pwrite would append */
    int native = !(p->flags & MM_VIRTUAL);
    if (native && mm_is_cut(p, w->size) && r >= 0)
        r = mm_cut_by_others(slot, p, w->fd, w->size);
    if (UNLIKELY(p->broken_off | native) && r >= 0 && w->at + w->asked > (uint64_t)w->size && mm_has_more(p, w->size))
        r = mm_end_for_good(slot, p, w->fd, w->size);
    if (UNLIKELY(aside) && r >= 0 && w->asked)
        r = mm_ahead_room(p, v, n, w->at, w->asked, aside);
    return r < 0 ? r : 0;
}

/* A buffer of the program's, in as many pieces as it takes: how much of it, or -errno.  size: the file's, which may grow.  position: moves
 * with each piece (a kill may come before the next), or NULL. */
static long write_buffer(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at, long *size,
                         int64_t *position)
{
    size_t done = 0;
    long r = 0;
    while (done < count && (r = mm_write_some(slot, p, fd, from + done, count - done, at + done, *size)) > 0) {
        done += r;
        if (position)
            *position = (int64_t)(at + done);
        if (at + done > (uint64_t)*size)
            *size = at + done;
    }
    return done ? (long)done : r;
}

/* at < 0: at the description's position, which moves; append: at the end.  aside: NULL, or the write is to be durable when it
 * answers, and so many blocks have been set aside for that: as many may be when it failed. */
long mm_write_with(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append, uint32_t *aside)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_depth > 0);
    long e = untracked_see(p) ? mm_stay_home(slot, fd, 0, 0) : 0;
    if (e < 0)
        return e;
    uint64_t mask = hold(p);
    MM_STOP("data.write");
    touched(slot, p);
    if (p->flags & MM_HOME) {
        long r = mm_write_home(slot, fd, v, n, at, append);
        release(p, mask);
        return r;
    }
    uint32_t fit = mm_fds[fd].fit;
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    int move = at < 0;
    long total = 0, r = fit ? 0 : -EBADF;
    if (r == 0 && move)
        r = mm_own_position(f, fd);
    struct resolved w = { fd, move ? f->position : at, mm_asked_for(v, n), 0 };
    if (r == 0)
        r = resolve_write(slot, p, v, n, append, aside, &w);
    mm_write_begins(p);
    for (int i = 0; i < n && r >= 0 && w.asked; i++) {
        size_t length = v[i].iov_len < w.asked ? v[i].iov_len : w.asked;
        r = write_buffer(slot, p, w.fd, v[i].iov_base, length, w.at, &w.size, move ? &f->position : NULL);
        if (r > 0)
            w.at += r, total += r;
        if (r < (long)length)
            break;
        w.asked -= length;
    }
    mm_write_ends(p);
    if (r == -EFAULT && !total)        /* the kernel sets the time before it looks at the memory */
        mm_stamp(p, fd);
    if (move && fit)
        mm_show_position(f, fd);
    release(p, mask);
    return total ? total : r < 0 ? r : 0;
}

long mm_write(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append)
{
    return mm_write_with(slot, fd, v, n, at, append, NULL);
}
