/* wrap_copy.c - calls that move bytes inside the kernel, from file to file or between a file and a pipe.
 *
 * The kernel does them where both ends are in place and nothing is overwritten that an index needs.  Otherwise it first
 * says what it has against the descriptors and places (a call that moves nothing), then the bytes are moved here.
 */
#include "calls/calls.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define PIECE (64 * 1024ul)

/* Can the kernel read from (write to) this descriptor as it stands?  If so, the position is the kernel's again. */
static int kernel_reads(int fd)
{
    uint32_t slot = pif_of(fd);
    if (slot && !is_native(mm_pif_at(mm_area, slot)))
        return 0;
    if (slot)
        mm_give_position(fd);
    return 1;
}
static int kernel_writes(int fd)
{
    uint32_t slot = pif_of(fd);
    struct mm_pif *p = slot ? mm_pif_at(mm_area, slot) : NULL;
    if (p && (p->fresh_from != 0 || !is_native(p) || (p->flags & MM_MAPPED)))
        return 0;
    if (p) {
        touched(slot, p);
        mm_give_position(fd);
    }
    return 1;
}

/* The calls here read and write by others that are cancellation points: a thread that ended in one would leave its call under
 * way, and no checkpoint came to an end. */
static int hold_cancellation(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static int readable_offset(const off_t *at) { return !at || mm_usable(at, sizeof *at, 1) == sizeof *at; }

static int is_file(int fd)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

/* Bytes from a place (a file, or from < 0 position) to a place or a stream; none is lost when the other end is full.
 * Positions that the program did not give move on.  Bytes moved or -errno. */
static long pieces(int from, off_t *from_at, int to, off_t *to_at, size_t count)
{
    char *piece = malloc(count < PIECE ? count + 1 : PIECE);
    if (!piece)
        return -ENOMEM;
    off_t at = from_at ? *from_at : lseek(from, 0, SEEK_CUR), out = to_at ? *to_at : 0;
    long total = 0, e = 0;
    int goes_on = !to_at && is_file(to);   /* what is too much for it is asked of it, too: SIGXFSZ */
    while ((size_t)total < count) {
        size_t n = count - total < PIECE ? count - total : PIECE;
        ssize_t r = pread(from, piece, n, at);
        if (r <= 0) {
            e = r < 0 ? -errno : 0;
            break;
        }
        ssize_t w = to_at ? pwrite(to, piece, r, out) : write(to, piece, r);
        if (w < 0) {
            e = -errno;
            break;
        }
        at += w, out += w, total += w;
        if (w < r && (!goes_on || !w))
            break;
    }
    free(piece);
    if (from_at)
        *from_at = at;
    else
        lseek(from, at, SEEK_SET);
    if (to_at)
        *to_at = out;
    return total ? total : e;
}

static long size_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : st.st_size;
}

/* The bounds that a copy between files has beside those of its descriptors (generic_copy_file_checks). */
static long copy_file(int from, off_t *from_at, int to, off_t *to_at, size_t count)
{
    off_t in = from_at ? *from_at : lseek(from, 0, SEEK_CUR), out = to_at ? *to_at : lseek(to, 0, SEEK_CUR);
    if (in + count < (size_t)in || out + count < (size_t)out)
        return -EOVERFLOW;
    if (in < 0 || out < 0)
        return -EINVAL;
    long size = size_of(from);
    if (size < 0)
        return size;
    if (in >= size)
        return 0;
    if (count > (size_t)(size - in))
        count = size - in;
    if (count > MM_TRANSFER)
        count = MM_TRANSFER;
    struct stat a, b;
    if (sys(SYS_fstat, from, &a) == 0 && sys(SYS_fstat, to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino
        && out + (off_t)count > in && out < in + (off_t)count)
        return -EINVAL;
    return pieces(from, from_at, to, to_at, count);
}

EXPORT ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || flags || (!pif_of(from) && !pif_of(to)) || !readable_offset(from_at) || !readable_offset(to_at))
        return REAL(copy_file_range)(from, from_at, to, to_at, count, flags);
    pthread_testcancel();
    int cancels = hold_cancellation();
    enter();
    long r;
    if (kernel_reads(from) && kernel_writes(to)) {
        r = result(sys(SYS_copy_file_range, from, from_at, to, to_at, count, flags));   /* no cancellation in here */
    } else {
        off_t in = from_at ? *from_at : lseek(from, 0, SEEK_CUR), out = to_at ? *to_at : lseek(to, 0, SEEK_CUR);
        in = in < 0 ? 0 : in, out = out < 0 ? 0 : out;
        r = sys(SYS_copy_file_range, from, from_at ? &in : NULL, to, &out, 0, 0);   /* its word on the two, and on the limits */
        r = result(r < 0 ? r : copy_file(from, from_at, to, to_at, count));
    }
    leave();
    pthread_setcancelstate(cancels, NULL);
    return r;
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || (!pif_of(from) && !pif_of(to)) || !readable_offset(at))
        return REAL(sendfile)(to, from, at, count);
    off_t zero = at ? *at : 0, sum;
    int waits = !pif_of(to);               /* a full pipe or socket must not hold up a checkpoint */
    long r = 0;
    enter();
    int kernel = kernel_reads(from) && kernel_writes(to);
    if (kernel && !waits)
        r = REAL(sendfile)(to, from, at, count);
    leave();
    if (kernel)
        return waits ? REAL(sendfile)(to, from, at, count) : r;
    r = sys(SYS_sendfile, to, from, at ? &zero : NULL, 0);
    if (r == 0 && !pif_of(from) && !is_file(from))
        r = -EINVAL;
    off_t in = at ? *at : lseek(from, 0, SEEK_CUR);
    if (count > MM_TRANSFER && (ssize_t)count >= 0)
        count = MM_TRANSFER;
    if (r == 0 && ((ssize_t)count < 0 || __builtin_add_overflow(in, (off_t)count, &sum)))
        r = -EINVAL;
    if (r < 0)
        return result(r);
    int cancels = hold_cancellation();
    if (!waits)
        enter();
    r = pieces(from, at, to, NULL, count);
    if (!waits)
        leave();
    pthread_setcancelstate(cancels, NULL);
    return result(r);
}

static int is_pipe(int fd)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && S_ISFIFO(st.st_mode);
}
static long access_of(int fd)
{
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    return flags < 0 ? flags : flags & O_ACCMODE;
}

/* No more than PIPE_BUF bytes.  A pipe that something was spliced out of or into knows RWF_NOWAIT no more, but takes as much
 * where it can be written at all. */
static long to_pipe(int to, struct iovec *v, int wait)
{
    long w = sys(SYS_pwritev2, to, v, 1, -1, -1, wait ? 0 : RWF_NOWAIT);
    if (w != -EOPNOTSUPP || wait)
        return w;
    struct pollfd room = { .fd = to, .events = POLLOUT };
    w = sys(SYS_poll, &room, 1, 0);
    return w > 0 ? sys(SYS_pwritev2, to, v, 1, -1, -1, 0) : w < 0 ? w : -EAGAIN;
}

/* As much as the pipe takes without waiting; for the first byte it is waited. */
static long splice_out(int from, off_t *from_at, int to, size_t count, unsigned flags)
{
    char piece[MM_BLOCK];
    off_t at = from_at ? *from_at : lseek(from, 0, SEEK_CUR);
    int wait = !(flags & SPLICE_F_NONBLOCK) && !(sys(SYS_fcntl, to, F_GETFL) & O_NONBLOCK);
    long total = 0, e = 0;
    while ((size_t)total < count) {
        size_t n = sizeof piece - at % sizeof piece;
        ssize_t r = pread(from, piece, n < count - total ? n : count - total, at);
        if (r <= 0) {
            e = r < 0 ? -errno : 0;
            break;
        }
        long w = to_pipe(to, &(struct iovec){ piece, r }, wait && !total);
        if (w <= 0) {
            e = w;
            break;
        }
        at += w, total += w;
    }
    if (from_at)
        *from_at = at;
    else if (total)
        lseek(from, at, SEEK_SET);
    return total ? total : e;
}

static int waits_not(int from, unsigned flags) { return flags & SPLICE_F_NONBLOCK || sys(SYS_fcntl, from, F_GETFL) & O_NONBLOCK; }

/* What the pipe holds is looked at through a pipe of ours (tee), and taken out once it is in the file. */
static long splice_in(int from, int to, off_t *to_at, size_t count, unsigned flags)
{
    int own[2];
    char *piece = malloc(PIECE);
    long total = 0, e = piece ? mm_pipe_spare(own) : -ENOMEM;
    if (e < 0) {
        free(piece);
        return e;
    }
    unsigned wait = waits_not(from, flags) ? SPLICE_F_NONBLOCK : 0;
    off_t at = to_at ? *to_at : 0;
    while ((size_t)total < count) {
        size_t n = count - total < PIECE ? count - total : PIECE;
        long seen = sys(SYS_tee, from, own[1], n, total ? SPLICE_F_NONBLOCK : wait), got = 0, more;
        while (seen > 0 && got < seen && (more = sys(SYS_read, own[0], piece + got, seen - got)) > 0)
            got += more;
        if (seen <= 0) {
            e = seen;
            break;
        }
        ssize_t w = to_at ? pwrite(to, piece, got, at) : write(to, piece, got);
        if (w < 0) {
            e = -errno;
            break;
        }
        for (long out = 0; out < w && (more = sys(SYS_read, from, piece, w - out)) > 0;)
            out += more;
        at += w, total += w;
        if (!w)
            break;
    }
    sys_close(own[0]);
    sys_close(own[1]);
    free(piece);
    if (to_at)
        *to_at = at;
    return total ? total : e;
}

/* By the kernel, which must not wait here: what a checkpoint makes of the file meanwhile it would not heed.  -EAGAIN: the pipe is
 * empty.  -ENOSYS: it is not the kernel's to do. */
static long splice_natively(int from, int to, off_t *to_at, size_t count, unsigned flags)
{
    enter();
    long r = kernel_writes(to) ? sys(SYS_splice, from, NULL, to, to_at, count, flags | SPLICE_F_NONBLOCK) : -ENOSYS;
    leave();
    return r;
}

#define SPLICE_KNOWN (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

EXPORT ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    from = mm_theirs(from);
    to = mm_theirs(to);
    if (!active() || (!pif_of(from) && !pif_of(to)))
        return REAL(splice)(from, from_at, to, to_at, count, flags);
    int out = is_pipe(to), in = is_pipe(from);
    off_t *at = out ? from_at : to_at, sum;
    enter();
    int kernel = out && kernel_reads(from);
    leave();
    /* what it would refuse is left to the kernel */
    if (kernel || in == out || !count || (flags & ~SPLICE_KNOWN) || (out ? to_at : from_at) || !readable_offset(at)
        || (access_of(from) & O_WRONLY) || access_of(to) == O_RDONLY || access_of(to) == O_ACCMODE
        || (in && (open_flags(to) & O_APPEND))
        || (at && (*at < 0 || __builtin_add_overflow(*at, (off_t)count, &sum))))
        return REAL(splice)(from, from_at, to, to_at, count, flags);
    pthread_testcancel();
    int cancels = hold_cancellation();
    long r = out ? splice_out(from, from_at, to, count, flags) : splice_natively(from, to, to_at, count, flags);
    if (!out && (r == -ENOSYS || (r == -EAGAIN && !waits_not(from, flags))))
        r = splice_in(from, to, to_at, count, flags);
    pthread_setcancelstate(cancels, NULL);
    return result(r);
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
    if (!is_file(fd) || !is_file(from))
        return 0;                          /* the kernel says what it has against them */
    long r = (target && !kernel_writes(fd)) || (source && !kernel_reads(from)) ? shares_blocks(fd, from) : 0;
    if (r == 0 && ((target && mm_pif_at(mm_area, target)->fresh_from == MM_NO_LIMIT)
                   || (source && mm_pif_at(mm_area, source)->fresh_from == MM_NO_LIMIT
                       && !is_native(mm_pif_at(mm_area, source)))))
        return -EOPNOTSUPP;                /* nothing is written back in isolation: programs then copy */
    if (r == 0 && source && !kernel_reads(from))
        r = mm_settle(source, from);
    return r == 0 && target && !kernel_writes(fd) ? mm_hand_over(target, fd) : r;
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
    int cancels = hold_cancellation();
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
#define ALIAS_copy(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
