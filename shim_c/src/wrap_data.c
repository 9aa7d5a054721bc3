/* wrap_data.c - bytes: reading, writing, positions, lengths, and the calls that only the kernel can do. */
#include "shim.h"
#include "names.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <limits.h>

static long result(long r)
{
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

static int attributes(int fd) { return (int)mm_fit_at(mm_area, mm_fds[fd].fit)->attributes; }
static int readable(int fd) { return (attributes(fd) & O_ACCMODE) != O_WRONLY; }
static int writable(int fd) { return (attributes(fd) & O_ACCMODE) != O_RDONLY; }

/* May the kernel write at the file's end (or anywhere, in a file that no index knows) by itself? */
static int free_to_write(const struct mm_pif *p, int fd)
{
    return is_native(p) && p->fresh_from != MM_NO_LIMIT && (p->fresh_from == 0 || (attributes(fd) & O_APPEND))
        && !owned(fd);
}

static int followed_read(int fd, uint32_t *slot)
{
    *slot = pif_of(fd);
    return UNLIKELY(*slot) && (!is_native(mm_pif_at(mm_area, *slot)) || owned(fd)) && readable(fd);
}

#define READ(fd, slot, vector, count, at) \
    ({ enter(); long r_ = mm_read(slot, fd, vector, count, at); leave(); result(r_); })

EXPORT ssize_t read(int fd, void *buffer, size_t count)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)))
        return REAL(read)(fd, buffer, count);
    return READ(fd, slot, (&(struct iovec){ buffer, count }), 1, -1);
}

EXPORT ssize_t __read_chk(int fd, void *buffer, size_t count, size_t room)
{
    return count > room ? REAL(__read_chk)(fd, buffer, count, room) : read(fd, buffer, count);
}

EXPORT ssize_t pread(int fd, void *buffer, size_t count, off_t at)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || at < 0)
        return REAL(pread)(fd, buffer, count, at);
    return READ(fd, slot, (&(struct iovec){ buffer, count }), 1, at);
}

EXPORT ssize_t __pread_chk(int fd, void *buffer, size_t count, off_t at, size_t room)
{
    return count > room ? REAL(__pread_chk)(fd, buffer, count, at, room) : pread(fd, buffer, count, at);
}

EXPORT ssize_t readv(int fd, const struct iovec *vector, int count)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || count <= 0 || count > IOV_MAX)
        return REAL(readv)(fd, vector, count);
    return READ(fd, slot, vector, count, -1);
}

EXPORT ssize_t preadv(int fd, const struct iovec *vector, int count, off_t at)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || count <= 0 || count > IOV_MAX || at < 0)
        return REAL(preadv)(fd, vector, count, at);
    return READ(fd, slot, vector, count, at);
}

EXPORT ssize_t preadv2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || count <= 0 || count > IOV_MAX || at < -1)
        return REAL(preadv2)(fd, vector, count, at, flags);
    return READ(fd, slot, vector, count, at);
}

/* A write of a followed file: by the kernel where the engine has nothing to decide. */
#define WRITE(fd, kernel, vector, count, at, append) \
    ({ uint32_t slot_ = pif_of(fd); long r_; \
       if (LIKELY(!slot_) || !writable(fd)) { r_ = kernel; } else { \
           struct mm_pif *p_ = mm_pif_at(mm_area, slot_); \
           do { \
               enter(); \
               if (LIKELY(free_to_write(p_, fd))) { touched(slot_, p_); r_ = kernel; } \
               else r_ = result(mm_write(slot_, fd, vector, count, at, append)); \
               leave(); \
           } while (UNLIKELY(r_ < 0) && mm_made_room()); \
       } r_; })
#define APPENDS(fd) (attributes(fd) & O_APPEND)

EXPORT ssize_t write(int fd, const void *buffer, size_t count)
{
    return WRITE(fd, REAL(write)(fd, buffer, count), (&(struct iovec){ (void *)buffer, count }), 1, -1, APPENDS(fd));
}

EXPORT ssize_t pwrite(int fd, const void *buffer, size_t count, off_t at)
{
    if (at < 0)
        return REAL(pwrite)(fd, buffer, count, at);
    return WRITE(fd, REAL(pwrite)(fd, buffer, count, at), (&(struct iovec){ (void *)buffer, count }), 1, at,
                 APPENDS(fd));
}

EXPORT ssize_t writev(int fd, const struct iovec *vector, int count)
{
    if (count <= 0 || count > IOV_MAX)
        return REAL(writev)(fd, vector, count);
    return WRITE(fd, REAL(writev)(fd, vector, count), vector, count, -1, APPENDS(fd));
}

EXPORT ssize_t pwritev(int fd, const struct iovec *vector, int count, off_t at)
{
    if (count <= 0 || count > IOV_MAX || at < 0)
        return REAL(pwritev)(fd, vector, count, at);
    return WRITE(fd, REAL(pwritev)(fd, vector, count, at), vector, count, at, APPENDS(fd));
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    if (count <= 0 || count > IOV_MAX || at < -1)
        return REAL(pwritev2)(fd, vector, count, at, flags);
    return WRITE(fd, REAL(pwritev2)(fd, vector, count, at, flags), vector, count, at,
                 APPENDS(fd) || (flags & RWF_APPEND));
}

/* Of a file that is all at home, and whose position is the kernel's, the kernel knows everything. */
EXPORT off_t lseek(int fd, off_t at, int whence)
{
    uint32_t slot = pif_of(fd);
    if (LIKELY(!slot) || (is_native(mm_pif_at(mm_area, slot)) && !owned(fd)))
        return REAL(lseek)(fd, at, whence);
    enter();
    long r;
    if (whence == SEEK_SET || whence == SEEK_CUR || whence == SEEK_END) {
        r = mm_seek(slot, fd, at, whence);
    } else if (is_native(mm_pif_at(mm_area, slot)) || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
        mm_give_position(fd);
        r = sys_lseek(fd, at, whence);
    } else {                           /* one extent up to the end */
        long size = mm_size(mm_pif_at(mm_area, slot), fd);
        r = size < 0 ? size : at < 0 || at >= size ? -ENXIO
          : mm_seek(slot, fd, whence == SEEK_DATA ? at : size, SEEK_SET);
    }
    leave();
    return result(r);
}

EXPORT int ftruncate(int fd, off_t length)
{
    uint32_t slot = pif_of(fd);
    if (!slot || length < 0 || !writable(fd))
        return REAL(ftruncate)(fd, length);
    enter();
    long r = mm_truncate(slot, fd, length);
    leave();
    return (int)result(r);
}

EXPORT int truncate(const char *path, off_t length)
{
    if (!following() || length < 0 || !path)
        return REAL(truncate)(path, length);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return REAL(truncate)(path, length);
    int r = pif_of(fd) ? ftruncate(fd, length) : REAL(truncate)(path, length);
    int saved = errno;
    close(fd);
    errno = saved;
    return r;
}

/* Before the kernel changes bytes of a followed file on its own. */
static long hand_over(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    touched(slot, p);
    return p->fresh_from == 0 && is_native(p) ? 0 : mm_settle(slot, fd);
}

static long allocate_isolated(uint32_t slot, int fd, int mode, off_t at, off_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long size = mm_size(p, fd);
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        return -EOPNOTSUPP;
    if (at < 0 || length <= 0)
        return -EINVAL;
    off_t end = at + length;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        static const char zeros[MM_BLOCK];
        for (off_t i = at; i < end && i < size;) {
            size_t n = end - i < MM_BLOCK ? end - i : MM_BLOCK;
            if ((long)(i + n) > size)
                n = size - i;
            long r = mm_write(slot, fd, &(struct iovec){ (void *)zeros, n }, 1, i, 0);
            if (r <= 0)
                return r < 0 ? r : -ENOSPC;
            i += r;
        }
    }
    return !(mode & FALLOC_FL_KEEP_SIZE) && end > size ? mm_truncate(slot, fd, end) : 0;
}

static long allocate(uint32_t slot, int fd, int mode, off_t at, off_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (p->fresh_from == MM_NO_LIMIT || (p->flags & MM_VIRTUAL))
        return allocate_isolated(slot, fd, mode, at, length);
    long r = mode & ~FALLOC_FL_KEEP_SIZE ? hand_over(slot, fd) : 0;
    touched(slot, p);
    return r < 0 ? r : sys(SYS_fallocate, fd, mode, at, length);
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t length)
{
    uint32_t slot = pif_of(fd);
    if (!slot || !writable(fd))
        return REAL(fallocate)(fd, mode, at, length);
    enter();
    long r = allocate(slot, fd, mode, at, length);
    leave();
    return (int)result(r);
}

EXPORT int posix_fallocate(int fd, off_t at, off_t length)
{
    uint32_t slot = pif_of(fd);
    if (!slot || !writable(fd) || !(mm_pif_at(mm_area, slot)->flags & MM_VIRTUAL))
        return REAL(posix_fallocate)(fd, at, length);
    enter();
    long r = allocate(slot, fd, 0, at, length);
    leave();
    return (int)-r;
}

/* What is acknowledged survives a power cut: the home, the buffer, and the tables that lead to it. */
static long sync_redirected(uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (is_native(p))
        return 0;
    mm_lock(&p->lock);
    long r = mm_cache_write_back(mm_area, slot, mm_buffer_fd);
    mm_unlock(&p->lock);
    if (r == 0)
        r = sys(SYS_fdatasync, mm_buffer_fd);
    static const char *const files[] = { "pages", "pifs", "header" };
    for (int i = 0; r == 0 && i < 3; i++) {
        char path[MM_STORE_MAX + 32];
        snprintf(path, sizeof path, "%s/run/%s", mm_area->store, files[i]);
        long fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        r = fd < 0 ? fd : sys(SYS_fdatasync, fd);
        if (fd >= 0)
            sys_close((int)fd);
    }
    return r;
}

#define SYNC(fd, kernel) \
    ({ uint32_t slot_ = pif_of(fd); if (slot_) mapped_barrier(); int r_ = kernel; \
       if (r_ == 0 && slot_) { enter(); long e_ = sync_redirected(slot_); leave(); r_ = (int)result(e_); } r_; })

EXPORT int fsync(int fd) { return SYNC(fd, REAL(fsync)(fd)); }
EXPORT int fdatasync(int fd) { return SYNC(fd, REAL(fdatasync)(fd)); }
EXPORT int syncfs(int fd) { return SYNC(fd, REAL(syncfs)(fd)); }
EXPORT void sync(void) { REAL(sync)(); }

EXPORT int sync_file_range(int fd, off_t at, off_t length, unsigned flags)
{
    return SYNC(fd, REAL(sync_file_range)(fd, at, length, flags));
}

/* Can the kernel copy from (to) this descriptor as it stands? */
static int copies_from(int fd)
{
    uint32_t slot = pif_of(fd);
    if (slot && is_native(mm_pif_at(mm_area, slot)))
        mm_give_position(fd);
    return !slot || is_native(mm_pif_at(mm_area, slot));
}
static int copies_to(int fd)
{
    uint32_t slot = pif_of(fd);
    if (!slot)
        return 1;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    touched(slot, p);
    if (p->fresh_from != 0 || !is_native(p))
        return 0;
    mm_give_position(fd);
    return 1;
}

/* The kernel's copy, done piece by piece through the engine. */
static ssize_t copy_pieces(int from, off_t *from_at, int to, off_t *to_at, size_t count)
{
    char piece[8192];
    ssize_t total = 0;
    while ((size_t)total < count) {
        size_t n = count - total < sizeof piece ? count - total : sizeof piece;
        ssize_t r = from_at ? pread(from, piece, n, *from_at) : read(from, piece, n);
        if (r <= 0)
            return total ? total : r;
        ssize_t w = to_at ? pwrite(to, piece, r, *to_at) : write(to, piece, r);
        if (w < 0)
            return total ? total : w;
        if (from_at)
            *from_at += w;
        else if (w < r)
            lseek(from, w - r, SEEK_CUR);
        if (to_at)
            *to_at += w;
        total += w;
        if (w < r)
            break;
    }
    return total;
}

EXPORT ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    if (!active() || flags || (!pif_of(from) && !pif_of(to)))
        return REAL(copy_file_range)(from, from_at, to, to_at, count, flags);
    enter();
    int kernel = copies_from(from) && copies_to(to);
    ssize_t r = kernel ? REAL(copy_file_range)(from, from_at, to, to_at, count, flags) : 0;
    leave();
    return kernel ? r : copy_pieces(from, from_at, to, to_at, count);
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    if (!active() || (copies_from(from) && !pif_of(to)))
        return REAL(sendfile)(to, from, at, count);
    enter();
    int kernel = copies_from(from) && copies_to(to);
    ssize_t r = kernel ? REAL(sendfile)(to, from, at, count) : 0;
    leave();
    return kernel ? r : copy_pieces(from, at, to, NULL, count);
}

EXPORT ssize_t splice(int from, off_t *from_at, int to, off_t *to_at, size_t count, unsigned flags)
{
    if (!active() || (!pif_of(from) && !pif_of(to)))
        return REAL(splice)(from, from_at, to, to_at, count, flags);
    if (!copies_from(from) || !copies_to(to)) {
        errno = EINVAL;                /* as on a file system without splice: programs then read and write */
        return -1;
    }
    return REAL(splice)(from, from_at, to, to_at, count, flags);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (UNLIKELY(request == FICLONE || request == FICLONERANGE || request == FIDEDUPERANGE) && active()) {
        int from = request == FICLONE ? (int)(long)argument
                 : request == FICLONERANGE && argument ? (int)((struct file_clone_range *)argument)->src_fd : -1;
        if (!copies_from(from) || !copies_to(fd)) {
            errno = EOPNOTSUPP;
            return -1;
        }
    }
    return REAL(ioctl)(fd, request, argument);
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_data(alias, name) SYMBOL_ALIAS(alias, name)
#include "aliases.h"
