/* wrap_attributes.c - attributes of a path or a descriptor: mode, owner, times, extended ones. */
#include "calls/calls.h"

#include <linux/fs.h>

/* The name in the scope, into name, of a file that is reached by one outside of it: what is noted is the file's. */
static int tracked_name(const struct stat *st, char *name)
{
    uint32_t slot = S_ISREG(st->st_mode) && st->st_nlink > 1 ? mm_pif_find(mm_area, st->st_dev, st->st_ino, 0) : 0;
    if (!slot)
        return 0;
    struct stat there;
    snprintf(name, SCRATCH_BYTES, "%s", mm_path_at(mm_area, mm_pif_at(mm_area, slot)->path));
    return mm_tracked(name) && sys(SYS_newfstatat, AT_FDCWD, name, &there, AT_SYMLINK_NOFOLLOW) == 0
        && there.st_ino == st->st_ino && there.st_dev == st->st_dev;
}

static int is_empty(const char *path, int flags)
{
    return (flags & AT_EMPTY_PATH) && (!path || (mm_usable(path, 1, 2) && !*path));
}

/* With AT_EMPTY_PATH, of the descriptor; or of the folder that the process is in. */
static int is_open_file(int dir, const char *path, int flags) { return dir != AT_FDCWD && is_empty(path, flags); }

/* Attributes: of a path (through a link, or of the link itself, which no slash may follow), of a descriptor.  The name is held:
 * an O_TRUNC that goes on in a fresh file (replace_inode.c) gives that one the attributes that it found. */
static int begin_attributes(struct noted *n, int dir, const char *path, int flags)
{
    path = is_empty(path, flags) ? "." : path;
    int follows = !(flags & AT_SYMLINK_NOFOLLOW && mm_names_a_file(path));
    int r = mm_begin_noted(n, dir, path, follows ? MM_FOLLOWED : MM_THE_NAME);
    if (r == 0 && !n->name[0] && UNLIKELY(following())) {
        SCRATCH(inner);
        struct stat st;
        int known = sys(SYS_newfstatat, dir, path, &st, follows ? 0 : AT_SYMLINK_NOFOLLOW) == 0 && tracked_name(&st, inner);
        if (known) {
            mm_end_noted(n, 0);
            r = mm_begin_noted(n, AT_FDCWD, inner, MM_THE_NAME);
        }
    }
    return r;
}

/* The call begins on a file that the run made in this interval: no index knows its attributes, and each of its names was noted
 * when it came.  0: it is none, and nothing has begun. */
static uint32_t enter_made(int fd)
{
    uint32_t slot = following() && pif_of(fd) ? enter_file(fd) : 0;
    const struct mm_pif *p = slot ? mm_pif_at(mm_area, slot) : NULL;
    if (!slot || (p->created == mm_area->head->epoch && !(p->flags & MM_INDEXED)))
        return slot;
    leave();
    return 0;
}

/* A call on what a descriptor leads to. */
struct on_fd {
    int entered, named;
    struct mm_names names;             /* where it is named */
};

/* The name by which the kernel knows the file, held.  It may be renamed until then: so it is asked again. */
static void hold_own_name(int fd, char *name, struct on_fd *on)
{
    for (;; mm_let_names_go(&on->names)) {
        uint32_t ways = mm_ways();
        on->named = mm_path_of(fd, name, 4096) == 0 && mm_tracked(name);
        MM_STOP("attributes.named");
        if (!on->named)
            return;
        mm_hold_names(&on->names, name, NULL);
        if (LIKELY(ways == mm_ways()) && LIKELY(mm_leads_to(name, fd)))
            return;
    }
}

/* Where the descriptor's file is not one of those.  Its own name may be gone, and the file have others: a checkpoint then looks
 * at those that it knows.  Or it is the store's: a file without a name that a restore has opened again.  Its name is held: a
 * rename would come between what is noted and what changes.
 * 0: a call has begun, or the file is not tracked; -errno. */
static long enter_by_name(int fd, struct on_fd *on)
{
    SCRATCH(name);
    if (!following() || (!pif_of(fd) && !(mm_path_of(fd, name, 4096) == 0 && mm_tracked(name))))
        return 0;
    enter();
    on->entered = 1;
    hold_own_name(fd, name, on);
    uint32_t slot = on->named ? 0 : pif_of(fd);
    if (slot)
        touched(slot, mm_pif_at(mm_area, slot));
    return on->named ? mm_touch(name) : 0;
}

static inline int end_on_fd(const struct on_fd *on, int r)
{
    if (on->named) {
        int saved = errno;
        struct mm_names names = on->names;
        mm_let_names_go(&names);
        errno = saved;
    }
    if (on->entered)
        leave();
    return r;
}

/* The same of a descriptor.  0: the call is made now, and end_on_fd gets what it answered.  -1 with errno: it is not. */
static int begin_on_fd(int fd, struct on_fd *on)
{
    uint32_t made = enter_made(fd);
    *on = (struct on_fd){ .entered = made != 0 };
    if (made)
        touched(made, mm_pif_at(mm_area, made));
    long e = made ? 0 : enter_by_name(fd, on);
    return e < 0 ? end_on_fd(on, (int)result(e)) : 0;
}

/* A call that sets a file's times, mode or owner, under the file's lock: whoever writes its bytes back in place (settle.c) puts
 * the time and the set-id bits there that the file had before, and would do so after the call. */
struct locked {
    struct mm_pif *p;                  /* NULL: of no tracked file */
    uint64_t mask;
};

static void lock_of_file(struct locked *t, uint32_t slot)
{
    *t = (struct locked){ .p = slot ? mm_pif_at(mm_area, slot) : NULL };
    if (t->p)
        t->mask = hold(t->p);
}

static uint32_t slot_of(int dir, const char *name, int flags)
{
    struct stat st;
    return following() && sys(SYS_newfstatat, dir, name, &st, flags) == 0
         ? mm_pif_there(mm_area, dir, name, flags, st.st_dev, st.st_ino) : 0;
}

static uint32_t slot_of_noted(const struct noted *n)
{
    return n->ino ? mm_pif_there(mm_area, AT_FDCWD, n->name, AT_SYMLINK_NOFOLLOW, n->dev, n->ino)
         : n->name[0] ? slot_of(AT_FDCWD, n->name, AT_SYMLINK_NOFOLLOW) : 0;
}

static int end_locked(const struct locked *t, int r)
{
    if (!t->p)
        return r;
    int saved = errno;
    release(t->p, t->mask);
    errno = saved;
    return r;
}

/* A time that the program set stands until it writes again. */
static int end_timed(const struct locked *t, int r)
{
    if (t->p && r == 0)
        t->p->mtime_ns = 0;
    return end_locked(t, r);
}

static int begin_locked(struct noted *n, struct locked *t, int dir, const char *path, int flags)
{
    int r = begin_attributes(n, dir, path, flags);
    if (r == 0)
        lock_of_file(t, slot_of_noted(n));
    return r;
}

static void lock_open_file(struct locked *t, int fd)
{
    uint32_t slot = following() ? pif_of(fd) : 0;
    lock_of_file(t, slot ? slot : slot_of(fd, "", AT_EMPTY_PATH));
}

static int begin_locked_fd(int fd, struct on_fd *on, struct locked *t)
{
    int r = begin_on_fd(fd, on);
    if (r == 0)
        lock_open_file(t, fd);
    return r;
}

/* The kernel takes set-id bits from a file that an ordinary user writes, but sees only what goes in place: with them, what is open
 * is written there, as if it had been opened so (mm_opened). */
static int gives_set_id(mode_t mode) { return UNLIKELY(mode & (S_ISUID | S_ISGID)) && following() && sys(SYS_geteuid) != 0; }

static int begin_mode(struct noted *n, struct locked *t, int dir, const char *path, int flags, mode_t mode)
{
    struct statx st;
    int r = begin_attributes(n, dir, path, flags);
    if (r == 0 && gives_set_id(mode) && n->name[0] && mm_look_at(n->name, &st) == 0 && S_ISREG(st.stx_mode)) {
        uint32_t slot = mm_pif_of(&st);
        if (slot && mm_pif_at(mm_area, slot)->refs)
            mm_home_by_name(slot, n->name, 0, MM_ENGINE);
    }
    if (r == 0)
        lock_of_file(t, slot_of_noted(n));
    return r;
}

static __attribute__((noinline)) void set_id_on_fd(int fd)
{
    if (pif_of(fd))
        mm_stay_home(pif_of(fd), fd, 0, MM_ENGINE);
}

static int begin_mode_on_fd(int fd, struct on_fd *on, mode_t mode)
{
    int r = begin_on_fd(fd, on);
    if (UNLIKELY(mode & (S_ISUID | S_ISGID)) && r == 0 && on->entered && gives_set_id(mode))
        set_id_on_fd(fd);
    return r;
}

static int mode_on_fd(int fd, mode_t mode, struct on_fd *on, struct locked *t)
{
    *t = (struct locked){ 0 };
    int r = begin_mode_on_fd(fd, on, mode);
    if (r == 0 && on->named)
        lock_open_file(t, fd);
    return r;
}

static __attribute__((noinline)) int fchmod_by_name(int fd, mode_t mode)
{
    struct on_fd on;
    struct locked t;
    return mode_on_fd(fd, mode, &on, &t) ? -1 : end_on_fd(&on, end_locked(&t, REAL(fchmod)(fd, mode)));
}

EXPORT int chmod(const char *path, mode_t mode)
{
    struct noted n;
    struct locked t;
    return begin_mode(&n, &t, AT_FDCWD, path, 0, mode) ? -1 : mm_end_noted(&n, end_locked(&t, REAL(chmod)(path, mode)));
}
EXPORT int lchmod(const char *path, mode_t mode)
{
    struct noted n;
    struct locked t;
    return begin_mode(&n, &t, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, mode) ? -1 : mm_end_noted(&n, end_locked(&t, REAL(lchmod)(path, mode)));
}
EXPORT int fchmod(int fd, mode_t mode)
{
    fd = mm_theirs(fd);
    uint32_t made = enter_made(fd);
    if (!made)
        return fchmod_by_name(fd, mode);
    touched(made, mm_pif_at(mm_area, made));
    if (UNLIKELY(mode & (S_ISUID | S_ISGID)) && gives_set_id(mode))
        set_id_on_fd(fd);
    int r = REAL(fchmod)(fd, mode);
    leave();
    return r;
}
EXPORT int fchmodat(int dir, const char *path, mode_t mode, int flags)
{
    struct on_fd on;
    struct locked t;
    if (is_open_file(dir, path, flags))            /* newer C libraries can */
        return mode_on_fd(dir, mode, &on, &t) ? -1 : end_on_fd(&on, end_locked(&t, REAL(fchmodat)(dir, path, mode, flags)));
    struct noted n;
    return begin_mode(&n, &t, dir, path, flags, mode) ? -1 : mm_end_noted(&n, end_locked(&t, REAL(fchmodat)(dir, path, mode, flags)));
}
EXPORT int chown(const char *path, uid_t uid, gid_t gid)
{
    struct noted n;
    struct locked t;
    return begin_locked(&n, &t, AT_FDCWD, path, 0) ? -1
         : mm_end_noted(&n, end_locked(&t, REAL(chown)(path, uid, gid)));
}
EXPORT int lchown(const char *path, uid_t uid, gid_t gid)
{
    struct noted n;
    struct locked t;
    return begin_locked(&n, &t, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) ? -1
         : mm_end_noted(&n, end_locked(&t, REAL(lchown)(path, uid, gid)));
}
EXPORT int fchown(int fd, uid_t uid, gid_t gid)
{
    fd = mm_theirs(fd);
    struct on_fd on;
    struct locked t;
    return begin_locked_fd(fd, &on, &t) ? -1 : end_on_fd(&on, end_locked(&t, REAL(fchown)(fd, uid, gid)));
}
EXPORT int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags)
{
    struct on_fd on;
    struct locked t;
    if (is_open_file(dir, path, flags))
        return begin_locked_fd(dir, &on, &t) ? -1
             : end_on_fd(&on, end_locked(&t, REAL(fchownat)(dir, path, uid, gid, flags)));
    struct noted n;
    return begin_locked(&n, &t, dir, path, flags) ? -1
         : mm_end_noted(&n, end_locked(&t, REAL(fchownat)(dir, path, uid, gid, flags)));
}

/* The C library reads what these are given by itself, and faults where it cannot.  A handler of the program may go on elsewhere
 * then, so nothing is held at that moment: the times are copied first, and where that is not possible the call, which will change
 * nothing, is the C library's. */
static int times_copied(void *to, const void *from, size_t size)
{
    if (from && mm_usable(from, size, 0) != size)
        return 0;
    if (from)
        memcpy(to, from, size);
    return 1;
}

EXPORT int utime(const char *path, const struct utimbuf *times)
{
    struct utimbuf copy;
    struct noted n;
    struct locked t;
    if (!times_copied(&copy, times, sizeof copy))
        return REAL(utime)(path, times);
    return begin_locked(&n, &t, AT_FDCWD, path, 0) ? -1
         : mm_end_noted(&n, end_timed(&t, REAL(utime)(path, times ? &copy : NULL)));
}
EXPORT int utimes(const char *path, const struct timeval times[2])
{
    struct timeval copy[2];
    struct noted n;
    struct locked t;
    if (!times_copied(copy, times, sizeof copy))
        return REAL(utimes)(path, times);
    return begin_locked(&n, &t, AT_FDCWD, path, 0) ? -1
         : mm_end_noted(&n, end_timed(&t, REAL(utimes)(path, times ? copy : NULL)));
}
EXPORT int lutimes(const char *path, const struct timeval times[2])
{
    struct timeval copy[2];
    struct noted n;
    struct locked t;
    if (!times_copied(copy, times, sizeof copy))
        return REAL(lutimes)(path, times);
    return begin_locked(&n, &t, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) ? -1
         : mm_end_noted(&n, end_timed(&t, REAL(lutimes)(path, times ? copy : NULL)));
}
EXPORT int futimes(int fd, const struct timeval times[2])
{
    fd = mm_theirs(fd);
    struct timeval copy[2];
    struct on_fd on;
    struct locked t;
    if (!times_copied(copy, times, sizeof copy))
        return REAL(futimes)(fd, times);
    return begin_locked_fd(fd, &on, &t) ? -1 : end_on_fd(&on, end_timed(&t, REAL(futimes)(fd, times ? copy : NULL)));
}
EXPORT int futimesat(int dir, const char *path, const struct timeval times[2])
{
    if (!path && dir != AT_FDCWD)      /* of the descriptor */
        return futimes(dir, times);
    struct timeval copy[2];
    struct noted n;
    struct locked t;
    if (!times_copied(copy, times, sizeof copy))
        return REAL(futimesat)(dir, path, times);
    return begin_locked(&n, &t, dir, path, 0) ? -1
         : mm_end_noted(&n, end_timed(&t, REAL(futimesat)(dir, path, times ? copy : NULL)));
}
/* The time of change stays what it is: what we know of it too. */
static int omitted(const struct timespec times[2])
{
    return times && mm_usable(times, 2 * sizeof *times, 0) == 2 * sizeof *times && times[1].tv_nsec == UTIME_OMIT;
}
EXPORT int utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    if (omitted(times))
        return REAL(utimensat)(dir, path, times, flags);
    struct on_fd on;
    struct locked t;
    if (!path || is_open_file(dir, path, flags))
        return begin_locked_fd(dir, &on, &t) ? -1 : end_on_fd(&on, end_timed(&t, REAL(utimensat)(dir, path, times, flags)));
    struct noted n;
    return begin_locked(&n, &t, dir, path, flags) ? -1 : mm_end_noted(&n, end_timed(&t, REAL(utimensat)(dir, path, times, flags)));
}
EXPORT int futimens(int fd, const struct timespec times[2])
{
    fd = mm_theirs(fd);
    if (omitted(times))
        return REAL(futimens)(fd, times);
    struct on_fd on;
    struct locked t;
    return begin_locked_fd(fd, &on, &t) ? -1 : end_on_fd(&on, end_timed(&t, REAL(futimens)(fd, times)));
}

EXPORT int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    struct noted n;
    return begin_attributes(&n, AT_FDCWD, path, 0) ? -1 : mm_end_noted(&n, REAL(setxattr)(path, name, value, size, flags));
}
EXPORT int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    struct noted n;
    return begin_attributes(&n, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) ? -1 : mm_end_noted(&n, REAL(lsetxattr)(path, name, value, size, flags));
}
EXPORT int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    fd = mm_theirs(fd);
    struct on_fd on;
    return begin_on_fd(fd, &on) ? -1 : end_on_fd(&on, REAL(fsetxattr)(fd, name, value, size, flags));
}
EXPORT int removexattr(const char *path, const char *name)
{
    struct noted n;
    return begin_attributes(&n, AT_FDCWD, path, 0) ? -1 : mm_end_noted(&n, REAL(removexattr)(path, name));
}
EXPORT int lremovexattr(const char *path, const char *name)
{
    struct noted n;
    return begin_attributes(&n, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) ? -1 : mm_end_noted(&n, REAL(lremovexattr)(path, name));
}
EXPORT int fremovexattr(int fd, const char *name)
{
    fd = mm_theirs(fd);
    struct on_fd on;
    return begin_on_fd(fd, &on) ? -1 : end_on_fd(&on, REAL(fremovexattr)(fd, name));
}

/* fchmodat2(2), setxattrat(2) and removexattrat(2): the C library has no function for them, or one that knows no empty path.
 * mode: what the file is given; 0. */
long mm_attributes_at(int flags, mode_t mode, long number, long a, long b, long c, long d, long e, long f)
{
    struct on_fd on;
    struct locked t;
    if (is_open_file((int)a, (const char *)b, flags))
        return mode_on_fd((int)a, mode, &on, &t) ? -1
             : end_on_fd(&on, end_locked(&t, (int)REAL(syscall)(number, a, b, c, d, e, f)));
    struct noted n;
    return begin_mode(&n, &t, (int)a, (const char *)b, flags, mode) ? -1
         : mm_end_noted(&n, end_locked(&t, (int)REAL(syscall)(number, a, b, c, d, e, f)));
}

/* file_setattr(2): of a path what FS_IOC_FSSETXATTR is of a descriptor. What shuts the file comes after its bytes (wrap_stat.c). */
void mm_before_flags(int dir, const char *path, int flags, const uint64_t *wanted)
{
    if (!following() || mm_usable(wanted, sizeof *wanted, 0) < sizeof *wanted
        || !(*wanted & (FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND)))
        return;
    enter();
    uint32_t slot = slot_of(mm_theirs(dir), path ?: "", flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH));
    if (slot)
        mm_home_by_name(slot, mm_path_at(mm_area, mm_pif_at(mm_area, slot)->path), 0, MM_ENGINE);
    leave();
}
