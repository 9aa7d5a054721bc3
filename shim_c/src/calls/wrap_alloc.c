/* wrap_alloc.c - space on the disk: fallocate, and what is asked of a file by ioctl (shared blocks, extents, unread bytes).
 *
 * By the kernel on a file that is all in place; in isolation, done on the buffer.  The file in place may not change then, yet
 * results are the kernel's for that filesystem: it is asked first, with a nameless file of the same size beside it.  What it
 * then says, and the size it then has, are the answer.  That is done without the file's lock, under which no limit of the program's applies; what follows is under it, all at once.
 */
#include "calls/calls.h"

#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#ifndef FALLOC_FL_WRITE_ZEROES
#define FALLOC_FL_WRITE_ZEROES 0x80
#endif

/* What the kernel would do to a file of that size: its new size, or -errno. */
static long rehearse(int fd, int mode, off_t at, off_t length, long size)
{
    char folder[4096];
    struct stat st;
    if (at < 0 || length <= 0)
        return -EINVAL;
    if (mm_path_of(fd, folder, sizeof folder) < 0)
        snprintf(folder, sizeof folder, "%s/kept/", mm_area->store);
    *(strrchr(folder, '/') + 1) = 0;
    long trial = mm_open_own(folder, O_RDWR | O_TMPFILE);
    if (trial < 0)                     /* not allowed there: the store's own filesystem will mostly say the same */
        trial = mm_open_own(mm_area->store, O_RDWR | O_TMPFILE);
    if (trial < 0)
        return trial;
    mm_lift_limit(0);
    long r = sys(SYS_ftruncate, trial, size);
    mm_lift_limit(1);
    if (r == 0)
        r = sys(SYS_fallocate, trial, mode, at, length);
    if (r == 0 && (r = sys(SYS_fstat, trial, &st)) == 0)
        r = st.st_size;
    mm_close_spare((int)trial);
    return r;
}

/* The bytes [from, from + length) to another place, in the order that does not run over itself. */
static long shift(uint32_t slot, struct mm_pif *p, int fd, uint64_t from, uint64_t to, uint64_t length)
{
    char piece[MM_BLOCK];
    MM_ASSERT(mm_locked_by_me(&p->lock));
    int reader = mm_home_reader(slot, fd);     /* the program's may be for writing only */
    if (reader < 0)
        return reader;
    for (uint64_t done = 0; done < length;) {
        uint64_t n = length - done < sizeof piece ? length - done : sizeof piece;
        uint64_t at = to < from ? done : length - done - n;
        for (uint64_t got = 0; got < n;) {
            long r = mm_read_some(slot, p, reader, piece + got, n - got, from + at + got, mm_size(p, fd));
            if (r <= 0)
                return r < 0 ? r : -EIO;
            got += r;
        }
        for (uint64_t put = 0; put < n;) {
            long r = mm_write_some(slot, p, fd, piece + put, n - put, to + at + put, mm_size(p, fd));
            if (r <= 0)
                return r < 0 ? r : -ENOSPC;
            put += r;
        }
        done += n;
    }
    return 0;
}

static int is_away(const struct mm_pif *p) { return ISOLATED(p) || (p->flags & MM_VIRTUAL); }

/* wanted: the size that it has afterwards, as the kernel allowed it. */
static long done_away(uint32_t slot, struct mm_pif *p, int fd, int mode, uint64_t at, uint64_t end, uint64_t size, uint64_t wanted)
{
    long r = 0;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (mode & FALLOC_FL_COLLAPSE_RANGE)
        r = shift(slot, p, fd, end, at, size - end);
    else if (mode & FALLOC_FL_INSERT_RANGE)
        r = mm_resize_held(slot, fd, wanted);
    if (r == 0 && (mode & FALLOC_FL_INSERT_RANGE))
        r = shift(slot, p, fd, at, end, size - at);
    if (r == 0 && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_WRITE_ZEROES)))
        r = mm_zero_held(slot, fd, at, end);
    return r == 0 ? mm_resize_held(slot, fd, wanted) : r;        /* also for its time, where the size stays */
}

enum { AGAIN = 1 };
static long allocate_isolated(uint32_t slot, int fd, int mode, off_t at, off_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long size = mm_size(p, fd), wanted = size < 0 ? size : rehearse(fd, mode, at, length, size);
    if (wanted < 0)
        return wanted;
    MM_STOP("alloc.rehearsed");
    uint64_t mask = hold(p);
    touched(slot, p);
    long now = mm_size(p, fd), r = now < 0 ? now : is_away(p) ? 0 : AGAIN;
    if (r == 0 && now != size) {       /* somebody has written or cut meanwhile */
        if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
            r = AGAIN;
        else if (wanted <= size || wanted < now)
            wanted = now;
    }
    if (r == 0)
        r = done_away(slot, p, fd, mode, at, (uint64_t)at + length, now, wanted);
    release(p, mask);
    return r;
}

/* Room for a file whose size the kernel knows: nobody is about to make it longer, and nothing is behind its end that a process which
 * was killed left there. */
static long allocate_held(uint32_t slot, struct mm_pif *p, int fd, int mode, off_t at, off_t length)
{
    off_t end;
    long size = mm_size(p, fd);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (size < 0)
        return size;
    if (!mode && at >= 0 && length > 0 && !__builtin_add_overflow(at, length, &end) && end > size) {
        size_t one = 1;                /* the last byte of it must be allowed */
        long r = mm_within_limit(end - 1, &one);
        if (r == 0 && p->broken_off)
            r = mm_end_for_good(slot, p, fd, size);
        if (r < 0)
            return r;
    }
    return sys(SYS_fallocate, fd, mode, at, length);
}

static long allocate(uint32_t slot, int fd, int mode, off_t at, off_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long r = untracked_see(p) ? mm_stay_home(slot, fd, 0, 0) : 0;
    if (r < 0)
        return r;
    for (r = AGAIN; r == AGAIN;) {
        if (is_away(p)) {
            r = allocate_isolated(slot, fd, mode, at, length);
        } else if (mode & ~FALLOC_FL_KEEP_SIZE) {
            r = mm_hand_over(slot, fd);
            touched(slot, p);
            return r < 0 ? r : sys(SYS_fallocate, fd, mode, at, length);
        } else {
            uint64_t mask = hold(p);
            touched(slot, p);
            r = is_away(p) ? AGAIN : allocate_held(slot, p, fd, mode, at, length);
            release(p, mask);
        }
    }
    return r;
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t length)
{
    fd = mm_theirs(fd);
    pthread_testcancel();
    uint32_t slot = pif_of(fd) && writable(fd) ? enter_file(fd) : 0;
    if (!slot)
        return REAL(fallocate)(fd, mode, at, length);
    long r = allocate(slot, fd, mode, at, length);
    leave();
    return (int)result(r);
}

/* Where the filesystem cannot, glibc writes to every block by internal calls: then the file has to be in place. */
EXPORT int posix_fallocate(int fd, off_t at, off_t length)
{
    fd = mm_theirs(fd);
    uint32_t slot = pif_of(fd) && writable(fd) ? enter_file(fd) : 0;
    if (!slot)
        return REAL(posix_fallocate)(fd, at, length);
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long r = allocate(slot, fd, 0, at, length), size = mm_size(p, fd);
    if (r == -EOPNOTSUPP && is_away(p))
        r = size < 0 ? size : at + length > size ? mm_truncate(slot, fd, at + length) : 0;
    else if (r == -EOPNOTSUPP)
        r = (r = mm_hand_over(slot, fd)) < 0 ? r : -REAL(posix_fallocate)(fd, at, length);
    leave();
    return (int)-r;
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
               && request != LOOP_CONFIGURE && request != FS_IOC_SETFLAGS && request != FS_IOC_FSSETXATTR) || !active())
        return REAL(ioctl)(fd, request, argument);
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
#define ALIAS_alloc(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
