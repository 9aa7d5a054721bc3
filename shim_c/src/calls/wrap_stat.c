/* wrap_stat.c - what a file is: sizes and times as the program made them, link counts without the store's; what is asked of it
 * by ioctl (shared blocks, extents, unread bytes, space). */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <linux/btrfs.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

static struct mm_pif *differs(int dir, const char *path, int flags, mode_t mode, uint64_t dev, uint64_t ino)
{
    if (LIKELY(!mm_active) || !S_ISREG(mode) || !__atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE))
        return NULL;
    uint32_t slot = mm_pif_there(mm_area, dir, path, flags, dev, ino);
    return slot ? mm_pif_at(mm_area, slot) : NULL;
}

static int ours_linked(const struct mm_pif *p) { return (p->flags & (MM_KEPT | MM_COPIED)) == MM_KEPT; }

static uint64_t units(uint64_t size) { return (size + MM_BLOCK - 1) / MM_BLOCK * (MM_BLOCK / 512); }

/* In units of 512 bytes: those in place and the redirected ones, of which some may stand for the same, but for what is
 * held beyond the end never more than the size takes. A hole is no block: whoever copies asks by this whether to look
 * for holes. */
static uint64_t blocks_of(const struct mm_pif *p, uint64_t home, uint64_t size)
{
    if (p->flags & MM_VIRTUAL && home > units(p->home_limit))
        home = units(p->home_limit);
    uint64_t sum = home + __atomic_load_n(&p->redirected, __ATOMIC_RELAXED) * (MM_BLOCK / 512), full = units(size);
    uint64_t most = home > full ? home : full;
    return sum < most ? sum : most;
}

/* Looked at before the kernel is asked, with which PIFs there are.  0: no file has a size or a time of its own yet, so its answer is the
 * answer. */
static uint64_t own_sizes(void)
{
    uint32_t count = mm_area ? __atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE) : UINT32_MAX;
    return LIKELY(!count) || !mm_area ? count
         : (uint64_t)__atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE) << 32 | count;
}

/* If not, it may have been written back since the kernel was asked, when its size was not yet the kernel's, or have gone with its last name:
 * own_sizes then is another. */
static int has_own_size(const struct mm_pif *p)
{
    MM_STOP("stat.asked");
    return (__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL) != 0;
}

/* Of a file that somebody has cut the program reads no more than it is told here, by its descriptor. */
static __attribute__((noinline)) void told_size(int fd, const char *path, int flags, uint64_t size)
{
    uint32_t slot = flags & AT_EMPTY_PATH && !*path ? enter_file(fd) : 0;
    if (!slot)
        return;
    if (mm_is_shorter(mm_pif_at(mm_area, slot), size))
        mm_seen_cut(slot, fd);
    leave();
}

static int may_be_shorter(const struct mm_pif *p, uint64_t size)
{
    return mm_is_cut(p, size) || (__atomic_load_n(&p->root, __ATOMIC_RELAXED) && mm_may_have_more(p, size));
}

/* When it was last written to, where that is not the kernel's to say; 0.  Said before it is looked: what comes later shows. */
static int64_t told_time(struct mm_pif *p)
{
    if (__atomic_load_n(&p->mtime_ns, __ATOMIC_RELAXED) && !(__atomic_load_n(&p->flags, __ATOMIC_RELAXED) & MM_TOLD))
        __atomic_or_fetch(&p->flags, MM_TOLD, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&p->mtime_ns, __ATOMIC_RELAXED);
}

/* before: own_sizes; dir, path, flags: what was asked */
static int corrected(uint64_t before, int r, struct stat *st, int dir, const char *path, int flags)
{
    MM_STOP("stat.answered");
    struct mm_pif *p = r == 0 ? differs(dir, path, flags, st->st_mode, st->st_dev, st->st_ino) : NULL;
    if (p && has_own_size(p))
        st->st_size = p->size;
    else if (p && may_be_shorter(p, st->st_size))
        told_size(dir, path, flags, st->st_size);
    if (UNLIKELY(own_sizes() != before) && r == 0 && S_ISREG(st->st_mode))
        return fstatat(dir, path, st, flags);
    if (!p)
        return r;
    st->st_blocks = blocks_of(p, st->st_blocks, st->st_size);
    int64_t ns = told_time(p);
    if (ns && sys_is_later(ns, st->st_mtim.tv_sec, st->st_mtim.tv_nsec))
        st->st_mtim = (struct timespec){ ns / 1000000000u, ns % 1000000000u };
    if (ns && sys_is_later(ns, st->st_ctim.tv_sec, st->st_ctim.tv_nsec))
        st->st_ctim = (struct timespec){ ns / 1000000000u, ns % 1000000000u };   /* a chmod is the kernel's, and may be later */
    if (ours_linked(p) && st->st_nlink)
        st->st_nlink--;
    return r;
}

/* In a program that came back with its memory. */
static int is_in_proc(const char *path, struct stat *out, int flags, long *r)
{
    return UNLIKELY(mm_memory_head) && mm_have_come_back() && (*r = mm_in_proc(path, flags, out)) != MM_NOT_IN_PROC;
}

EXPORT int stat(const char *path, struct stat *out)
{
    uint64_t before = own_sizes();
    long r;
    if (is_in_proc(path, out, 0, &r))
        return (int)result(r);
    return LIKELY(!before) ? real_stat(path, out) : corrected(before, REAL(stat)(path, out), out, AT_FDCWD, path, 0);
}
EXPORT int fstat(int fd, struct stat *out)
{
    if (UNLIKELY(mm_is_ours(fd))) {
        errno = EBADF;
        return -1;
    }
    uint64_t before = own_sizes();
    return LIKELY(!before) ? real_fstat(fd, out) : corrected(before, REAL(fstat)(fd, out), out, fd, "", AT_EMPTY_PATH);
}
EXPORT int lstat(const char *path, struct stat *out)
{
    uint64_t before = own_sizes();
    long r;
    if (is_in_proc(path, out, AT_SYMLINK_NOFOLLOW, &r))
        return (int)result(r);
    return LIKELY(!before) ? real_lstat(path, out)
                           : corrected(before, REAL(lstat)(path, out), out, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}
EXPORT int fstatat(int dir, const char *path, struct stat *out, int flags)
{
    uint64_t before = own_sizes();
    long r;
    if (is_in_proc(path, out, flags, &r))
        return (int)result(r);
    dir = mm_theirs(dir);
    return LIKELY(!before) ? real_fstatat(dir, path, out, flags)
                           : corrected(before, REAL(fstatat)(dir, path, out, flags), out, dir, path, flags);
}
EXPORT int __xstat(int version, const char *path, struct stat *out)
{
    uint64_t before = own_sizes();
    return corrected(before, REAL(__xstat)(version, path, out), out, AT_FDCWD, path, 0);
}
EXPORT int __fxstat(int version, int fd, struct stat *out)
{
    uint64_t before = own_sizes();
    return corrected(before, REAL(__fxstat)(version, mm_theirs(fd), out), out, fd, "", AT_EMPTY_PATH);
}
EXPORT int __lxstat(int version, const char *path, struct stat *out)
{
    uint64_t before = own_sizes();
    return corrected(before, REAL(__lxstat)(version, path, out), out, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}
EXPORT int __fxstatat(int version, int dir, const char *path, struct stat *out, int flags)
{
    uint64_t before = own_sizes();
    return corrected(before, REAL(__fxstatat)(version, mm_theirs(dir), path, out, flags), out, dir, path, flags);
}

/* Walks of folders ask by internal calls, each of them when the last entry has been told. */
static __thread uint64_t before_entry __attribute__((tls_model("initial-exec")));
static __thread int (*walker)(const char *, const struct stat *, int, struct FTW *) __attribute__((tls_model("initial-exec")));
static __thread int (*old_walker)(const char *, const struct stat *, int) __attribute__((tls_model("initial-exec")));

static int walk(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    struct stat mine = *st;
    corrected(before_entry, kind == FTW_NS ? -1 : 0, &mine, AT_FDCWD, path, kind == FTW_SL ? AT_SYMLINK_NOFOLLOW : 0);
    int r = walker(path, &mine, kind, where);
    before_entry = own_sizes();
    return r;
}
static int old_walk(const char *path, const struct stat *st, int kind)
{
    struct stat mine = *st;
    corrected(before_entry, kind == FTW_NS ? -1 : 0, &mine, AT_FDCWD, path, kind == FTW_SL ? AT_SYMLINK_NOFOLLOW : 0);
    int r = old_walker(path, &mine, kind);
    before_entry = own_sizes();
    return r;
}

EXPORT int nftw(const char *path, __nftw_func_t function, int descriptors, int flags)
{
    __nftw_func_t outer = walker;
    walker = function;
    before_entry = own_sizes();
    int r = REAL(nftw)(path, walk, descriptors, flags);
    walker = outer;
    return r;
}
EXPORT int ftw(const char *path, __ftw_func_t function, int descriptors)
{
    __ftw_func_t outer = old_walker;
    old_walker = function;
    before_entry = own_sizes();
    int r = REAL(ftw)(path, old_walk, descriptors);
    old_walker = outer;
    return r;
}

static int differ(void) { return mm_active && __atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE); }

/* What is no link, or what one leads to.  FTS_NOSTAT leaves no place for the answer. */
static void stat_again(const FTS *walk, FTSENT *entry, const char *path)
{
    struct stat again;
    if (entry->fts_info == FTS_F && !(walk->fts_options & FTS_NOSTAT) && fstatat(AT_FDCWD, path, &again, 0) == 0
        && again.st_ino == entry->fts_statp->st_ino && again.st_dev == entry->fts_statp->st_dev)
        *entry->fts_statp = again;
}

EXPORT FTSENT *fts_read(FTS *walk)
{
    FTSENT *entry = REAL(fts_read)(walk);
    int saved = errno;
    if (entry && UNLIKELY(differ()))
        stat_again(walk, entry, entry->fts_accpath);
    errno = saved;
    return entry;
}

/* What is below the start is not yet reached by fts_accpath: that is its name in the folder, or the folder itself. */
EXPORT FTSENT *fts_children(FTS *walk, int options)
{
    char path[4096];
    FTSENT *first = REAL(fts_children)(walk, options);
    int saved = errno;
    for (FTSENT *entry = first; entry && UNLIKELY(differ()); entry = entry->fts_link) {
        int below = entry->fts_level > FTS_ROOTLEVEL;
        if (below && snprintf(path, sizeof path, "%s/%s", entry->fts_parent->fts_accpath, entry->fts_name) >= (int)sizeof path)
            continue;
        stat_again(walk, entry, below ? path : entry->fts_accpath);
    }
    errno = saved;
    return first;
}

EXPORT int statx(int dir, const char *given, int flags, unsigned mask, struct statx *out)
{
    uint64_t before = own_sizes();
    int r = MM_BY_NAME(int, path, REAL(statx)(mm_theirs(dir), path, flags, mask, out));
    struct mm_pif *p = r == 0 ? differs(dir, given, flags, out->stx_mode,
                                        sys_dev(out->stx_dev_major, out->stx_dev_minor), out->stx_ino) : NULL;
    if (p && has_own_size(p))
        out->stx_size = p->size;
    else if (p && may_be_shorter(p, out->stx_size))
        told_size(dir, given, flags, out->stx_size);
    if (UNLIKELY(own_sizes() != before) && r == 0 && S_ISREG(out->stx_mode))
        return statx(dir, given, flags, mask, out);
    if (!p)
        return r;
    out->stx_blocks = blocks_of(p, out->stx_blocks, out->stx_size);
    struct statx_timestamp *times[] = { &out->stx_mtime, &out->stx_ctime };
    int64_t ns = out->stx_mask & (STATX_CTIME | STATX_MTIME) ? told_time(p) : 0;
    for (int i = 0; i < 2; i++) {
        if (out->stx_mask & (i ? STATX_CTIME : STATX_MTIME) && ns && ns > sys_ns(*times[i])) {
            times[i]->tv_sec = ns / 1000000000u;
            times[i]->tv_nsec = ns % 1000000000u;
        }
    }
    if (ours_linked(p) && out->stx_nlink)
        out->stx_nlink--;
    return r;
}

/* Does the filesystem share blocks?  A range that no filesystem can share tells. */
static long shares_blocks(int fd, int from)
{
    struct file_clone_range odd = { from, 1, 1, 1 };
    long r = sys(SYS_ioctl, fd, FICLONERANGE, &odd);
    return r == -EINVAL ? 0 : r;
}

/* Both ends in place, then the kernel shares their blocks. */
static long share(int fd, int from)
{
    uint32_t target = pif_of(fd), source = pif_of(from);
    if (!mm_is_file(fd) || !mm_is_file(from))
        return 0;                          /* the kernel says what it has against them */
    long r = (target && !mm_kernel_writes(fd)) || (source && !mm_kernel_reads(from)) ? shares_blocks(fd, from) : 0;
    if (r == 0 && ((target && mm_pif_at(mm_area, target)->fresh_from == MM_NO_LIMIT)
                   || (source && mm_pif_at(mm_area, source)->fresh_from == MM_NO_LIMIT
                       && !is_native(mm_pif_at(mm_area, source)))))
        return -EOPNOTSUPP;                /* nothing is written back in isolation: programs then copy */
    if (r == 0 && source && !mm_kernel_reads(from))
        r = mm_settle(source, from);
    return r == 0 && target && !mm_kernel_writes(fd) ? mm_hand_over(target, fd) : r;
}

/* For what only the kernel knows of the file in place. */
static long settle_whole(int fd)
{
    uint32_t slot = pif_of(fd);
    if (!slot || is_native(mm_pif_at(mm_area, slot)))
        return 0;
    return mm_pif_at(mm_area, slot)->fresh_from == MM_NO_LIMIT ? -EOPNOTSUPP : mm_settle(slot, fd);
}

/* Will nobody be able to write to the file from here on, nor the run's end (chattr +i, +a)?  Its bytes are put in place before. */
static int shuts(unsigned long request, const void *argument)
{
    if (request == FS_IOC_SETFLAGS)
        return mm_usable(argument, sizeof(int), 0) >= sizeof(int) && (*(const int *)argument & (FS_IMMUTABLE_FL | FS_APPEND_FL));
    const struct fsxattr *x = argument;
    return request == FS_IOC_FSSETXATTR && mm_usable(x, sizeof *x, 0) >= sizeof *x
        && (x->fsx_xflags & (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND));
}

static int is_isolated(int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, pif_of(fd));
    return pif_of(fd) && !is_native(p) && p->fresh_from == MM_NO_LIMIT;
}

/* Where there is data, its place on the disk not yet known: as the kernel says of data that it has not yet placed. */
static long extents(int fd, struct fiemap *map)
{
    if (mm_usable(map, sizeof *map, 1) < sizeof *map)
        return -EFAULT;
    size_t room = sizeof *map + map->fm_extent_count * sizeof *map->fm_extents;
    if (!map->fm_length || map->fm_start > INT64_MAX)
        return map->fm_length ? -EFBIG : -EINVAL;
    if (map->fm_flags & ~(FIEMAP_FLAG_SYNC | FIEMAP_FLAG_CACHE)) {
        map->fm_flags &= ~(FIEMAP_FLAG_SYNC | FIEMAP_FLAG_CACHE);
        return -EBADR;
    }
    if (mm_usable(map, room, 1) < room)
        return -EFAULT;
    struct fiemap probe = { .fm_length = 1 };
    if (sys(SYS_ioctl, fd, FS_IOC_FIEMAP, &probe) == -EOPNOTSUPP)
        return -EOPNOTSUPP;                /* tmpfs and others cannot tell of any file */
    uint64_t end = map->fm_length > INT64_MAX - map->fm_start ? INT64_MAX : map->fm_start + map->fm_length;
    map->fm_mapped_extents = 0;
    for (long at = map->fm_start;;) {
        long data = mm_extent(pif_of(fd), fd, at, SEEK_DATA);
        if (data < 0 || (uint64_t)data >= end)
            return data == -ENXIO || data >= 0 ? 0 : data;
        at = mm_extent(pif_of(fd), fd, data, SEEK_HOLE);
        if (at < 0)
            return at;
        if (map->fm_extent_count && map->fm_mapped_extents == map->fm_extent_count)
            return 0;
        if (map->fm_extent_count)
            map->fm_extents[map->fm_mapped_extents] = (struct fiemap_extent){
                .fe_logical = data, .fe_length = at - data, .fe_flags = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC
                | (mm_extent(pif_of(fd), fd, at, SEEK_DATA) < 0 ? FIEMAP_EXTENT_LAST : 0) };
        map->fm_mapped_extents++;
    }
}

static long unread(int fd, int *count)
{
    long size = mm_size(mm_pif_at(mm_area, pif_of(fd)), fd), at = mm_seek(pif_of(fd), fd, 0, SEEK_CUR);
    if (mm_usable(count, sizeof *count, 1) < sizeof *count)
        return -EFAULT;
    *count = (int)(size - at);
    return size < 0 ? size : 0;
}

/* The kernel goes on with the file of a loop device by itself, and may write to it. */
static void lend(int fd)
{
    uint32_t slot = (unsigned)fd < MM_FDS && mm_fds[fd].fit ? pif_of(fd) : 0;
    if (slot)
        mm_show(fd, slot);
}

/* A snapshot of btrfs shows what is in place. It is of the subvolume, with a device number of its own, whose descriptor comes first. */
static int is_snapshot(unsigned long request) { return request == BTRFS_IOC_SNAP_CREATE || request == BTRFS_IOC_SNAP_CREATE_V2; }

static void before_snapshot(const int64_t *of)
{
    struct stat st;
    if (mm_usable(of, sizeof *of, 0) >= sizeof *of && sys(SYS_fstat, (int)*of, &st) == 0)
        mm_all_home(st.st_dev);
}

/* XFS's calls, which the kernel has for every file: fallocate by other names. */
struct space { int16_t type, whence; int64_t start, length; int32_t system; uint32_t pid; int32_t pad[4]; };
#define SPACE(number) _IOW('X', number, struct space)

static int allocates(unsigned long request)
{
    switch (request) {
    case SPACE(40): case SPACE(42): return FALLOC_FL_KEEP_SIZE;                        /* FS_IOC_RESVSP, FS_IOC_RESVSP64 */
    case SPACE(41): case SPACE(43): return FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE; /* FS_IOC_UNRESVSP, FS_IOC_UNRESVSP64 */
    case SPACE(57): return FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE;                 /* FS_IOC_ZERO_RANGE */
    default: return 0;
    }
}

static int space(int fd, int mode, const struct space *s)
{
    struct stat st;
    if (mm_usable(s, sizeof *s, 0) < sizeof *s)
        return fail(-EFAULT);
    struct space given = *s;
    off_t from = given.whence == SEEK_CUR ? lseek(fd, 0, SEEK_CUR)
               : given.whence == SEEK_END && fstat(fd, &st) == 0 ? st.st_size : 0;
    if (given.whence != SEEK_SET && given.whence != SEEK_CUR && given.whence != SEEK_END)
        return fail(-EINVAL);
    int cancels = mm_hold_cancellation();
    int r = fallocate(fd, mode, from + given.start, given.length);
    pthread_setcancelstate(cancels, NULL);
    return r;
}

static int device_told(int fd, unsigned long request, void *argument)
{
    int r = mm_control_device(fd, request, argument);
    if (UNLIKELY(r < 0 && request == UFFDIO_REGISTER && errno == EBUSY && mm_watch_ends(argument)))
        r = mm_control_device(fd, request, argument);
    return r;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
    fd = mm_theirs(fd);
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (UNLIKELY(_IOC_TYPE(request) == 'X') && allocates(request) && pif_of(fd))
        return space(fd, allocates(request), argument);
    if (LIKELY(request != FICLONE && request != FICLONERANGE && request != FIDEDUPERANGE && request != FS_IOC_FIEMAP
               && request != FIBMAP && request != FIONREAD && request != LOOP_SET_FD && request != LOOP_CHANGE_FD
               && request != LOOP_CONFIGURE && request != FS_IOC_SETFLAGS && request != FS_IOC_FSSETXATTR
               && !is_snapshot(request)) || !active())
        return device_told(fd, request, argument);
    enter();
    long r = 0, done = 0;
    if (request == FIONREAD && pif_of(fd) && (!is_native(mm_pif_at(mm_area, pif_of(fd))) || owned(fd)))
        r = unread(fd, argument), done = 1;
    else if (request == FS_IOC_FIEMAP && is_isolated(fd))
        r = extents(fd, argument), done = 1;
    else if (request == FS_IOC_FIEMAP || request == FIBMAP)
        r = settle_whole(fd);
    else if (shuts(request, argument))
        r = pif_of(fd) ? mm_stay_home(pif_of(fd), fd, 0, MM_ENGINE) : 0;
    else if (is_snapshot(request))
        before_snapshot(argument);
    else if (request == LOOP_SET_FD || request == LOOP_CHANGE_FD)
        lend((int)(long)argument);
    else if (request == LOOP_CONFIGURE && mm_usable(argument, sizeof(struct loop_config), 0) >= sizeof(struct loop_config))
        lend((int)((struct loop_config *)argument)->fd);
    else if (request == FICLONE)
        r = share(fd, (int)(long)argument);
    else if (request == FICLONERANGE && mm_usable(argument, sizeof(struct file_clone_range), 0) >= sizeof(struct file_clone_range))
        r = share(fd, (int)((struct file_clone_range *)argument)->src_fd);
    else if (request == FIDEDUPERANGE && !is_isolated(fd))    /* it changes no byte of anybody */
        r = settle_whole(fd);
    r = r < 0 || done ? result(r) : REAL(ioctl)(fd, request, argument);
    leave();
    return (int)r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_stat(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
