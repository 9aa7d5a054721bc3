/* take.c - somebody else's file, of which the kernel lets nobody make a link, moves into the store when it loses a name: it stays
 * his, with its mode, and nobody needs to read it. */
#include "names/names.h"

/* Instead of unlinkat.  0 or -errno. */
long mm_take_away(const struct mm_doomed *doomed, int dir, const char *path)
{
    SCRATCH(kept);
    mm_kept_name(mm_area, doomed->slot, kept, SCRATCH_BYTES);
    return sys(SYS_renameat, dir, path, AT_FDCWD, kept);
}

static int in_one_folder(int from_dir, const char *from, int to_dir, const char *to)
{
    SCRATCH(one);
    SCRATCH(other);
    if (mm_canonical(from_dir, from, one, 4096) != 0 || mm_canonical(to_dir, to, other, 4096) != 0)
        return 0;
    size_t folder = (size_t)(strrchr(other, '/') - other) + 1;
    return strncmp(one, other, folder) == 0 && !strchr(one + folder, '/');
}

/* Instead of renameat; by: what replaces it.  0 or -errno.  In one folder the name never is without a file; from another, where
 * what is replaced might not be taken away, it is for a moment. */
long mm_take_replaced(struct mm_doomed *doomed, const struct statx *by, int from_dir, const char *from, int to_dir, const char *to)
{
    SCRATCH(kept);
    mm_kept_name(mm_area, doomed->slot, kept, SCRATCH_BYTES);
    if (S_ISDIR(by->stx_mode))
        return sys(SYS_renameat, from_dir, from, to_dir, to);      /* which the kernel refuses */
    if (in_one_folder(from_dir, from, to_dir, to)) {
        long r = sys(SYS_renameat2, from_dir, from, to_dir, to, RENAME_EXCHANGE);
        long e = r < 0 ? r : mm_take_away(doomed, from_dir, from);
        if (r == 0 && e < 0)
            sys(SYS_renameat2, from_dir, from, to_dir, to, RENAME_EXCHANGE);
        if (r != -EINVAL)              /* of a filesystem that cannot exchange */
            return e;
    }
    long e = mm_take_away(doomed, to_dir, to);
    if (e < 0)
        return e;
    MM_STOP("take.taken");
    e = sys(SYS_renameat, from_dir, from, to_dir, to);
    if (e < 0 && sys(SYS_renameat, AT_FDCWD, kept, to_dir, to) < 0) {
        mm_gone(doomed);               /* the name is, and what had it is in the store */
        *doomed = (struct mm_doomed){ 0 };
    }
    return e;
}
