/* read.c - where a byte is read from (invariants: read_write.c), and what somebody outside of the run has made of a file meanwhile.
 *
 * The run has redirected some of its blocks.  Where he has cut it, or made it longer, is seen by whoever asks how long it is, or comes to
 * its end: what was redirected behind a cut is gone, as what was in place there is; what he has appended counts.  What he writes
 * over a redirected block does not show.
 */
#include "engine/engine.h"

#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/vfs.h>

static long read_zeros(char *to, size_t count)
{
    return sys_pread(mm_buffer_fd, to, count < MM_BLOCK ? count : MM_BLOCK, 0);
}

/* for whom something is read: the program, without the PIF's lock or with it; a block that is copied up */
enum { ALONE, LOCKED, COPYING };

/* Nothing is there in place.  Without the lock that may be since the file was cut, after it was asked how long it is.  Where the kernel
 * knows that, somebody outside of the run has cut it, and what was read of the buffer may lie behind its end, too: it is read again. */
static __attribute__((noinline)) long nothing_there(uint32_t slot, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at,
                                                    int whom)
{
    int virtual = (__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL) != 0;
    if (count > MM_BLOCK - at % MM_BLOCK)
        count = MM_BLOCK - at % MM_BLOCK;
    if (whom == ALONE && (!virtual || at + count > __atomic_load_n(&p->size, __ATOMIC_RELAXED)))
        return -EAGAIN;
    if (virtual || whom == COPYING)
        return read_zeros(to, count);
    long now = mm_size_held(slot, p, fd), r = now > (long)at ? sys_pread(fd, to, count, at) : 0;
    if (now < 0 || (now <= (long)at && mm_known_size(p) > at))     /* in a job nobody notes it, and the same would be found again */
        return 0;
    return now <= (long)at ? -EAGAIN : r ? r : read_zeros(to, count);
}

/* Whether any of these neighbouring buffer blocks, of which bytes are wanted, lies in a frame. */
static int framed(uint64_t entry, uint64_t bytes)
{
    for (uint64_t chunk = entry * MM_BLOCK / MM_CHUNK; chunk * MM_CHUNK < entry * MM_BLOCK + bytes; chunk++)
        if (mm_frame_of(mm_area, chunk))
            return 1;
    return 0;
}

/* One run of bytes that lie together; at < size.  Without the PIF's lock nothing is read from frames, or put into them:
 * -EAGAIN where one has what is wanted, and where the file has become shorter. */
static inline long read_some(uint32_t slot, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at, uint64_t size,
                             int whom)
{
    uint64_t block = at / MM_BLOCK, inside = at % MM_BLOCK, tail = mm_tail(p);
    uint64_t entry = mm_table_get(mm_area, p, block);
    MM_STOP("data.found");
    if (count > size - at)
        count = size - at;
    uint64_t run = MM_BLOCK - inside;
    if (entry) {
        for (uint64_t i = 1; run < count && mm_table_get(mm_area, p, block + i) == entry + i; i++)
            run += MM_BLOCK;
        if (run > count)
            run = count;
        uint64_t end = mm_buffered_to(tail, at, at + run);
        run = UNLIKELY(end <= at) ? 0 : end - at;
    }
    if (entry && LIKELY(run)) {
        if (whom == ALONE && framed(entry, inside + run))
            return -EAGAIN;
        uint64_t from = entry * MM_BLOCK + inside;
        long r = whom == ALONE ? sys_pread(mm_buffer_fd, to, run, from)
                               : mm_buffer_read(slot, p, to, run, from, mm_mark_of(at) == p->read_end);
        return r == 0 ? read_zeros(to, run) : r;
    }
    if (UNLIKELY(entry))
        run = MM_BLOCK - inside;
    else if (!p->root)
        run = count;
    else
        for (uint64_t i = 1; run < count && !mm_table_get(mm_area, p, block + i); i++)
            run += MM_BLOCK;
    uint64_t limit = __atomic_load_n(&p->home_limit, __ATOMIC_ACQUIRE);   /* after all entries that were looked at */
    if (UNLIKELY(at + run > limit) && !(__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL))
        limit = MM_NO_LIMIT;           /* invariant 5: it is longer in place by now */
    if (at >= limit)
        return nothing_there(slot, p, fd, to, count, at, whom);
    if (run > limit - at)
        run = limit - at;
    long r = sys_pread(fd, to, run < count ? run : count, at);
    return r == 0 ? nothing_there(slot, p, fd, to, count, at, whom) : r;
}

long mm_read_some(uint32_t slot, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at, uint64_t size)
{
    return read_some(slot, p, fd, to, count, at, size, LOCKED);
}

static long read_at(uint32_t slot, struct mm_pif *p, int fd, const struct iovec *v, int n, uint64_t at, int locked)
{
    size_t asked = mm_asked_for(v, n);
    if (asked && at > INT64_MAX - asked)
        return -EINVAL;
    long size = mm_size_to(p, fd, at + asked), total = 0, pieces = 0;
    if (size < 0)
        return size;
    if (at + asked > mm_known_size(p) && mm_is_shorter(p, size)) {
        if (!locked)
            return -EAGAIN;
        mm_size_held(slot, p, fd);
    }
    uint16_t writes = __atomic_load_n(&p->writes, __ATOMIC_ACQUIRE);
    MM_STOP("data.sized");
    for (int i = 0; i < n; i++) {
        size_t length = v[i].iov_len < asked ? v[i].iov_len : asked;
        for (size_t done = 0; done < length && at < (uint64_t)size;) {
            long r = read_some(slot, p, fd, (char *)v[i].iov_base + done, length - done, at, size, locked ? LOCKED : ALONE);
            if (r == -EAGAIN)
                return r;
            if (r <= 0)
                return total ? total : r;
            done += r, at += r, total += r;
            if (pieces++ == 0)
                MM_STOP("data.piece");
        }
        asked -= length;
    }
    p->read_end = mm_mark_of(at);
    /* a write is seen as a whole, as XFS has it: a part of another's may have come meanwhile */
    if (!locked && (pieces > 1 || total > MM_BLOCK) && (writes & 1 || __atomic_load_n(&p->writes, __ATOMIC_ACQUIRE) != writes))
        return -EAGAIN;
    return total;
}

int mm_direct(int fd) { return mm_fit_at(mm_area, mm_fds[fd].fit)->attributes & O_DIRECT; }

/* What the kernel wants of O_DIRECT at this file: places and lengths, and addresses. 0, or -EINVAL as it says. */
long mm_unaligned(int fd, const struct iovec *v, int n, uint64_t at)
{
    struct statx st = { 0 };
    struct statfs fs;
    if (sys_statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0 || !(st.stx_mask & STATX_DIOALIGN)
        || !st.stx_dio_offset_align || sys(SYS_fstatfs, fd, &fs) < 0 || fs.f_type == BTRFS_SUPER_MAGIC)
        return 0;                      /* it does not mind, or then reads and writes through its cache */
    uint64_t places = at, addresses = 0, count = 0;
    for (int i = 0; i < n; i++)
        places |= v[i].iov_len, addresses |= (uintptr_t)v[i].iov_base, count += v[i].iov_len;
    return count && ((places & (st.stx_dio_offset_align - 1)) || (addresses & (st.stx_dio_mem_align - 1))) ? -EINVAL : 0;
}

/* A read of an O_DIRECT description: checked as the kernel does, then by a descriptor that takes any length. */
static long read_direct(uint32_t slot, struct mm_pif *p, int fd, const struct iovec *v, int n, uint64_t at, int locked)
{
    long size = mm_size(p, fd), r = size < 0 ? size : at < (uint64_t)size ? mm_unaligned(fd, v, n, at) : 0;
    int home = r < 0 ? (int)r : mm_home_reader(slot, fd);
    return home < 0 ? home : read_at(slot, p, home, v, n, at, locked);
}

/* at < 0: at the description's position, which moves */
long mm_read(uint32_t slot, int fd, const struct iovec *v, int n, off_t at)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_depth > 0);
    /* large reads at a place need no lock: entries are single words, and what lies in frames is looked at under it */
    long (*take)(uint32_t, struct mm_pif *, int, const struct iovec *, int, uint64_t, int) = mm_direct(fd) ? read_direct : read_at;
    long alone = at >= 0 && v[0].iov_len >= MM_BLOCK && FEW_FRAMES(p) ? take(slot, p, fd, v, n, at, 0) : -EAGAIN;
    if (alone != -EAGAIN)
        return alone;
    uint64_t mask = hold(p);
    if (at >= 0) {
        long r;
        while ((r = take(slot, p, fd, v, n, at, 1)) == -EAGAIN)
            ;
        release(p, mask);
        return r;
    }
    uint32_t fit = mm_fds[fd].fit;
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    long r = fit ? mm_own_position(f, fd) : -EBADF;
    if (r == 0) {
        while ((r = take(slot, p, fd, v, n, f->position, 1)) == -EAGAIN)
            ;
        if (r > 0)
            f->position += r;
        mm_show_position(f, fd);
    }
    release(p, mask);
    return r;
}

/* What a block of the file holds now from byte low on, into a new buffer block. */
long mm_copy_up(uint32_t slot, struct mm_pif *p, int home, uint64_t block, uint64_t to, size_t low, uint64_t size)
{
    SCRATCH(old);
    MM_ASSERT(mm_locked_by_me(&p->lock) && mm_own(to));
    uint64_t at = block * MM_BLOCK;
    size_t count = low;
    while (at + count < size && count < MM_BLOCK) {
        long r = read_some(slot, p, home, old + count, MM_BLOCK - count, at + count, size, COPYING);
        if (r <= 0)
            return r < 0 ? r : -EIO;
        count += r;
    }
    if (count == low)
        return 0;
    long r = mm_buffer_write(slot, p, old + low, count - low, to * MM_BLOCK + low, MM_COPIED_UP);
    return r == (long)(count - low) ? 0 : r < 0 ? r : -ENOSPC;
}

/* A block as the file has it, up to a place in it, in a new block of the buffer: that, or -errno. */
static long block_again(uint32_t slot, struct mm_pif *p, int home, uint64_t block, uint64_t end)
{
    if (home < 0)
        return home;
    uint64_t fresh = mm_take_blocks(p, 1);
    long r = mm_copy_up(slot, p, home, block, fresh, 0, end);
    return r < 0 ? r : (long)fresh;
}

/* Before a file is cut inside a redirected block: what stays of the block, in a new one, so that growing again shows none
 * of the old bytes.  It is put into the table when the cut is made: a kill in between leaves the file as it was, or cut.
 * The new buffer block, 0 when there is no need of one, or -errno. */
long mm_cut_block(uint32_t slot, struct mm_pif *p, int fd, uint64_t length)
{
    if (length % MM_BLOCK == 0 || !mm_table_get(mm_area, p, length / MM_BLOCK))
        return 0;
    return block_again(slot, p, mm_home_reader(slot, fd), length / MM_BLOCK, length);
}

/* The file is shorter now: what the table says of the rest goes.  Nothing of this needs room, so nothing can fail. */
void mm_forget_rest(struct mm_pif *p, uint64_t length, long fresh)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    p->ahead_block = 0;
    if (fresh)
        mm_table_set_to(mm_area, p, length / MM_BLOCK, fresh, 1, length);
    mm_table_clear(mm_area, p, (length + MM_BLOCK - 1) / MM_BLOCK);
    if (!(p->flags & MM_VIRTUAL) && length < p->size)
        p->size = length;
    if (length < p->cut)
        p->cut = length;
}

/* Whoever had the file locked was killed, maybe when it was cut and its table not yet, or when more of it was in the buffer and it
 * not yet longer: before it grows, what is behind its end is forgotten. */
long mm_end_for_good(uint32_t slot, struct mm_pif *p, int fd, uint64_t size)
{
    long fresh = mm_cut_block(slot, p, fd, size);
    if (fresh < 0)
        return fresh;
    if (p->flags & MM_VIRTUAL && size < p->home_limit)
        __atomic_store_n(&p->home_limit, size, __ATOMIC_RELEASE);
    mm_forget_rest(p, size, fresh);
    p->broken_off = 0;
    return 0;
}

/* Somebody outside of the run has cut the file here: what the indexes have behind that place is not there
 * (metamori/runtime/checkpoint/outside.py), nor what was redirected. */
long mm_cut_by_others(uint32_t slot, struct mm_pif *p, int fd, uint64_t size)
{
    touched(slot, p);
    long r = p->root ? mm_end_for_good(slot, p, fd, size) : 0;
    if (r == 0)
        r = mm_note_loss(slot, size);
    if (r == 0)
        mm_pif_shorter(p, size);
    return r;
}

/* It has become longer in place, in a block of which the buffer has what was there before (mm_has_tail): it gets the rest.
 * from: to read it by, or -errno. */
long mm_take_tail(uint32_t slot, struct mm_pif *p, int from, uint64_t size)
{
    MM_ASSERT(mm_locked_by_me(&p->lock) && mm_has_tail(p));
    uint64_t block = p->size / MM_BLOCK, end = (block + 1) * MM_BLOCK;
    long fresh = block_again(slot, p, from, block, size < end ? size : end);
    return fresh < 0 ? fresh : mm_table_set_to(mm_area, p, block, fresh, 1, size < end ? size : 0);
}

long mm_size_held(uint32_t slot, struct mm_pif *p, int fd)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    long size = mm_size(p, fd), r = size >= 0 && mm_is_cut(p, size) ? mm_cut_by_others(slot, p, fd, size) : 0;
    if (size >= 0 && r == 0 && UNLIKELY(p->root) && UNLIKELY(mm_more_than(mm_area, p, size)))
        p->size = size, p->broken_off = 1;     /* no index knows of that, and before it grows in place the block is put right */
    return r < 0 ? r : size;
}

/* The program is about to see that. */
void mm_seen_cut(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    mm_size_held(slot, p, fd);
    release(p, mask);
}
