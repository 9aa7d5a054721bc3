/* wrap_alloc.c - lengths, and room: truncate; fallocate, by the kernel on a file that is all in place, in isolation on the buffer.
 *
 * In isolation the file in place may not change, yet results are the kernel's for that filesystem: it is asked first, with a
 * nameless file of the same size beside it.  What it then says, and the size it then has, are the answer.  That is done
 * without the file's lock, under which no limit of the program's applies; what follows is under it, all at once.
 */
#include "calls/calls.h"

#include <linux/falloc.h>
#include <sys/statfs.h>

#ifndef FALLOC_FL_WRITE_ZEROES
#define FALLOC_FL_WRITE_ZEROES 0x80
#endif

/* A nameless file of that size beside it; or -errno. */
static long rehearsed_with(int fd, long size)
{
    char folder[4096];
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
    if (r < 0)
        mm_close_spare((int)trial);
    return r < 0 ? r : trial;
}

/* What the kernel would do to a file of that size: its new size, or -errno. */
static long rehearse(int fd, int mode, off_t at, off_t length, long size)
{
    struct stat st;
    long trial = at < 0 || length <= 0 ? -EINVAL : rehearsed_with(fd, size);
    if (trial < 0)
        return trial;
    long r = sys(SYS_fallocate, trial, mode, at, length);
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

/* Before anything is moved there: has the disk room for the blocks that get a new place, and as much again for the end?  Half moved
 * the file would be neither what it was nor what was asked for. */
static long room_to_move(struct mm_pif *p, uint64_t at, uint64_t end)
{
    uint64_t blocks = 0;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    for (uint64_t block = at / MM_BLOCK; block * MM_BLOCK < end; block++)
        blocks += !mm_own(mm_table_get(mm_area, p, block));
    blocks = 2 * blocks + blocks / 8 + MM_CHUNK / MM_BLOCK;    /* with what is held for records of them */
    if (blocks > UINT32_MAX)
        return -ENOSPC;
    long e = mm_room_set_aside(mm_area, mm_self, (uint32_t)blocks);
    if (e == 0)
        mm_room_set_back(mm_area, mm_self, (uint32_t)blocks, 1);
    return e;
}

/* wanted: the size that it has afterwards, as the kernel allowed it. */
static long done_away(uint32_t slot, struct mm_pif *p, int fd, int mode, uint64_t at, uint64_t end, uint64_t size, uint64_t wanted)
{
    long r = 0;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (mode & FALLOC_FL_COLLAPSE_RANGE)
        r = room_to_move(p, at, at + size - end);
    else if (mode & FALLOC_FL_INSERT_RANGE)
        r = room_to_move(p, at, wanted);
    if (r == 0 && (mode & FALLOC_FL_COLLAPSE_RANGE))
        r = shift(slot, p, fd, end, at, size - end);
    if (r == 0 && (mode & FALLOC_FL_INSERT_RANGE))
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
    long size = mm_size_held(slot, p, fd);
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

/* Whatever a prune frees, a disk takes no more than that. */
static int may_fit(off_t length)
{
    struct statfs disk;
    return mm_area->folder <= 0 || sys(SYS_fstatfs, mm_area->folder, &disk) < 0
        || (uint64_t)length / (uint64_t)disk.f_bsize <= (uint64_t)disk.f_blocks;
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t length)
{
    long r;
    int asked = 0, saved = errno;
    fd = mm_theirs(fd);
    pthread_testcancel();
    do {
        errno = saved;
        uint32_t slot = pif_of(fd) && writable(fd) ? enter_file(fd) : 0;
        if (!slot)
            return REAL(fallocate)(fd, mode, at, length);
        r = result(allocate(slot, fd, mode, at, length));
        leave();
    } while (UNLIKELY(r < 0) && may_fit(length) && mm_made_room(fd, &asked));
    return (int)r;
}

/* Where the filesystem cannot, glibc writes to every block by internal calls, which are cancellation points: then the file has to be
 * in place. */
static int allocate_once(int fd, off_t at, off_t length)
{
    int cancels = mm_hold_cancellation();
    uint32_t slot = pif_of(fd) && writable(fd) ? enter_file(fd) : 0;
    if (!slot) {
        pthread_setcancelstate(cancels, NULL);
        return REAL(posix_fallocate)(fd, at, length);
    }
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long r = allocate(slot, fd, 0, at, length), size = mm_size(p, fd);
    if (r == -EOPNOTSUPP && is_away(p))
        r = size < 0 ? size : at + length > size ? mm_truncate(slot, fd, at + length) : 0;
    else if (r == -EOPNOTSUPP)
        r = (r = mm_hand_over(slot, fd)) < 0 ? r : -REAL(posix_fallocate)(fd, at, length);
    leave();
    pthread_setcancelstate(cancels, NULL);
    return (int)-r;
}

EXPORT int posix_fallocate(int fd, off_t at, off_t length)
{
    int saved = errno, asked = 0, r, again;
    fd = mm_theirs(fd);
    do {
        errno = r = allocate_once(fd, at, length);
        again = UNLIKELY(r) && pif_of(fd) && may_fit(length) && mm_made_room(fd, &asked);
        errno = saved;
    } while (again);
    return r;
}

EXPORT int ftruncate(int fd, off_t length)
{
    long r;
    int asked = 0, saved = errno;
    do {
        errno = saved;
        uint32_t slot = length < 0 || !pif_of(fd) || !writable(fd) ? 0 : enter_file(fd);
        if (!slot)
            return REAL(ftruncate)(mm_theirs(fd), length);
        r = result(mm_truncate(slot, fd, length));
        leave();
    } while (UNLIKELY(r < 0) && mm_made_room(fd, &asked));
    return (int)r;
}

static long truncate_again(int fd, uint64_t length)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    return sys(SYS_truncate, path, length);
}

/* Would the kernel leave the times of a file of that size?  tmpfs does where it has nothing to cut. */
static int leaves_times(int fd, long size)
{
    const struct timespec before[2] = { { 0 }, { 0 } };
    struct stat st;
    long trial = rehearsed_with(fd, size);
    if (trial < 0)
        return 0;
    mm_lift_limit(0);
    long r = size ? sys_pwrite((int)trial, "", 1, 0) : 0;
    mm_lift_limit(1);
    int stays = r >= 0 && sys(SYS_utimensat, trial, NULL, before, 0) == 0 && truncate_again((int)trial, size) == 0
             && sys(SYS_fstat, trial, &st) == 0 && st.st_mtim.tv_sec == 0;
    mm_close_spare((int)trial);
    return stays;
}

/* By a name: where the size stays the times may, too, as the filesystem has it. */
static long cut(uint32_t slot, int fd, uint64_t length)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (is_away(p) && (uint64_t)mm_size(p, fd) == length && leaves_times(fd, (long)length))
        return 0;
    uint64_t mask = hold(p);
    touched(slot, p);
    long size = mm_size(p, fd), r = -ENOENT;       /* as after chroot, where there may be no /proc */
    if (size >= 0 && (uint64_t)size == length && !is_away(p))
        r = truncate_again(fd, length);
    release(p, mask);
    return r == -ENOENT ? mm_truncate(slot, fd, length) : r;
}

/* A fifo would keep it waiting, and is none of these; who has a lease does, as in the kernel's call. */
static long open_to_cut(const char *path, int how)
{
    char by[40];
    struct stat st;
    long fd = mm_open_own(path, how | O_NONBLOCK), at = fd == -EAGAIN ? mm_open_own(path, O_PATH) : -1;
    if (at < 0)
        return fd;
    snprintf(by, sizeof by, "/proc/thread-self/fd/%d", (int)at);
    if (sys(SYS_fstat, at, &st) == 0 && S_ISREG(st.st_mode))
        fd = mm_open_own(by, how);
    mm_close_spare((int)at);
    return fd;
}

/* Of a file that this process has locked: to open and close it would drop the locks. */
static int locked_here(const char *path, const struct stat *st, uint32_t *slot)
{
    *slot = mm_pif_there(mm_area, AT_FDCWD, path, 0, st->st_dev, st->st_ino);
    return *slot && sys(SYS_faccessat, AT_FDCWD, path, W_OK) == 0 ? mm_locked_reader(*slot) : -1;
}

/* Of a file that the run does not track the bytes are the kernel's alone. */
static int cut_elsewhere(const char *path, off_t length, const struct stat *st, const char *name)
{
    int r = REAL(truncate)(path, length);
    if (r == 0 && !mm_below(name, mm_area->store))
        mm_wrote_outside(mm_area, st->st_dev, st->st_ino, name);
    return r;
}

/* By a descriptor of ours: the program may have none left. */
static int truncate_once(const char *path, off_t length)
{
    struct stat st;
    if (!following() || length < 0 || !path)
        return REAL(truncate)(path, length);
    long looked = sys(SYS_newfstatat, AT_FDCWD, path, &st, 0);
    if (looked < 0)
        return (int)result(looked);    /* the kernel would have found the same, or nobody knows whose file it is */
    if (!S_ISREG(st.st_mode))
        return REAL(truncate)(path, length);
    SCRATCH(name);
    uint32_t known;
    enter();
    int locked = locked_here(path, &st, &known);
    int elsewhere = !known && mm_canonical_follow(AT_FDCWD, path, name, SCRATCH_BYTES) >= 0 && !mm_tracked(name);
    long done = mm_has_lapsed() ? -ESRCH : locked >= 0 ? cut(known, locked, length) : 0;
    leave();
    if (done == -ESRCH)
        return (int)result(done);
    if (elsewhere)
        return cut_elsewhere(path, length, &st, name);
    if (locked >= 0)
        return (int)result(done);
    int how = O_RDWR;                  /* what is saved is read by it too */
    long fd = open_to_cut(path, how);
    if (fd == -EACCES)
        fd = open_to_cut(path, how = O_WRONLY);
    if (fd < 0)
        return (int)result(fd);
    enter();
    long r = mm_has_lapsed() ? -ESRCH : mm_opened((int)fd, how, 0, 0, NULL);
    uint32_t slot = r < 0 ? 0 : pif_of((int)fd);
    if (r == 0)
        r = slot ? cut(slot, (int)fd, length) : sys(SYS_ftruncate, fd, length);
    int kept = slot && mm_keep_own(slot, (int)fd);
    mm_closing((int)fd);
    if (!kept)
        mm_close_spare((int)fd);
    leave();
    return (int)result(r);
}
EXPORT int truncate(const char *path, off_t length) { return MM_WITH_ROOM(AT_FDCWD, path, truncate_once(path, length)); }

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_alloc(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
