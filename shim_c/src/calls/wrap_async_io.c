/* wrap_async_io.c - what the kernel does by itself, at a time of its own: asynchronous engines (POSIX aio, libaio,
 * io_uring), watches, filesystems that go.
 *
 * One mechanism for all: before an engine can use a descriptor of a tracked file, the file is written back and stays there;
 * may the engine write it, then its bytes may change unseen (settle.c), as with a writable mapping.
 * POSIX aio and libaio name the descriptor.  A ring may be given any: once a process has one, every descriptor of a
 * tracked file that it has or opens is taken for used.  A ring is noticed when it is made (the library's calls, or a
 * raw one) and, if that went by, when it is mapped.
 */
#include "calls/calls.h"
#include "base/loader.h"
#include "memory/image_engine.h"

#include <dlfcn.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mount.h>

static int mm_ring;                          /* this process has an io_uring */

/* 0 or -errno */
static long may_use(int fd, int writes)
{
    uint32_t slot = mm_active && pif_of(fd) ? enter_file(fd) : 0;
    if (!slot)
        return 0;
    int flags = (int)mm_fit_at(mm_area, mm_fds[fd].fit)->attributes;
    int unseen = writes && (flags & O_ACCMODE) != O_RDONLY;
    long r = mm_stay_home(slot, fd, unseen ? MM_UNSEEN : 0, MM_ENGINE);
    mm_give_position(fd);
    leave();
    return r;
}

/* A file that nobody has written yet: a ring may read it when another process has.  It is known from here on, as one that is
 * mapped. */
static void known_to_ring(int fd)
{
    struct statx st;
    long error;
    SCRATCH(name);
    if (mm_statx(fd, "", AT_EMPTY_PATH, &st) < 0 || !S_ISREG(st.stx_mode) || !st.stx_nlink
        || mm_path_of(fd, name, SCRATCH_BYTES) < 0 || !mm_tracked(name))
        return;
    enter();
    mm_mapped_unfollowed(mm_area, sys_dev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino);
    mm_pif_for(&st, name, 0, &error);
    leave();
}

/* A descriptor that a ring of this process may be given. */
void mm_ring_may_use(int fd)
{
    if (mm_ring && mm_active && !pif_of(fd))
        known_to_ring(fd);
    long r = mm_ring ? may_use(fd, 1) : 0;
    if (r < 0)
        mm_say("no room to save what a file holds before io_uring may change it: this cannot be undone");
}

void mm_ring_made(void)
{
    if (!active() || __atomic_exchange_n(&mm_ring, 1, __ATOMIC_SEQ_CST))
        return;
    mm_on_tracked = mm_ring_may_use;
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit)
            mm_ring_may_use(fd);
}

/* No checkpoint could hold one with the program's memory: it goes on without, as where kernel.io_uring_disabled is set or a
 * container's filter refuses it.  0 or -EPERM */
static long may_make_ring(void)
{
    if (active() && mm_area->head->flags & MM_MEMORY)
        return -EPERM;
    mm_ring_made();
    return 0;
}

/* mmap of something that we do not follow, at the place of a ring's entries: is it one? */
void mm_ring_mapped(int fd)
{
    char link[40], name[32];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    long n = sys_readlink(link, name, sizeof name - 1);
    if (n > 0 && (name[n] = 0, !strcmp(name, "anon_inode:[io_uring]")))
        mm_ring_made();
}

/* The program's memory, which may not be there: the kernel's EFAULT must not become a fault of ours. */
static int peek(void *to, const void *from, size_t count)
{
    struct iovec here = { to, count }, there = { (void *)from, count };
    return sys(SYS_process_vm_readv, sys_getpid(), &here, 1, &there, 1, 0) == (long)count;
}

/* Before io_submit: 0, or -errno and nothing may be submitted. */
static long before_submit(long count, struct iocb **list)
{
    for (long i = 0; i < count; i++) {
        struct iocb *at, block;
        if (!peek(&at, &list[i], sizeof at) || !peek(&block, at, sizeof block))
            return 0;                      /* the kernel says why */
        long r = may_use((int)block.aio_fildes, block.aio_lio_opcode == IOCB_CMD_PWRITE
                                                || block.aio_lio_opcode == IOCB_CMD_PWRITEV);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Before a raw system call of the program's: 0, or -errno in its stead. */
long mm_before_raw(long number, long a, long b, long c)
{
    (void)a;
    if (number == SYS_io_submit)
        return before_submit(b, (struct iocb **)c);
    return number == SYS_io_uring_setup ? may_make_ring() : 0;
}

/* libaio's and liburing's own symbols: errors as -errno, not in errno. Libraries that are loaded later, out of our
 * sight, come here all the same; what they would do is one system call. */

EXPORT int io_submit(aio_context_t context, long count, struct iocb **list)
{
    long r = before_submit(count, list);
    return (int)(r < 0 ? r : sys(SYS_io_submit, context, count, list));
}

EXPORT int io_uring_setup(unsigned entries, struct io_uring_params *parameters)
{
    long r = may_make_ring();
    return (int)(r < 0 ? r : sys(SYS_io_uring_setup, entries, parameters));
}

/* A library that was loaded for one other alone is seen from there only. */
static void *liburing_s(const char *name)
{
    void *found = REAL(dlsym)(RTLD_NEXT, name);
    if (!found)
        dlerror();                     /* not the program's own */
    return found ? found : mm_behind_us(name);
}

#define FROM_LIBURING(name, parameters, ...) \
    EXPORT int name parameters \
    { \
        int (*real) parameters = (int (*) parameters)liburing_s(#name); \
        if (!real) \
            return -ENOSYS; \
        long r = may_make_ring(); \
        return r < 0 ? (int)r : real(__VA_ARGS__); \
    }
FROM_LIBURING(io_uring_queue_init, (unsigned entries, void *ring, unsigned flags), entries, ring, flags)
FROM_LIBURING(io_uring_queue_init_params, (unsigned entries, void *ring, void *params), entries, ring, params)
FROM_LIBURING(io_uring_queue_init_mem, (unsigned entries, void *ring, void *params, void *memory, size_t size),
              entries, ring, params, memory, size)

/* Whoever watches a file waits for it to change where the kernel sees it: it is written back, and stays there (`tail -f`).  One that nobody has written yet is known from here on, as if it had been opened for that. */
static void watched(int dir, const char *path, int follows)
{
    struct statx st;
    SCRATCH(name);
    long error = !path ? mm_path_of(dir, name, SCRATCH_BYTES) : (follows ? mm_canonical_follow : mm_canonical)(dir, path, name, SCRATCH_BYTES);
    if (error < 0 || !mm_tracked(name)
        || mm_look_at(name, &st) < 0 || !S_ISREG(st.stx_mode))
        return;
    enter();
    uint32_t slot = mm_pif_for(&st, name, 0, &error);
    if (slot && !(mm_pif_at(mm_area, slot)->flags & MM_COPIED))
        mm_home_by_name(slot, name, 0, MM_ENGINE | MM_WATCHED);
    leave();
}

/* What a run with memory watches, so that it can be watched again: the kernel knows no path.  Read when the process is saved, which
 * is not done meanwhile. */
static uint64_t noted_last[256];           /* hashes */

static void note_watch(const char *path, uint32_t events)
{
    struct stat st;
    SCRATCH(name);
    SCRATCH(file);
    if ((events & IN_DONT_FOLLOW ? mm_canonical : mm_canonical_follow)(AT_FDCWD, path, name, SCRATCH_BYTES) < 0
        || sys(SYS_newfstatat, AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    struct mm_watched it = { st.st_dev, st.st_ino, (uint32_t)strlen(name), 0 };
    uint64_t hash = 14695981039346656037ul ^ it.ino ^ it.dev << 32 ^ mm_area->head->tree.watches_kept;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211ul;
    uint64_t *last = &noted_last[hash >> 56];
    if (__atomic_load_n(last, __ATOMIC_RELAXED) == hash)
        return;
    snprintf(file, SCRATCH_BYTES, "%s/run/inotify", mm_area->store);
    int fd = (int)mm_open_spare(AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600);
    struct iovec both[2] = { { &it, sizeof it }, { name, it.length } };
    if (fd >= 0 && sys(SYS_writev, fd, both, 2) == (long)(sizeof it + it.length))
        __atomic_store_n(last, hash, __ATOMIC_RELAXED);
    if (fd >= 0)
        mm_close_spare(fd);
}

static int watch_noted(const char *path, uint32_t events, int number)
{
    if (number >= 0)
        note_watch(path, events);
    return number;
}

EXPORT int inotify_add_watch(int watcher, const char *path, uint32_t events)
{
    int saved = errno, followed = following();
    if (followed)
        mm_inodes_watched(AT_FDCWD, path, events & IN_DONT_FOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
    if (followed && (events & IN_MODIFY) && mm_usable(path, 1, 2))
        watched(AT_FDCWD, path, !(events & IN_DONT_FOLLOW));
    errno = saved;
    return LIKELY(!mm_memory_head) ? REAL(inotify_add_watch)(watcher, path, events)
                                   : MM_NUMBERS(int, watch_noted(path, events, REAL(inotify_add_watch)(watcher, path, events)));
}

EXPORT int fanotify_mark(int group, unsigned flags, uint64_t events, int dir, const char *path)
{
    int saved = errno, adds = following() && (flags & FAN_MARK_ADD), marked = adds && !(flags & (FAN_MARK_MOUNT | FAN_MARK_FILESYSTEM));
    if (adds)
        mm_inodes_watched(dir, path ?: "", !path ? AT_EMPTY_PATH : flags & FAN_MARK_DONT_FOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
    if (marked && (events & FAN_MODIFY) && (!path || mm_usable(path, 1, 2)))
        watched(dir, path, !(flags & FAN_MARK_DONT_FOLLOW));
    errno = saved;
    return REAL(fanotify_mark)(group, flags, events, dir, path);
}

/* A filesystem that goes takes along only what is in place. A device may be named instead of the folder. */
EXPORT int umount2(const char *path, int flags)
{
    struct statx st;
    if (active() && sys_statx(AT_FDCWD, path, flags & UMOUNT_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0, STATX_TYPE, &st) == 0) {
        int saved = errno;
        enter();
        mm_all_home(S_ISBLK(st.stx_mode) ? sys_dev(st.stx_rdev_major, st.stx_rdev_minor)
                                         : sys_dev(st.stx_dev_major, st.stx_dev_minor));
        leave();
        errno = saved;
    }
    return REAL(umount2)(path, flags);
}
EXPORT int umount(const char *path) { return umount2(path, 0); }

/* POSIX aio: glibc's threads, which call below its symbols. */

static int refused(long r)
{
    errno = (int)-r;
    return -1;
}

#define AIO(name, writes) \
    EXPORT int name(struct aiocb *block) \
    { \
        long r = may_use(block->aio_fildes, writes); \
        return r < 0 ? refused(r) : REAL(name)(block); \
    }
AIO(aio_read, 0)
AIO(aio_write, 1)

EXPORT int aio_fsync(int operation, struct aiocb *block)
{
    long r = may_use(block->aio_fildes, 0);
    return r < 0 ? refused(r) : REAL(aio_fsync)(operation, block);
}

/* What a sync of theirs came to is known when it is asked for.  glibc notes syncs by numbers beyond the public ones. */
static int sync_told(const struct aiocb *block, int error)
{
    if (error > 0 && error != EINPROGRESS && mm_active && block->aio_lio_opcode > LIO_NOP)
        mm_synced(-error);
    return error;
}

EXPORT int aio_error(const struct aiocb *block) { return sync_told(block, REAL(aio_error)(block)); }
EXPORT ssize_t aio_return(struct aiocb *block)
{
    sync_told(block, REAL(aio_error)(block));
    return REAL(aio_return)(block);
}

EXPORT int lio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *event)
{
    for (int i = 0; i < count; i++) {
        long r = list[i] && list[i]->aio_lio_opcode != LIO_NOP
               ? may_use(list[i]->aio_fildes, list[i]->aio_lio_opcode == LIO_WRITE) : 0;
        if (r < 0)
            return refused(r);
    }
    return REAL(lio_listio)(mode, list, count, event);
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_engine(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
