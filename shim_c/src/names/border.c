/* border.c - files that are renamed or linked across the border of the scope (area/scope.c).
 *
 * What leaves is, to every index that comes, as if it had been removed: before it goes the indexes that there are get all that
 * they need of it, so that nothing which happens to it out there can take that away.  Whoever has it open goes on with it; its PIF
 * stays, all in place, and says that it left.  What arrives is a new file, unless it has other names, which may be in the scope.
 */
#include "names/names.h"

static long looked_at(const char *path, struct statx *st)
{
    long r = mm_look_at(path, st);
    return r < 0 ? r : S_ISREG(st->stx_mode) ? 1 : 0;
}

/* Before a file, or what else stands there, leaves by this name, which is noted.  Should the call fail, it stays as it is until
 * the next checkpoint.  0 or -errno: the call must not be made. */
long mm_leave_scope(const char *path)
{
    struct statx st;
    long error = looked_at(path, &st);
    if (error <= 0)
        return error == -ENOENT || error == -ENOTDIR ? 0 : error;
    uint32_t slot = mm_pif_for(&st, path, 0, &error);
    if (!slot)
        return error;
    mm_by_another_name(slot, path, 1);
    error = mm_settle_for_good(slot, path, O_NOFOLLOW);
    if (error == 0 && st.stx_nlink > 1)            /* now: killed later, whoever completes the run must find it */
        mm_keep_left(slot, path);
    return error;
}

/* It has left, and has no name in the scope any more. */
void mm_left_for_good(uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    SCRATCH(kept);
    int held = mm_pif_hold_names(p);
    touched(slot, p);
    p->deleted = mm_area->head->epoch;
    uint32_t was = __atomic_fetch_or(&p->flags, MM_NAMELESS | MM_LEFT, __ATOMIC_ACQ_REL);
    if (was & MM_KEPT) {
        __atomic_and_fetch(&p->flags, ~(MM_KEPT | MM_COPIED), __ATOMIC_ACQ_REL);
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    if (p->refs == 0)
        mm_pif_drop(mm_area, slot);
    mm_pif_let_names_go(p, held);
}

/* Afterwards; path: where it is now.  One that has other names may still be in the scope by them. */
void mm_left_scope(const char *path)
{
    struct statx st;
    uint32_t slot = looked_at(path, &st) == 1 ? mm_pif_of(&st) : 0;
    if (!slot)
        return;
    if (st.stx_nlink - ((mm_pif_at(mm_area, slot)->flags & (MM_KEPT | MM_COPIED)) == MM_KEPT) <= 1)
        mm_left_for_good(slot);
    else
        mm_keep_left(slot, path);
}

/* One that comes back while somebody has it open, or in the run that it left in: no index that there is needs anything of it. */
static void is_back(uint32_t slot, const char *path)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    touched(slot, p);
    p->fresh_from = p->cut = 0;
    release(p, mask);
    mm_lock(&mm_area->head->lock, MM_LOCK_AREA);
    p->deleted = 0;
    mm_set_path(mm_area, p, path);
    __atomic_and_fetch(&p->flags, ~(MM_NAMELESS | MM_LEFT), __ATOMIC_ACQ_REL);
    mm_unlock(&mm_area->head->lock);
}

/* A file has arrived at this path, which was noted before: its PIF is made at once, for who has it open. */
void mm_arrived(const char *path)
{
    struct statx st;
    long error;
    if (looked_at(path, &st) != 1 || mm_unreadable(&st, path))
        return;
    uint32_t slot = mm_pif_of(&st);
    if (slot && mm_pif_at(mm_area, slot)->flags & MM_LEFT) {
        is_back(slot, path);
    } else if (slot) {
        mm_named(path);
    } else if ((slot = mm_pif_for(&st, path, st.stx_nlink == 1, &error)) != 0) {
        touched(slot, mm_pif_at(mm_area, slot));
        if (mm_was_mapped(mm_area, sys_dev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino))
            mm_home_by_name(slot, path, MM_UNSEEN, 0);
    }
}
