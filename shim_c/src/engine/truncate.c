/* truncate.c - a file becomes shorter, or longer without being written to. */
#include "engine/engine.h"

static long truncate_virtual(uint32_t slot, struct mm_pif *p, int fd, uint64_t length, uint64_t size)
{
    long fresh = length < size ? mm_cut_block(slot, p, fd, length) : 0;
    if (fresh < 0)
        return fresh;
    /* else somebody outside of the run may append to it as before.  Where nothing is redirected only this says that its time has changed */
    if (length != size || p->flags & MM_VIRTUAL || !mm_table_count(mm_area, p, 0, (size + MM_BLOCK - 1) / MM_BLOCK))
        mm_make_virtual(p, size, length);
    MM_STOP("data.cut");
    if (length < size) {
        if (length < p->home_limit)    /* before entries go: where there is none, what is in place shows */
            __atomic_store_n(&p->home_limit, length, __ATOMIC_RELEASE);
        mm_forget_rest(p, length, fresh);
        MM_STOP("data.forgotten");
        mm_size_in_place(p, fd);
    }
    mm_stamp(p, fd);
    return 0;
}

static long truncate_home(uint32_t slot, struct mm_pif *p, int fd, uint64_t length, uint64_t size)
{
    if (length >= size)
        return sys(SYS_ftruncate, fd, length);
    uint64_t needed = p->fresh_from < size ? p->fresh_from : size;
    if (length < needed && LIKELY(!(mm_area->head->flags & MM_GONE))) {
        int reader = mm_own_reader(slot, fd);   /* holes are looked for by its position */
        long r = reader < 0 ? reader : mm_save_preimage(slot, reader, length, needed, 0, length, 0);
        if (r == 0)
            r = mm_ahead_sync();
        if (r < 0)
            return r;
    }
    long fresh = mm_cut_block(slot, p, fd, length), r = fresh;
    if (fresh >= 0) {
        if (length < p->fresh_from)    /* before the cut: the file is known to have as many bytes */
            p->fresh_from = length;
        r = sys(SYS_ftruncate, fd, length);
    }
    MM_STOP("data.cut");
    if (r == 0)
        mm_forget_rest(p, length, fresh);
    return r;
}

/* Whatever the process's limit says, which is not asked for some ways to become longer. */
long mm_resize_held(uint32_t slot, int fd, uint64_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    touched(slot, p);
    long r = mm_size_held(slot, p, fd);
    if (r >= 0 && length > (uint64_t)r && UNLIKELY(p->broken_off)) {
        long clean = mm_end_for_good(slot, p, fd, r);
        r = clean < 0 ? clean : r;
    }
    if (r >= 0 && mm_is_longer(p, r)) {
        long whole = mm_take_tail(slot, p, mm_home_reader(slot, fd), r);
        r = whole < 0 ? whole : r;
    }
    if (r < 0)
        return r;
    if (!ISOLATED(p) && !(p->flags & MM_VIRTUAL)) {
        r = truncate_home(slot, p, fd, length, r);
        if (UNLIKELY(p->flags & MM_TOLD) && r == 0)
            mm_stamp(p, fd);
        return r;
    }
    return truncate_virtual(slot, p, fd, length, r);
}

long mm_truncate_held(uint32_t slot, int fd, uint64_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    long size = mm_size(p, fd);
    size_t one = 1;                    /* the last byte of it must be allowed */
    if (size >= 0 && length > (uint64_t)size && (mm_within_limit(length - 1, &one) < 0 || !mm_reachable(slot, fd, length)))
        return -EFBIG;
    return size < 0 ? size : mm_resize_held(slot, fd, length);
}

long mm_truncate(uint32_t slot, int fd, uint64_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    MM_ASSERT(mm_depth > 0);
    long r = untracked_see(p) ? mm_stay_home(slot, fd, 0, 0) : 0;
    if (r < 0)
        return r;
    uint64_t mask = hold(p);
    r = mm_truncate_held(slot, fd, length);
    release(p, mask);
    return r;
}
