/* birth.c - which one a file is of those that have had its inode number. */
#include "base/base.h"

/* FUSE tells a file by a number that each look-up may give anew; where it is the inode number, it stays. */
static int is_passing(const struct file_handle *handle, uint64_t ino)
{
    uint64_t number;
    memcpy(&number, handle->f_handle, sizeof number);
    return (handle->handle_type & 0xff) == 0x81 && number != ino && (number << 32 | number >> 32) != ino;
}

/* What an NFS server tells it by: the number, and how often it was given, or the like.  0: the filesystem has none either. */
static uint32_t generation(int dir, const char *path, int flags, uint64_t ino)
{
    union { struct file_handle head; char room[sizeof(struct file_handle) + MAX_HANDLE_SZ]; } handle = { .room = { 0 } };
    int mount, follows = flags & AT_SYMLINK_NOFOLLOW ? 0 : AT_SYMLINK_FOLLOW;
    handle.head.handle_bytes = MAX_HANDLE_SZ;
    if (sys(SYS_name_to_handle_at, dir, path, &handle, &mount, (flags & AT_EMPTY_PATH) | follows) < 0
        || is_passing(&handle.head, ino))
        return 0;
    return mm_crc32(0, &handle, sizeof handle.head + handle.head.handle_bytes) | 1;
}

static int is_without_birth(const struct statx *st)
{
    return !(st->stx_mask & STATX_BTIME) && (S_ISREG(st->stx_mode) || S_ISDIR(st->stx_mode));
}

/* statx of what a file is.  Where its filesystem notes no births (ext4 with short inodes, ext3, NFS) its generation stands for the
 * birth: within seconds of 1970, so it is told from one, and never later than anything that has happened to it. */
long mm_statx(int dir, const char *path, int flags, struct statx *out)
{
    long r = sys_statx(dir, path, flags, STATX_BASIC_STATS | STATX_BTIME, out);
    for (int tries = 0; r == 0 && UNLIKELY(is_without_birth(out)) && tries < 8; tries++) {
        struct statx before = *out;
        uint32_t born = generation(dir, path, flags, before.stx_ino);
        if (!born)
            break;
        r = sys_statx(dir, path, flags, STATX_BASIC_STATS | STATX_BTIME, out);
        if (r == 0 && before.stx_ino == out->stx_ino && before.stx_dev_minor == out->stx_dev_minor
            && before.stx_dev_major == out->stx_dev_major && is_without_birth(out)
            && generation(dir, path, flags, out->stx_ino) == born) {   /* the number was not given anew meanwhile */
            out->stx_btime = (struct statx_timestamp){ .tv_nsec = born % 1000000000u, .tv_sec = born / 1000000000u };
            out->stx_mask |= STATX_BTIME;
        }
    }
    return r;
}
