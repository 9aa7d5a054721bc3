/* files.c - the PIF of a file that is about to change, made at its first change. */
#include "names/names.h"

static long may_be_used(const char *path, void *what) { return sys(SYS_faccessat2, AT_FDCWD, path, *(int *)what, AT_EACCESS); }

static int may_not(int what, const struct statx *st, const char *path)
{
    return (st->stx_mode & 0444) != 0444 && st->stx_uid != (uint32_t)sys(SYS_geteuid)
        && mm_way_opened(path, may_be_used, &what) == -EACCES;
}

static int said(const char *path)
{
    static int once;
    if (!__atomic_exchange_n(&once, 1, __ATOMIC_RELAXED))
        mm_say("%s is not tracked: it may not be read, so its old content cannot be saved", path);
    return 1;
}

/* A file that the user may not read: what it holds must not come into a store that he may read.  His own he may read when he
 * pleases, whatever its mode. */
int mm_unreadable(const struct statx *st, const char *path) { return may_not(R_OK, st, path) && said(path); }

static uint32_t pif_for(const struct statx *st, const char *canonical, int created, int keeps, long *error)
{
    uint64_t dev = sys_dev(st->stx_dev_major, st->stx_dev_minor), btime = sys_birth(st);
    uint32_t slot = mm_pif_find(mm_area, dev, st->stx_ino, btime);
    *error = 0;
    if (slot || (!created && may_not(R_OK, st, canonical) && !(keeps && may_not(W_OK, st, canonical)) && said(canonical)))
        return slot;
    if (!created && (*error = mm_touch(canonical)) < 0)
        return 0;
    struct mm_pif as = {
        .dev = dev, .ino = st->stx_ino, .btime_ns = btime,
        .flags = MM_USED | (st->stx_nlink > 1 ? MM_LINKED : 0) | (st->stx_ctime.tv_nsec ? 0 : MM_SECONDS),
        .created = created ? mm_area->head->epoch : 0, .fresh_from = created ? 0 : st->stx_size,
        .home_limit = MM_NO_LIMIT, .cut = MM_NO_LIMIT, .cut_before = MM_NO_LIMIT,
        .old_size = st->stx_size, .old_mtime_ns = sys_ns(st->stx_mtime),
        .old_mode = st->stx_mode, .old_uid = st->stx_uid, .old_gid = st->stx_gid,
    };
    int isolated = mm_area->head->flags & MM_ISOLATE, mapped = !created && mm_was_mapped(mm_area, dev, st->stx_ino);
    if (isolated && !mapped) {         /* nothing is written back, and past its end nothing is in place */
        as.fresh_from = MM_NO_LIMIT;
        as.home_limit = st->stx_size;
    }
    if (mapped)
        as.flags |= MM_HOME | (isolated ? MM_SETTLED : 0);
    slot = mm_pif_make(mm_area, &as, canonical);
    if (!slot)
        *error = -ENOSPC;
    return slot;
}

/* The PIF of an existing file that is about to change; it is noted as it is now.  0 and *error on failure. */
uint32_t mm_pif_for(const struct statx *st, const char *canonical, int created, long *error)
{
    return pif_for(st, canonical, created, 0, error);
}

/* The same of one that is about to lose a name only.  What the user can neither read nor write to stays as it is by any name. */
uint32_t mm_pif_to_keep(const struct statx *st, const char *canonical, long *error)
{
    return pif_for(st, canonical, 0, 1, error);
}
