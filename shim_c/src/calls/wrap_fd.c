/* wrap_fd.c - descriptors: opening, closing, duplicating. */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <dirent.h>
#include <elf.h>
#include <limits.h>
#include <linux/openat2.h>

#define CREATED 1

/* O_TRUNC of a descriptor that cannot write: by the kernel where no index knows the file, else by one of ours, which
 * stays open as long as the program's: to close it would drop the process's locks. */
static long truncate_by_name(int fd, uint32_t slot)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    if (!slot)
        return sys(SYS_truncate, path, 0);
    int home = mm_home_writer(slot, fd);
    long opened = home < 0 ? home : sys(SYS_fcntl, home, F_GETFL);
    if (opened < 0)
        return opened;
    /* it may be written, and could not be opened for it: a running program */
    return (opened & O_ACCMODE) == O_RDWR ? mm_truncate(slot, home, 0) : -ETXTBSY;
}

#define OPEN_AGAIN 1000                /* no errno */

/* Take note of a new descriptor; if there is no room for the note, the call fails as on a full disk. */
static inline __attribute__((always_inline)) int noted_by(int fd, int flags, mode_t mode, int created, const char *path, int dir, const char *given)
{
    if (fd < 0)
        return fd;
    int saved = errno;
    enter();
    long e = mm_opened(fd, flags, mode, created, path);
    if (e == 0 && !created && mm_too_late(fd, dir, given))
        e = -OPEN_AGAIN;
    if (e == 0 && (flags & O_TRUNC) && !created && mm_has_lapsed())
        e = -ESRCH;
    if (e == 0 && (flags & O_TRUNC) && !created) {
        uint32_t slot = pif_of(fd);
        int access = flags & O_ACCMODE;
        if (slot && mm_start_fresh(slot, fd, flags))
            e = 0;
        else if (access == O_RDONLY || access == O_ACCMODE)
            e = truncate_by_name(fd, slot);
        else
            e = slot ? mm_truncate(slot, fd, 0) : mm_empty_unfollowed(fd, flags);
        if (e == -EINVAL)              /* a FIFO or a terminal: O_TRUNC means nothing there */
            e = 0;
    }
    if (e < 0) {
        mm_closing(fd);
        sys_close(fd);
        if (created && path)
            sys(SYS_unlinkat, AT_FDCWD, path, 0);
        leave();
        return fail(e);
    }
    leave();
    errno = saved;
    return fd;
}

static int noted(int fd, int flags, mode_t mode, int created, const char *path)
{
    return noted_by(fd, flags, mode, created, path, AT_FDCWD, NULL);
}

/* By openat2 where the program calls that (how: what it asks for besides), which wants no mode where nothing is made. */
static long by_kernel(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    if (!how)
        return sys(SYS_openat, dir, path, flags, mode);
    struct open_how same = { .flags = (how->flags & ~(uint64_t)UINT32_MAX) | (uint32_t)flags, .resolve = how->resolve,
                             .mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0 };
    return sys(SYS_openat2, dir, path, &same, sizeof same);
}

/* Inside a call, where no thread may be cancelled. */
static int opened(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    return (int)result(by_kernel(dir, path, flags, mode, how));
}

/* Where it may be cancelled; openat2 has no function in the C library, and a raw call is no such place. */
static int opened_by_libc(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    return how ? opened(dir, path, flags, mode, how) : REAL(openat)(dir, path, flags, mode);
}

/* O_CREAT through a dangling link: the file appears where it leads. */
static int create_through(int dir, const char *path, char *name, int flags, mode_t mode, const struct open_how *how)
{
    long e = mm_touch_where_it_leads(name, dir, how && how->resolve & RESOLVE_IN_ROOT ? how->resolve : 0);
    int fd = e < 0 ? -1 : opened(dir, path, flags & ~O_TRUNC, mode, how);
    if (mm_resource_error((int)e) || e == -ENOSPC)
        return fail(e);
    if (e < 0)                         /* no dangling link any more, or it leads nowhere: as the kernel says */
        fd = opened(dir, path, flags & ~O_TRUNC, mode, how);
    struct stat st;                    /* empty: nobody has lost anything if another made it meanwhile */
    int created = e == 0 && fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    return noted_by(fd, flags, mode, created ? CREATED : 0, created ? name : NULL, dir, path);
}

/* O_CREAT where no file was: the path is noted as absent before it appears.  Inside a call, and with the name held: no index
 * may know the file, and nobody take its name, before it is known as one that this run made. */
static int create_new(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    SCRATCH(name);
    struct mm_names names;
    int held;
    MM_ASSERT(mm_depth > 0);
    for (;; mm_let_names_go(&names)) {
        uint32_t ways = mm_ways();
        int c = how && (how->resolve & RESOLVE_IN_ROOT) ? mm_canonical_in_root(dir, path, how->resolve, name, 4096)
              : mm_canonical(dir, path, name, 4096);
        if (mm_resource_error(c))
            return fail(c);
        held = c == 0;
        if (!held)
            break;
        MM_STOP("names.found");
        mm_hold_names(&names, name, NULL);
        if (LIKELY(ways == mm_ways()))
            break;
    }
    long e = mm_has_lapsed() ? -ESRCH : held && mm_tracked(name) ? mm_touch_new(name) : 0;
    int fd = e < 0 ? fail(e) : opened(dir, path, flags | O_EXCL, mode, how);
    int exists = fd < 0 && errno == EEXIST && !(flags & O_EXCL);
    int r = exists ? -1 : noted(fd, flags, mode, CREATED, held ? name : NULL);
    if (held) {
        int saved = errno;
        mm_let_names_go(&names);
        errno = saved;
    }
    if (!exists)
        return r;
    /* another was first, or a dangling link leads to the new file */
    return held ? create_through(dir, path, name, flags, mode, how)
                : noted_by(opened(dir, path, flags & ~O_TRUNC, mode, how), flags, mode, 0, NULL, dir, path);
}

/* Without O_TRUNC: what is opened may be a file by then, whose bytes an index needs. */
static int opened_as_asked(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    return noted_by(opened_by_libc(dir, path, flags & ~O_TRUNC, mode, how), flags, mode, 0, NULL, dir, path);
}

static inline __attribute__((always_inline)) int open_once(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    int follow = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    struct stat st;
    if ((flags & O_PATH) && active())
        mm_inodes_stay(dir, path, follow);
    if (!(writes ? following() : active()) || (flags & O_PATH))
        return opened_by_libc(dir, path, flags, mode, how);
    pthread_testcancel();
    if ((flags & (O_ACCMODE | O_TRUNC | O_DIRECTORY)) == (O_RDONLY | O_TRUNC)) {   /* Linux truncates */
        if (sys(SYS_newfstatat, dir, path, &st, follow) == 0
            && (!S_ISREG(st.st_mode) || sys(SYS_faccessat2, dir, path, W_OK, AT_EACCESS | follow) < 0))
            return opened_by_libc(dir, path, flags, mode, how);   /* it means nothing there; or the kernel refuses it */
    }
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        enter();
        int fd = noted(opened(dir, path, flags, mode, how), flags, mode, CREATED, NULL);
        leave();
        return fd;
    }
    if (!(flags & O_CREAT))
        return noted_by(opened_by_libc(dir, path, flags & ~O_TRUNC, mode, how), flags, mode, 0, NULL, dir, path);
    if ((flags & O_DIRECTORY) || !mm_names_a_file(path))
        return opened_by_libc(dir, path, flags, mode, how);
    if (!(flags & O_EXCL)) {
        int saved = errno, fd = how ? 0 : (int)sys(SYS_newfstatat, dir, path, &st, follow);
        int ours = !how && fd == 0 && st.st_uid == sys(SYS_geteuid);
        MM_STOP("open.looked");
        if (!how && fd == 0 && (S_ISDIR(st.st_mode) || (!ours && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))))
            return opened_as_asked(dir, path, flags, mode, how);    /* a folder is EISDIR; fs.protected_fifos */
        /* Somebody else's file in a sticky folder: the kernel may refuse (fs.protected_regular) who says O_CREAT. */
        if (how || ours || (fd < 0 && fd != -ENOENT)) {
            fd = opened_by_libc(dir, path, flags & ~(O_CREAT | O_TRUNC), mode, how);
            if (fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && S_ISDIR(st.st_mode)) {
                sys_close(fd);
                return opened_as_asked(dir, path, flags, mode, how);
            }
            if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR))    /* a link to "file/" is EISDIR to who makes one */
                return noted_by(fd, flags, mode, 0, NULL, dir, path);
            errno = saved;
        }
    }
    enter();
    int fd = create_new(dir, path, flags, mode, how);
    leave();
    return fd;
}

static int open_any(int dir, const char *path, int flags, mode_t mode, const struct open_how *how)
{
    int saved = errno, fd, asked = 0;
    long found = UNLIKELY(mm_memory_head) && mm_have_come_back() && !how ? mm_in_proc(path, flags, NULL) : MM_NOT_IN_PROC;
    if (UNLIKELY(found != MM_NOT_IN_PROC))
        return (int)result(found);
    do {
        errno = saved;
        fd = open_once(dir, path, flags, mode, how);
    } while (UNLIKELY(fd < 0) && (errno == OPEN_AGAIN || mm_made_room_at(dir, path, !(flags & O_NOFOLLOW), &asked)));
    return fd;
}

static mode_t mode_argument(int flags, va_list list)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_argument(flags, list);
    va_end(list);
    return open_any(AT_FDCWD, path, flags, mode, NULL);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_argument(flags, list);
    va_end(list);
    return open_any(dir, path, flags, mode, NULL);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, NULL);
}

/* openat2(2), called raw.  What its flags leave open is the same as openat's; what it refuses, the kernel says. */
int mm_open_resolved(int dir, const char *path, const struct open_how *how, size_t size)
{
    struct open_how asked;
    int whole = size == sizeof asked && mm_usable(how, size, 0) == size;
    if (whole)
        asked = *how;
    if (!whole || asked.mode > 07777 || (asked.mode && !(asked.flags & (O_CREAT | __O_TMPFILE)))
        || (asked.resolve & RESOLVE_CACHED && asked.flags & (O_CREAT | O_TRUNC | __O_TMPFILE)))    /* opened without them it would go on */
        return (int)REAL(syscall)(SYS_openat2, dir, path, how, size);
    return open_any(dir, path, (int)asked.flags, (mode_t)asked.mode, &asked);
}

EXPORT int __open_2(const char *path, int flags) { return open_any(AT_FDCWD, path, flags, 0, NULL); }

EXPORT int __openat_2(int dir, const char *path, int flags) { return open_any(dir, path, flags, 0, NULL); }

EXPORT int open_by_handle_at(int mount, struct file_handle *handle, int flags)
{
    int only_path = flags & O_PATH, fd = REAL(open_by_handle_at)(mount, handle, active() && !only_path ? flags & ~O_TRUNC : flags);
    if (fd < 0 || !active())
        return fd;
    if (mm_only_kept(fd)) {
        sys_close(fd);
        return fail(-ESTALE);
    }
    if (!only_path)
        return noted(fd, flags, 0, 0, NULL);
    mm_inodes_stay(fd, "", AT_EMPTY_PATH);
    return fd;
}

EXPORT int name_to_handle_at(int dir, const char *path, struct file_handle *handle, int *mount, int flags)
{
    int saved = errno;
    if (active())
        mm_inodes_stay(dir, path, flags & AT_EMPTY_PATH ?: flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return REAL(name_to_handle_at)(mm_theirs(dir), path, handle, mount, flags);
}

/* A shared library has been written: the dynamic loader will open it by calls that nobody sees, and find what is in place.
 * Where there is no room it finds what was there before, as it would without this. */
static void shown_to_the_loader(int fd)
{
    uint32_t slot = pif_of(fd);
    if (!slot || is_native(mm_pif_at(mm_area, slot)) || !writable(fd) || (mm_pif_at(mm_area, slot)->flags & MM_COPIED))
        return;
    Elf64_Ehdr head;
    if (mm_first_bytes(slot, fd, (char *)&head, sizeof head) == sizeof head && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0
        && head.e_type == ET_DYN)
        mm_settle(slot, fd);
}

EXPORT int close(int fd)
{
    if (LIKELY((unsigned)fd < MM_FDS && mm_fds[fd].fit)) {
        pthread_testcancel();
        enter_as(1);
        shown_to_the_loader(fd);
        long r = mm_close(fd);
        leave();
        return r < 0 ? fail(r) : 0;
    } else if (mm_is_ours(fd)) {
        return fail(-EBADF);
    }
    return REAL(close)(fd);
}

/* A folder that was opened by a call of the program's and read by fdopendir. */
EXPORT int closedir(DIR *folder)
{
    int fd = folder ? dirfd(folder) : -1;
    if ((unsigned)fd >= MM_FDS || !mm_fds[fd].fit)
        return REAL(closedir)(folder);
    enter();
    mm_closing(fd);
    int r = REAL(closedir)(folder);
    leave();
    return r;
}

/* Closes by number pass over our own descriptors. */
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    int apart = UNLIKELY(flags & CLOSE_RANGE_UNSHARE) && !(flags & ~(int)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC))
        && first <= last && active() && mm_descriptors_shared();
    if (apart)                         /* in a table of this thread's own; what we know is the others' */
        mm_other_world(CLONE_FILES);
    if (!active() || (flags & CLOSE_RANGE_CLOEXEC) || first > INT_MAX)   /* no descriptor is there */
        return REAL(close_range)(first, last, flags);
    if (first > last || (flags & ~CLOSE_RANGE_UNSHARE))
        return fail(-EINVAL);
    for (int fd = (int)first; !apart && fd <= mm_top_fd && (unsigned)fd <= last; fd++)
        if (mm_fds[fd].fit) {
            enter();
            if (flags)                 /* by the kernel, should a process without our memory share the table */
                mm_closing(fd);
            else
                mm_close(fd);
            leave();
        }
    unsigned from = first;
    for (;;) {
        unsigned ours = last;
        int found = 0;
        for (int fd = mm_next_own((int)from); fd >= 0 && (unsigned)fd <= last; fd = -1)
            ours = fd, found = 1;
        int r = !found ? REAL(close_range)(from, last, flags)
              : ours > from ? REAL(close_range)(from, ours - 1, flags) : 0;
        if (r < 0 || !found || ours == last)
            return r;
        from = ours + 1;
    }
}

EXPORT void closefrom(int first) { close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0); }

EXPORT int dup(int fd)
{
    if (!active() || (unsigned)fd >= MM_FDS || !mm_fds[fd].fit)
        return mm_is_ours(fd) ? fail(-EBADF) : REAL(dup)(fd);
    enter_as(1);                       /* a checkpoint sees both or one */
    int to = REAL(dup)(fd);
    if (to >= 0)
        mm_duplicated(fd, to);
    leave();
    return to;
}

static int has_fit(int fd) { return active() && (unsigned)fd < MM_FDS && mm_fds[fd].fit; }

static int onto(int fd, int to, int flags, int three)
{
    if (mm_is_ours(fd))
        return fail(-EBADF);
    int refused = active() && fd != to && sys(SYS_fcntl, fd, F_GETFD) >= 0 ? mm_move_own(to) : 0;
    if (UNLIKELY(refused))
        return fail(refused);
    int followed = active() && fd != to && (has_fit(fd) || has_fit(to)) && (unsigned)to < MM_FDS && !mm_stranger();
    struct mm_onto onto;
    if (followed)
        mm_onto_begin(&onto, fd, to);
    int r = three ? REAL(dup3)(fd, to, flags) : REAL(dup2)(fd, to);
    if (followed)
        mm_onto_end(&onto, r >= 0);
    return r;
}

EXPORT int dup2(int fd, int to) { return onto(fd, to, 0, 0); }

EXPORT int dup3(int fd, int to, int flags) { return onto(fd, to, flags, 1); }

static int is_lock(int command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK
        || command == F_OFD_SETLKW || command == F_OFD_GETLK;
}

/* A lock of a tracked file.  The kernel counts its place from its own position, and from the end in place, which may not be
 * the file's. */
static int lock(int fd, uint32_t slot, int command, struct flock *l)
{
    if (command == F_SETLK || command == F_SETLKW)
        mm_locking(slot, fd);
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct flock given;
    if (!l || mm_usable(l, sizeof *l, 2) < sizeof *l)
        return REAL(fcntl)(fd, command, l);
    given = *l;
    if (given.l_whence == SEEK_CUR && owned(fd))
        mm_give_position(fd);
    long size = given.l_whence == SEEK_END && !is_native(p) ? mm_size(p, fd) : -1;
    if (size < 0)
        return REAL(fcntl)(fd, command, l);
    /* before the beginning is wrong, as it would have been from the end */
    long wrong = __builtin_add_overflow(given.l_start, size, &given.l_start) ? -EOVERFLOW : given.l_start < 0 ? -EINVAL : 0;
    if (wrong)
        return fail(wrong);
    given.l_whence = SEEK_SET;
    int r = REAL(fcntl)(fd, command, &given);
    if (r == 0 && (command == F_GETLK || command == F_OFD_GETLK)) {
        if (given.l_type == F_UNLCK)
            l->l_type = F_UNLCK;
        else
            *l = given;
    }
    return r;
}

EXPORT int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    uint32_t slot;
    if (UNLIKELY(is_lock(command)) && (slot = pif_of(fd)))
        return lock(fd, slot, command, argument);
    if (UNLIKELY(command == F_SETLK || command == F_SETLKW) && has_fit(fd)) {   /* a file that is only read so far */
        uint32_t place = mm_locking_untracked(fd);
        int r = REAL(fcntl)(fd, command, argument);
        if (r < 0)
            mm_not_locked(place);
        return r;
    }
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && active() && (unsigned)fd < MM_FDS && mm_fds[fd].fit) {
        enter_as(1);                   /* a checkpoint sees both or one */
        int to = REAL(fcntl)(fd, command, argument);
        if (to >= 0)
            mm_duplicated(fd, to);
        leave();
        return to;
    }
    if (command == F_SETFL && has_fit(fd))
        return (int)result(mm_set_flags(fd, (int)(long)argument));
    if (UNLIKELY(command == F_NOTIFY) && active()) {
        __atomic_store_n(&mm_folders_told, 1, __ATOMIC_SEQ_CST);
        mm_inodes_watched(fd, "", AT_EMPTY_PATH);
    }
    int r = mm_is_ours(fd) ? fail(-EBADF) : mm_control(fd, command, argument);
    if (UNLIKELY(command == F_SETLEASE) && r < 0 && errno == EAGAIN && (slot = pif_of(fd))) {
        mm_hold_calls();               /* the kernel counts our own descriptor of the file among those who have it open */
        mm_give_up_reader(slot);
        r = REAL(fcntl)(fd, command, argument);
        mm_let_calls_go();
    }
    return r;
}

EXPORT int lockf(int fd, int command, off_t length)
{
    fd = mm_theirs(fd);
    uint32_t slot = pif_of(fd), place = 0;
    int untracked = !slot && has_fit(fd);
    if (slot) {
        mm_locking(slot, fd);
        mm_give_position(fd);
    } else if (untracked) {
        place = mm_locking_untracked(fd);
    }
    int r = REAL(lockf)(fd, command, length);
    if (r < 0 && untracked)
        mm_not_locked(place);
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_fd(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
#undef ALIAS_fd
