/* wrap_path.c - names and attributes. */
#include "calls/calls.h"

#include <stddef.h>
#include <sys/un.h>

#define PATH_ROOM 4096

static int fail(long error)
{
    errno = (int)-error;
    return -1;
}

/* One or two paths whose names a call gives or takes: held from before they are looked up for good. */
struct way {
    struct mm_names names;
    int entered;               /* between enter() and leave(), with the names held */
    int all;                   /* all of them */
    int again;                 /* hold all: the call changes where paths lead, or they lead nowhere yet */
    int follow;                /* the call follows a link that stands there */
};

static void end_way(struct way *way)
{
    int saved = errno;
    if (way->entered) {
        mm_let_names_go(&way->names);
        leave();
    }
    way->entered = 0;
    errno = saved;
}

/* One that is not tracked gets an empty name.  0, or why nobody can tell. */
static int lookup(const struct way *way, int dir, const char *path, char *name)
{
    int c = (way->follow ? mm_canonical_follow : mm_canonical)(dir, path, name, PATH_ROOM);
    if (c == 0 && !mm_tracked(name))
        name[0] = 0;
    return c;
}

/* Both names, or one (other NULL), looked up and held.  0, or -errno where nobody can tell what stands there: the call fails
 * with that.  Names that lead nowhere, or to what is not tracked, are empty.
 * Where a folder is missing, and some call of the run might just be making it, all names are held while the kernel says so. */
static int begin_way(struct way *way, int dir, const char *path, char *name, int other_dir, const char *other_path, char *other)
{
    int all = way->again;
    *way = (struct way){ .follow = way->follow };
    name[0] = 0;
    if (other)
        other[0] = 0;
    if (!following())
        return 0;
    for (;; all |= way->again) {
        uint32_t ways = mm_ways();
        if (all) {
            enter();
            mm_hold_all_names(&way->names);
            *way = (struct way){ .names = way->names, .entered = 1, .all = 1, .follow = way->follow };
        }
        int c = lookup(way, dir, path, name), d = other ? lookup(way, other_dir, other_path, other) : 0;
        int dark = mm_in_the_dark(c) ? c : mm_in_the_dark(d) ? d : 0;
        if (c != 0)
            name[0] = 0;
        if (d != 0)
            other[0] = 0;
        if (dark) {
            end_way(way);
            return dark;
        }
        if (all)
            return 0;
        way->again = c == -ENOENT || c == -ENOTDIR || d == -ENOENT || d == -ENOTDIR;
        if (way->again)
            continue;
        if (!name[0] && (!other || !other[0]))
            return 0;
        enter();
        mm_hold_names(&way->names, name[0] ? name : NULL, other && other[0] ? other : NULL);
        way->entered = 1;
        MM_STOP("names.held");
        if (LIKELY(ways == mm_ways()))
            return 0;
        end_way(way);
    }
}

/* The same for a call that gives one name, or changes what stands there: noted, called, and let go. */
#define NAMED(dir, path, call) NOTED(dir, path, 0, call)
#define NOTED(dir, path, follows, call) \
    ({ SCRATCH(name_); struct way way_ = { .follow = (follows) }; \
       long e_ = begin_way(&way_, dir, path, name_, 0, NULL, NULL); \
       if (e_ == 0 && name_[0]) e_ = mm_touch(name_); \
       int r_ = e_ < 0 ? fail(e_) : call; \
       end_way(&way_); \
       r_; })

static int take_away(int dir, const char *path, int flags)
{
    SCRATCH(name);
    struct way way = { 0 };
    struct mm_doomed doomed;
    if (flags & ~AT_REMOVEDIR)
        return REAL(unlinkat)(dir, path, flags);   /* which refuses them before it looks at the path */
    if (flags & AT_REMOVEDIR)
        return NAMED(dir, path, REAL(unlinkat)(dir, path, flags));
    for (;;) {
        doomed = (struct mm_doomed){ 0 };
        long e = begin_way(&way, dir, path, name, 0, NULL, NULL);
        if (e == 0 && name[0])
            e = mm_touch(name);
        if (e == 0 && name[0])
            e = mm_keep(name, &doomed);
        if (e < 0) {
            end_way(&way);
            return fail(e);
        }
        if (!S_ISLNK(doomed.mode) || way.all)
            break;
        end_way(&way);
        way.again = 1;
    }
    MM_STOP("unlink.kept");
    int r = REAL(unlinkat)(dir, path, flags);
    int saved = errno;
    if (r == 0)
        mm_gone(&doomed);
    else
        mm_spared(&doomed);
    if (S_ISLNK(doomed.mode))
        mm_way_changed();
    end_way(&way);
    errno = saved;
    return r;
}

EXPORT int unlinkat(int dir, const char *path, int flags) { return take_away(dir, path, flags); }
EXPORT int unlink(const char *path) { return take_away(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return take_away(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int remove(const char *path)
{
    struct stat st;
    if (!following() || !path || sys(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return REAL(remove)(path);
    return take_away(AT_FDCWD, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

static int within(const char *path, const char *folder) { return strcmp(path, folder) && mm_below(path, folder); }

static int is_way(long looked, const struct stat *st) { return looked == 0 && (S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode)); }

/* What the call replaces is kept, and folders that get other paths take along what is in them.  old and new are held. */
static long before_move(const char *old, const char *new, unsigned flags, const struct stat *a, const struct stat *b,
                        struct mm_doomed *doomed)
{
    long e = mm_tracked(old) ? mm_touch(old) : 0;
    if (e == 0 && mm_tracked(new))
        e = mm_touch(new);
    if (e == 0 && a && S_ISDIR(a->st_mode))
        e = mm_folder_moves(old, new);
    if (e == 0 && (flags & RENAME_EXCHANGE) && b && S_ISDIR(b->st_mode))
        e = mm_folder_moves(new, old);
    /* unless it is the same file */
    if (e == 0 && mm_tracked(new) && !(flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)) && a && b
        && (a->st_dev != b->st_dev || a->st_ino != b->st_ino))
        e = mm_keep(new, doomed);
    return e;
}

/* Both paths as they are, also where one of them is not tracked. */
static int both(int from_dir, const char *from, int to_dir, const char *to, char *old, char *new)
{
    return mm_canonical(from_dir, from, old, PATH_ROOM) == 0 && mm_canonical(to_dir, to, new, PATH_ROOM) == 0;
}

static int move(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    SCRATCH(old);
    SCRATCH(new);
    struct way way = { 0 };
    struct stat a, b;
    long here, there, e;
    int leads, followed;
    for (;;) {
        e = begin_way(&way, from_dir, from, old, to_dir, to, new);
        if (e < 0)
            return fail(e);
        /* the kernel refuses to put a folder into itself, or in place of one that it is in: the root, say, whose names are many */
        followed = way.entered && (old[0] || new[0]) && both(from_dir, from, to_dir, to, old, new)
                   && !within(old, new) && !within(new, old);
        if (!followed)
            break;
        here = sys(SYS_newfstatat, AT_FDCWD, old, &a, AT_SYMLINK_NOFOLLOW);
        there = sys(SYS_newfstatat, AT_FDCWD, new, &b, AT_SYMLINK_NOFOLLOW);
        leads = is_way(here, &a) || is_way(there, &b);
        if (!leads || way.all)
            break;
        end_way(&way);
        way.again = 1;
    }
    struct mm_doomed doomed = { 0 };
    if (followed && ((here < 0 && mm_in_the_dark((int)here)) || (there < 0 && mm_in_the_dark((int)there))))
        e = here < 0 ? here : there;
    else if (followed)
        e = before_move(old, new, flags, here == 0 ? &a : NULL, there == 0 ? &b : NULL, &doomed);
    MM_STOP("rename.kept");
    int r = e < 0 ? fail(e)
          : flags ? REAL(renameat2)(from_dir, from, to_dir, to, flags) : REAL(renameat)(from_dir, from, to_dir, to);
    int saved = errno;
    if (followed && r == 0) {
        int exchanged = (flags & RENAME_EXCHANGE) != 0;
        mm_gone(&doomed);
        if (mm_named(new) | (exchanged && mm_named(old)))
            mm_folder_moved(old, new, exchanged);
        if (leads)
            mm_way_changed();
    } else {
        mm_spared(&doomed);
    }
    end_way(&way);
    errno = saved;
    return r;
}

EXPORT int rename(const char *from, const char *to) { return move(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return move(from_dir, from, to_dir, to, 0);
}
EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return move(from_dir, from, to_dir, to, flags);
}

/* A file that lost its last name gets none again by its descriptor, though the store has one for it.  One that was
 * opened without a name (O_TMPFILE) may: the kernel calls it "#inode (deleted)". */
static int unlinked(const struct mm_pif *p)
{
    static const char mark[] = " (deleted)";
    if (!(p->flags & MM_NAMELESS))
        return 0;
    const char *path = mm_path_at(mm_area, p->path);
    size_t n = strlen(path);
    return n < sizeof mark || strcmp(path + n - (sizeof mark - 1), mark) != 0;
}

/* The file that gets a name by its descriptor, or by a path that leads to that: nobody gives or takes one of it until
 * mm_pif_let_names_go.  NULL: none that is followed. */
static struct mm_pif *hold_linked(int dir, const char *path, int flags, int *held)
{
    struct stat st;
    uint32_t slot;
    if (!mm_usable(path, 1, 2) || sys(SYS_newfstatat, dir, path, &st, flags & AT_EMPTY_PATH) < 0
        || !(slot = mm_pif_find(mm_area, st.st_dev, st.st_ino, 0)))
        return NULL;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    *held = mm_pif_hold_names(p);
    if ((p->flags & MM_USED) && p->dev == st.st_dev && p->ino == st.st_ino)
        return p;
    mm_pif_let_names_go(p, *held);
    return NULL;
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    SCRATCH(name);
    struct way way = { 0 };
    SCRATCH(old);
    int held = 0, by_descriptor = flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW) && following();
    if (by_descriptor)
        enter();
    long e = begin_way(&way, to_dir, to, name, from_dir, flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW) ? NULL : from,
                       flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW) ? NULL : old);
    if (flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW))
        old[0] = 0;
    if (e == 0 && (flags & AT_SYMLINK_FOLLOW) && name[0]
        && (mm_canonical_follow(from_dir, from, old, PATH_ROOM) != 0 || !mm_tracked(old)))
        old[0] = 0;
    /* the old name too: by it the file is found when the new one goes */
    if (e == 0 && old[0] && way.entered)
        mm_touch(old);
    if (e == 0 && name[0])
        e = mm_touch(name);
    struct mm_pif *p = e == 0 && by_descriptor ? hold_linked(from_dir, from, flags, &held) : NULL;
    if (p && unlinked(p)) {
        /* what the kernel says of the new name comes first: a link from another file system gets no further than that */
        e = sys(SYS_linkat, AT_FDCWD, "/proc/self/exe", to_dir, to, 0);
        e = e == -EXDEV ? -ENOENT : e;
    }
    int r = e < 0 ? fail(e) : REAL(linkat)(from_dir, from, to_dir, to, flags);
    if (r == 0 && name[0]) {
        int saved = errno;
        mm_named(name);
        errno = saved;
    }
    if (p)
        mm_pif_let_names_go(p, held);
    end_way(&way);
    if (by_descriptor) {
        int saved = errno;
        leave();
        errno = saved;
    }
    return r;
}
EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int symlinkat(const char *target, int dir, const char *path)
{
    return NAMED(dir, path, REAL(symlinkat)(target, dir, path));
}
EXPORT int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    return NAMED(dir, path, REAL(mkdirat)(dir, path, mode));
}
EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int mknodat(int dir, const char *path, mode_t mode, dev_t device)
{
    return NAMED(dir, path, REAL(mknodat)(dir, path, mode, device));
}
EXPORT int mknod(const char *path, mode_t mode, dev_t device) { return mknodat(AT_FDCWD, path, mode, device); }
/* of programs linked before glibc 2.33 */
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
    return NAMED(AT_FDCWD, path, REAL(__xmknod)(version, path, mode, device));
}
EXPORT int __xmknodat(int version, int dir, const char *path, mode_t mode, dev_t *device)
{
    return NAMED(dir, path, REAL(__xmknodat)(version, dir, path, mode, device));
}
EXPORT int mkfifoat(int dir, const char *path, mode_t mode) { return mknodat(dir, path, mode | S_IFIFO, 0); }
EXPORT int mkfifo(const char *path, mode_t mode) { return mknodat(AT_FDCWD, path, mode | S_IFIFO, 0); }

/* A socket of the file system gets a name like any other; a zero byte ends it only where there is room (unix(7)). */
EXPORT int bind(int socket, __CONST_SOCKADDR_ARG address, socklen_t length)
{
    const struct sockaddr_un *unix_socket = address.__sockaddr_un__;
    const size_t before = offsetof(struct sockaddr_un, sun_path);
    char path[sizeof unix_socket->sun_path + 1] = "";
    if (following() && length > before && length <= sizeof *unix_socket && mm_usable(unix_socket, length, 0) == length
        && unix_socket->sun_family == AF_UNIX)
        memcpy(path, unix_socket->sun_path, length - before);
    if (!path[0])
        return REAL(bind)(socket, address, length);
    return NAMED(AT_FDCWD, path, REAL(bind)(socket, address, length));
}

/* Attributes: of a path (through a link, or of the link itself, which no slash may follow), of a descriptor.  The name is held:
 * an O_TRUNC that goes on in a fresh file (fresh.c) gives that one the attributes that it found. */
#define AT_PATH(dir, path, flags, call) \
    NOTED(dir, path, !((flags) & AT_SYMLINK_NOFOLLOW && mm_names_a_file(path)), call)
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

/* The descriptor's own name may be gone, and the file have others: a checkpoint then looks at those that it knows.
 * Or it is the store's: a file without a name that a restore has opened again. */
#define AT_FD(fd, call) \
    ({ uint32_t made_ = enter_made(fd); int done_; \
       if (made_) { touched(made_, mm_pif_at(mm_area, made_)); done_ = call; leave(); } else { done_ = BY_NAME(fd, call); } \
       done_; })
#define BY_NAME(fd, call) \
    ({ SCRATCH(name_); int r_, c_ = following() ? mm_path_of(fd, name_, 4096) : -ENOENT; \
       int untracked_ = c_ != 0 || !mm_tracked(name_); \
       uint32_t slot_ = following() && untracked_ ? pif_of(fd) : 0; \
       if (!slot_ && untracked_) { r_ = call; } else { \
           enter(); \
           slot_ = untracked_ ? pif_of(fd) : 0; \
           long e_ = untracked_ ? 0 : mm_touch(name_); \
           if (slot_) \
               touched(slot_, mm_pif_at(mm_area, slot_)); \
           r_ = e_ < 0 ? fail(e_) : call; \
           leave(); \
       } r_; })

EXPORT int chmod(const char *path, mode_t mode) { return AT_PATH(AT_FDCWD, path, 0, REAL(chmod)(path, mode)); }
EXPORT int lchmod(const char *path, mode_t mode)
{
    return AT_PATH(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lchmod)(path, mode));
}
EXPORT int fchmod(int fd, mode_t mode) { return AT_FD(fd, REAL(fchmod)(fd, mode)); }
EXPORT int fchmodat(int dir, const char *path, mode_t mode, int flags)
{
    return AT_PATH(dir, path, flags, REAL(fchmodat)(dir, path, mode, flags));
}
EXPORT int chown(const char *path, uid_t uid, gid_t gid)
{
    return AT_PATH(AT_FDCWD, path, 0, REAL(chown)(path, uid, gid));
}
EXPORT int lchown(const char *path, uid_t uid, gid_t gid)
{
    return AT_PATH(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lchown)(path, uid, gid));
}
EXPORT int fchown(int fd, uid_t uid, gid_t gid) { return AT_FD(fd, REAL(fchown)(fd, uid, gid)); }
EXPORT int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags)
{
    if ((flags & AT_EMPTY_PATH) && path && !*path)
        return AT_FD(dir, REAL(fchownat)(dir, path, uid, gid, flags));
    return AT_PATH(dir, path, flags, REAL(fchownat)(dir, path, uid, gid, flags));
}

/* A time that the program set stands until it writes again. */
static int timed(int r, int dir, const char *name, int flags)
{
    struct stat st;
    uint32_t slot;
    if (r == 0 && following() && sys(SYS_newfstatat, dir, name, &st, flags) == 0
        && (slot = mm_pif_find(mm_area, st.st_dev, st.st_ino, 0)))
        mm_pif_at(mm_area, slot)->mtime_ns = 0;
    return r;
}
#define TIMED(call) timed(call, AT_FDCWD, name_, AT_SYMLINK_NOFOLLOW)
static int timed_fd(int r, int fd)
{
    uint32_t slot = r == 0 && following() ? pif_of(fd) : 0;
    if (!slot)
        return timed(r, fd, "", AT_EMPTY_PATH);
    mm_pif_at(mm_area, slot)->mtime_ns = 0;
    return r;
}
#define TIMED_FD(fd, call) timed_fd(call, fd)

EXPORT int utime(const char *path, const struct utimbuf *times)
{
    return AT_PATH(AT_FDCWD, path, 0, TIMED(REAL(utime)(path, times)));
}
EXPORT int utimes(const char *path, const struct timeval times[2])
{
    return AT_PATH(AT_FDCWD, path, 0, TIMED(REAL(utimes)(path, times)));
}
EXPORT int lutimes(const char *path, const struct timeval times[2])
{
    return AT_PATH(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, TIMED(REAL(lutimes)(path, times)));
}
EXPORT int futimes(int fd, const struct timeval times[2]) { return AT_FD(fd, TIMED_FD(fd, REAL(futimes)(fd, times))); }
EXPORT int futimesat(int dir, const char *path, const struct timeval times[2])
{
    return AT_PATH(dir, path, 0, TIMED(REAL(futimesat)(dir, path, times)));
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
    if (!path || ((flags & AT_EMPTY_PATH) && mm_usable(path, 1, 2) && !*path))
        return AT_FD(dir, TIMED_FD(dir, REAL(utimensat)(dir, path, times, flags)));
    return AT_PATH(dir, path, flags, TIMED(REAL(utimensat)(dir, path, times, flags)));
}
EXPORT int futimens(int fd, const struct timespec times[2])
{
    return omitted(times) ? REAL(futimens)(fd, times) : AT_FD(fd, TIMED_FD(fd, REAL(futimens)(fd, times)));
}

EXPORT int setxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    return AT_PATH(AT_FDCWD, path, 0, REAL(setxattr)(path, name, value, size, flags));
}
EXPORT int lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags)
{
    return AT_PATH(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lsetxattr)(path, name, value, size, flags));
}
EXPORT int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
    return AT_FD(fd, REAL(fsetxattr)(fd, name, value, size, flags));
}
EXPORT int removexattr(const char *path, const char *name)
{
    return AT_PATH(AT_FDCWD, path, 0, REAL(removexattr)(path, name));
}
EXPORT int lremovexattr(const char *path, const char *name)
{
    return AT_PATH(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, REAL(lremovexattr)(path, name));
}
EXPORT int fremovexattr(int fd, const char *name) { return AT_FD(fd, REAL(fremovexattr)(fd, name)); }
