/* wrap_data.c - bytes: reading, writing, positions, and the calls that only the kernel can do. */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <linux/fs.h>
#include <limits.h>

/* What the kernel refuses before it moves anything is left to it.  Beyond a program's memory not every kernel, and not for every
 * call, refuses all: to read where nothing is tells. */
#define BEYOND 0x7ffffffff000ul        /* the end of a program's memory */
#define NOWHERE (MM_ANY_SIZE / 2)
static int beyond(const void *p, size_t count) { return UNLIKELY(count > BEYOND || (uintptr_t)p > BEYOND - count); }
static int absurd(const void *p, size_t count)
{
    return beyond(p, count) && (((uintptr_t)p | count | ((uintptr_t)p + count)) >> 63
                                || sys_pread(mm_buffer_fd, (void *)p, count < MM_ANY_SIZE ? count : MM_ANY_SIZE, NOWHERE) < 0);
}
static int absurd_vector(const struct iovec *v, int n)
{
    int odd = n <= 0 || n > IOV_MAX || mm_usable(v, n * sizeof *v, 2) < n * sizeof *v, far = 0;
    for (int i = 0; i < n && !odd; i++)
        far |= beyond(v[i].iov_base, v[i].iov_len);
    return odd || (far && sys(SYS_preadv, mm_buffer_fd, v, n, NOWHERE, 0) < 0);
}

/* May the kernel write at the file's end (or anywhere, in a file that no index knows) by itself?  Not where the program has a
 * file size limit: another thread may have it lifted. */
static int free_to_write(const struct mm_pif *p, int fd)
{
    return is_native(p) && p->fresh_from != MM_NO_LIMIT && !owned(fd) && mm_unlimited()
        && ((p->fresh_from == 0 && !(p->flags & MM_MAPPED)) || (open_flags(fd) & O_APPEND));
}

static int followed_read(int fd, uint32_t *slot)
{
    *slot = pif_of(fd);
    return UNLIKELY(*slot) && (!is_native(mm_pif_at(mm_area, *slot)) || owned(fd)) && readable(fd);
}

/* These calls can be cancelled at their start only: system calls without libc are no cancellation points.
 * NOT_HERE: the file is not tracked any more, and nothing was done: the C library's own call has to be made. */
static inline long tracked_read(int fd, const struct iovec *vector, int count, off_t at)
{
    pthread_testcancel();
    uint32_t slot = enter_file(fd);
    if (UNLIKELY(!slot))
        return NOT_HERE;
    long r = mm_read(slot, fd, vector, count, at);
    leave();
    return result(r);
}

/* A file all in place, read at the kernel's position, which nobody may take over meanwhile. */
static int at_kernels_position(int fd, uint32_t slot, long number, const void *what, size_t count, long *r)
{
    uint32_t fit = mm_fds[fd].fit;
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    int held = mm_position_begin(f), native = is_native(mm_pif_at(mm_area, slot)) && !f->owned;
    MM_STOP("data.positioned");
    if (native)
        *r = sys(number, fd, what, count);
    mm_position_end(f, held);
    return native;
}

static __attribute__((noinline)) ssize_t followed_read_on(int fd, void *buffer, size_t count)
{
    uint32_t slot;
    long r;
    int followed = followed_read(fd, &slot);
    if (LIKELY(!slot) || !readable(fd) || absurd(buffer, count))
        return REAL(read)(mm_theirs(fd), buffer, count);
    if (!followed) {
        pthread_testcancel();
        if (at_kernels_position(fd, slot, SYS_read, buffer, count, &r))
            return result(r);
    }
    r = tracked_read(fd, &(struct iovec){ buffer, count }, 1, -1);
    return r != NOT_HERE ? r : REAL(read)(fd, buffer, count);
}

/* Nobody else can come by this description: at the kernel's position the kernel reads (mm_position_begin takes no lock either). */
static inline int sole_description(const struct mm_fit *f) { return *mm_single_threaded && LIKELY(f->refs == 1); }

EXPORT HOT ssize_t read(int fd, void *buffer, size_t count)
{
    struct mm_fd_view seen;
    enum mm_kind kind = mm_look(fd, &seen);
    if (LIKELY(kind == MM_UNTRACKED) || (kind == MM_IN_PLACE && sole_description(seen.f)))
        return LIKELY(count < MM_LONG_READ || !mm_memory_head) ? real_read(fd, buffer, count) : mm_read_held_up(fd, buffer, count);
    long r = kind == MM_REDIRECTED ? mm_plain_read(&seen, fd, buffer, count, -1) : NOT_HERE;
    return r != NOT_HERE ? r : followed_read_on(fd, buffer, count);
}

EXPORT ssize_t __read_chk(int fd, void *buffer, size_t count, size_t room)
{
    return count > room ? REAL(__read_chk)(fd, buffer, count, room) : read(fd, buffer, count);
}

static __attribute__((noinline)) ssize_t followed_pread(int fd, void *buffer, size_t count, off_t at)
{
    uint32_t slot;
    if (!followed_read(fd, &slot) || at < 0 || absurd(buffer, count))
        return REAL(pread)(mm_theirs(fd), buffer, count, at);
    long r = tracked_read(fd, &(struct iovec){ buffer, count }, 1, at);
    return r != NOT_HERE ? r : REAL(pread)(fd, buffer, count, at);
}

EXPORT HOT ssize_t pread(int fd, void *buffer, size_t count, off_t at)
{
    struct mm_fd_view seen;
    enum mm_kind kind = mm_look(fd, &seen);
    if (LIKELY(kind == MM_UNTRACKED || kind == MM_IN_PLACE))
        return real_pread(fd, buffer, count, at);
    long r = kind == MM_REDIRECTED && at >= 0 ? mm_plain_read(&seen, fd, buffer, count, at) : NOT_HERE;
    return r != NOT_HERE ? r : followed_pread(fd, buffer, count, at);
}

EXPORT ssize_t __pread_chk(int fd, void *buffer, size_t count, off_t at, size_t room)
{
    return count > room ? REAL(__pread_chk)(fd, buffer, count, at, room) : pread(fd, buffer, count, at);
}

EXPORT ssize_t readv(int fd, const struct iovec *vector, int count)
{
    uint32_t slot;
    long r;
    int followed = followed_read(fd, &slot);
    if (LIKELY(!slot) || !readable(fd) || absurd_vector(vector, count))
        return REAL(readv)(mm_theirs(fd), vector, count);
    if (!followed) {
        pthread_testcancel();
        if (at_kernels_position(fd, slot, SYS_readv, vector, count, &r))
            return result(r);
    }
    r = tracked_read(fd, vector, count, -1);
    return r != NOT_HERE ? r : REAL(readv)(fd, vector, count);
}

EXPORT ssize_t preadv(int fd, const struct iovec *vector, int count, off_t at)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || at < 0 || absurd_vector(vector, count))
        return REAL(preadv)(mm_theirs(fd), vector, count, at);
    long r = tracked_read(fd, vector, count, at);
    return r != NOT_HERE ? r : REAL(preadv)(fd, vector, count, at);
}

static int any(const struct iovec *v, int n)
{
    while (n > 0 && !v[n - 1].iov_len)
        n--;
    return n;
}

/* What the kernel says of RWF flags, and before them of a place beyond all files: a transfer that cannot happen, on the buffer.
 * 0 or -errno. */
static long flags_refused(long call, off_t at, int flags)
{
    struct iovec nowhere = { (void *)8, 1 };
    long r = sys(call, mm_buffer_fd, &nowhere, 1, at < 0 ? 0 : at, 0, flags & ~RWF_APPEND);
    if (r != -EFAULT && r != -EAGAIN && r != -EFBIG && r < 0)
        return r;
    return (flags & RWF_APPEND) && (flags & RWF_NOAPPEND) ? -EINVAL : 0;
}

EXPORT ssize_t preadv2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    uint32_t slot;
    if (LIKELY(!followed_read(fd, &slot)) || at < -1 || absurd_vector(vector, count))
        return REAL(preadv2)(mm_theirs(fd), vector, count, at, flags);
    long refused = flags && any(vector, count) ? flags_refused(SYS_preadv2, at, flags) : 0;
    if (refused)
        return result(refused);
    long r = tracked_read(fd, vector, count, at);
    return r != NOT_HERE ? r : REAL(preadv2)(fd, vector, count, at, flags);
}

/* Appends by the kernel to a file that an index knows: its last block must not be copied up meanwhile. */
static int appends_natively(struct mm_pif *p, int fd, uint64_t *mask)
{
    *mask = hold(p);
    if (LIKELY(free_to_write(p, fd)))
        return 1;
    release(p, *mask);
    return 0;
}

/* What it has appended begins before the end that the indexes know of: somebody outside of the run has cut the file meanwhile, as
 * logs are, maybe.  The position tells what there is to ask for. */
static void look_where(uint32_t slot, struct mm_pif *p, int fd, long wrote)
{
    struct stat st;
    if (wrote > 0 && !(mm_area->head->flags & MM_JOB) && UNLIKELY((uint64_t)sys_lseek(fd, 0, SEEK_CUR) < p->fresh_from + wrote)
        && sys(SYS_fstat, fd, &st) == 0 && mm_is_cut(p, st.st_size - wrote))
        mm_cut_by_others(slot, p, fd, st.st_size - wrote);
}

static int appends(int fd) { return open_flags(fd) & O_APPEND; }
static int syncs(int fd) { return open_flags(fd) & O_DSYNC; }

/* The engine's write; durable when it answers, where the descriptor says so. */
static inline long engine_write(uint32_t slot, int fd, const struct iovec *vector, int count, off_t at)
{
    return UNLIKELY(syncs(fd)) ? mm_write_through(slot, fd, vector, count, at, appends(fd))
                               : mm_write(slot, fd, vector, count, at, appends(fd));
}

/* A write as the kernel is asked for it, and the same bytes for the engine. */
struct request {
    long number, a, b, c, flags;
    const struct iovec *vector;
    int count;
    off_t at;
};

/* A write of a tracked file: by the kernel where the engine has nothing to decide.  NOT_HERE: the file is not tracked, or not
 * to be written by this descriptor, and nothing was done: the C library's own call has to be made. */
static inline __attribute__((always_inline)) long tracked_write(int fd, const struct request ask)
{
    if (LIKELY(!pif_of(fd)) || !writable(fd))
        return NOT_HERE;
    long r;
    int asked = 0, saved = errno;
    uint64_t mask;
    pthread_testcancel();
    do {
        uint32_t slot = enter_file(fd);
        if (UNLIKELY(!slot))
            return NOT_HERE;
        struct mm_pif *p = mm_pif_at(mm_area, slot);
        if (LIKELY(free_to_write(p, fd)) && LIKELY(p->fresh_from == 0)) {
            touched(slot, p);
            r = sys(ask.number, fd, ask.a, ask.b, ask.c, 0, ask.flags);
        } else if (free_to_write(p, fd) && appends_natively(p, fd, &mask)) {
            touched(slot, p);
            r = sys(ask.number, fd, ask.a, ask.b, ask.c, 0, ask.flags);
            look_where(slot, p, fd, r);
            release(p, mask);
        } else {
            r = engine_write(slot, fd, ask.vector, ask.count, ask.at);
        }
        r = result(r);
        leave();
    } while (UNLIKELY(r < 0) && mm_made_room(fd, &asked) && (errno = saved, 1));
    return r;
}

static __attribute__((noinline)) ssize_t followed_write(int fd, const void *buffer, size_t count)
{
    struct iovec bytes = { (void *)buffer, count };
    struct request ask = { SYS_write, (long)buffer, (long)count, 0, 0, &bytes, 1, -1 };
    long r = absurd(buffer, count) ? NOT_HERE : tracked_write(fd, ask);
    return r != NOT_HERE ? r : LIKELY(!mm_memory_head) ? REAL(write)(mm_theirs(fd), buffer, count)
         : mm_write_held_up(mm_theirs(fd), buffer, count);
}
static __attribute__((noinline)) ssize_t followed_pwrite(int fd, const void *buffer, size_t count, off_t at)
{
    struct iovec bytes = { (void *)buffer, count };
    struct request ask = { SYS_pwrite64, (long)buffer, (long)count, at, 0, &bytes, 1, at };
    long r = at < 0 || absurd(buffer, count) ? NOT_HERE : tracked_write(fd, ask);
    return r != NOT_HERE ? r : REAL(pwrite)(mm_theirs(fd), buffer, count, at);
}

/* The commonest of them, a write to a file that no index knows: the kernel's, once the mark is made.  NOT_HERE: another kind. */
static inline long fresh_write(const struct mm_fd_view seen, long number, int fd, const void *buffer, size_t count, off_t at)
{
    if ((seen.f->attributes & O_ACCMODE) == O_RDONLY || absurd(buffer, count))
        return NOT_HERE;
    pthread_testcancel();
    MM_STOP("data.looked");
    enter_as(1);
    int fresh = mm_still(&seen, fd) && seen.p->fresh_from == 0 && !__atomic_load_n(&seen.p->root, __ATOMIC_ACQUIRE)
                && !(seen.p->flags & (MM_VIRTUAL | MM_MAPPED)) && !seen.f->owned && mm_no_limit();
    long r = NOT_HERE;
    if (fresh) {
        touched(seen.slot, seen.p);
        r = result(sys(number, fd, buffer, count, at));
    }
    leave();
    return UNLIKELY(fresh && r < 0) && (errno == ENOSPC || errno == EDQUOT) ? NOT_HERE : r;   /* a prune may make room */
}

EXPORT HOT ssize_t write(int fd, const void *buffer, size_t count)
{
    struct mm_fd_view seen;
    enum mm_kind kind = mm_look(fd, &seen);
    if (LIKELY(kind == MM_UNTRACKED))
        return LIKELY(!mm_memory_head) ? real_write(fd, buffer, count) : mm_write_held_up(fd, buffer, count);
    long r = kind == MM_IN_PLACE ? fresh_write(seen, SYS_write, fd, buffer, count, 0)
           : kind == MM_REDIRECTED ? mm_plain_write(&seen, fd, buffer, count, -1) : NOT_HERE;
    return r != NOT_HERE ? r : followed_write(fd, buffer, count);
}

EXPORT HOT ssize_t pwrite(int fd, const void *buffer, size_t count, off_t at)
{
    struct mm_fd_view seen;
    enum mm_kind kind = mm_look(fd, &seen);
    if (LIKELY(kind == MM_UNTRACKED))
        return real_pwrite(fd, buffer, count, at);
    long r = at < 0 ? NOT_HERE : kind == MM_IN_PLACE ? fresh_write(seen, SYS_pwrite64, fd, buffer, count, at)
           : kind == MM_REDIRECTED ? mm_plain_write(&seen, fd, buffer, count, at) : NOT_HERE;
    return r != NOT_HERE ? r : followed_pwrite(fd, buffer, count, at);
}

EXPORT ssize_t writev(int fd, const struct iovec *vector, int count)
{
    struct request ask = { SYS_writev, (long)vector, count, 0, 0, vector, count, -1 };
    long r = LIKELY(!pif_of(fd)) || absurd_vector(vector, count) ? NOT_HERE : tracked_write(fd, ask);
    return r != NOT_HERE ? r : mm_writev_held_up(mm_theirs(fd), vector, count);
}

EXPORT ssize_t pwritev(int fd, const struct iovec *vector, int count, off_t at)
{
    struct request ask = { SYS_pwritev, (long)vector, count, at, 0, vector, count, at };
    long r = LIKELY(!pif_of(fd)) || at < 0 || absurd_vector(vector, count) ? NOT_HERE : tracked_write(fd, ask);
    return r != NOT_HERE ? r : REAL(pwritev)(mm_theirs(fd), vector, count, at);
}

/* Only a write at an old file's end, or to one that no index knows, is the kernel's; where the flags say so it is ours.  NOT_HERE: it
 * is not tracked any more. */
static long write_as_flags_say(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    uint32_t slot = enter_file(fd);
    if (!slot)
        return NOT_HERE;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long r;
    if (is_native(p) && p->fresh_from == 0 && !owned(fd) && mm_unlimited()) {
        touched(slot, p);
        if (p->flags & MM_MAPPED)
            mm_unseen_in(p);
        r = sys(SYS_pwritev2, fd, vector, count, at, 0, flags);
    } else {
        /* not waiting is refused to buffered writes alone by some filesystems, never to reads only */
        int number = (flags & RWF_NOWAIT) && (open_flags(fd) & O_DIRECT) ? SYS_preadv2 : SYS_pwritev2;
        r = flags_refused(number, at, flags);
        int append = !(flags & RWF_NOAPPEND) && (appends(fd) || (flags & RWF_APPEND));
        if (r == 0)
            r = (syncs(fd) || (flags & (RWF_DSYNC | RWF_SYNC)) ? mm_write_through : mm_write)(slot, fd, vector, count, at, append);
    }
    r = result(r);
    leave();
    return r;
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *vector, int count, off_t at, int flags)
{
    int asked = 0, saved = errno;
    long r = NOT_HERE;
    if (!flags || !pif_of(fd)) {
        struct request ask = { SYS_pwritev2, (long)vector, count, at, flags, vector, count, at };
        r = LIKELY(!pif_of(fd)) || at < -1 || absurd_vector(vector, count) ? NOT_HERE : tracked_write(fd, ask);
    } else if (writable(fd) && at >= -1 && !absurd_vector(vector, count) && any(vector, count)) {
        do
            r = write_as_flags_say(fd, vector, count, at, flags);
        while (UNLIKELY(r == -1) && mm_made_room(fd, &asked) && (errno = saved, 1));
    }
    return r != NOT_HERE ? r : REAL(pwritev2)(mm_theirs(fd), vector, count, at, flags);
}

/* Of a file that is all in place, and whose position is the kernel's, the kernel knows everything. */
static __attribute__((noinline)) off_t followed_lseek(int fd, off_t at, int whence)
{
    uint32_t slot = pif_of(fd);
    long r;
    if (LIKELY(!slot))
        return REAL(lseek)(mm_theirs(fd), at, whence);
    if (is_native(mm_pif_at(mm_area, slot)) && !owned(fd)
        && at_kernels_position(fd, slot, SYS_lseek, (const void *)at, whence, &r))
        return result(r);
    slot = enter_file(fd);
    if (!slot)
        return REAL(lseek)(fd, at, whence);
    if (whence == SEEK_SET || whence == SEEK_CUR || whence == SEEK_END) {
        r = mm_seek(slot, fd, at, whence);
    } else if (is_native(mm_pif_at(mm_area, slot)) || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
        mm_give_position(fd);
        r = sys_lseek(fd, at, whence);
    } else {
        r = mm_extent(slot, fd, at, whence);
        if (r >= 0)
            r = mm_seek(slot, fd, r, SEEK_SET);
    }
    leave();
    return result(r);
}

EXPORT HOT off_t lseek(int fd, off_t at, int whence)
{
    struct mm_fd_view seen;
    enum mm_kind kind = mm_look(fd, &seen);
    return LIKELY(kind == MM_UNTRACKED) || (kind == MM_IN_PLACE && sole_description(seen.f)) ? real_lseek(fd, at, whence)
                                                                                             : followed_lseek(fd, at, whence);
}

/* Can the kernel read from (write to) this descriptor as it stands?  If so, the position is the kernel's again. */
int mm_kernel_reads(int fd)
{
    uint32_t slot = pif_of(fd);
    if (slot && !is_native(mm_pif_at(mm_area, slot)))
        return 0;
    if (slot)
        mm_give_position(fd);
    return 1;
}
int mm_kernel_writes(int fd)
{
    uint32_t slot = pif_of(fd);
    struct mm_pif *p = slot ? mm_pif_at(mm_area, slot) : NULL;
    if (p && (p->fresh_from != 0 || !is_native(p) || (p->flags & MM_MAPPED) || !mm_unlimited()))   /* it may be lifted just now */
        return 0;
    if (p) {
        touched(slot, p);
        mm_give_position(fd);
    }
    return 1;
}

int mm_is_file(int fd)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

/* Calls of wrap_alloc.c, wrap_copy.c and wrap_stat.c read and write by others that are cancellation points: a thread that ended in one would leave its call under
 * way, and no checkpoint came to an end. */
int mm_hold_cancellation(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static void before_sync(int fd)
{
    if (pif_of(fd))
        mapped_barrier();
}

/* The kernel has synced the file's own bytes; those in the buffer follow. */
static int after_sync(int fd, int r)
{
    if (r < 0 && pif_of(fd))
        mm_synced(-errno);
    uint32_t slot = r == 0 && pif_of(fd) ? enter_file(fd) : 0;
    if (!slot)
        return r;
    long e = mm_ahead_blocks(slot);
    leave();
    return (int)result(e);
}

EXPORT int fsync(int fd)
{
    before_sync(fd);
    return after_sync(fd, REAL(fsync)(mm_theirs(fd)));
}

EXPORT int fdatasync(int fd)
{
    before_sync(fd);
    return after_sync(fd, REAL(fdatasync)(mm_theirs(fd)));
}

/* The buffer may lie on another filesystem. */
EXPORT int syncfs(int fd)
{
    int r = REAL(syncfs)(mm_theirs(fd));
    if (r == 0 && active()) {
        enter();
        r = (int)result(mm_ahead_all());
        leave();
    }
    return r;
}
EXPORT void sync(void)
{
    REAL(sync)();
    if (active()) {
        enter();
        mm_ahead_all();
        leave();
    }
}

EXPORT int sync_file_range(int fd, off_t at, off_t length, unsigned flags)
{
    before_sync(fd);
    return after_sync(fd, REAL(sync_file_range)(mm_theirs(fd), at, length, flags));
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_data(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
