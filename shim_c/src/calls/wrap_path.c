/* wrap_path.c - names: given, taken and moved. */
#include "calls/calls.h"

#include <stddef.h>
#include <sys/un.h>

#define PATH_ROOM 4096

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

/* A path that leads nowhere, as another call of the run may change just now. */
static int may_lead_yet(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EACCES;
}

/* Both names, or one (other NULL), looked up and held.  0, or -errno where nobody can tell what stands there: the call fails
 * with that.  Names that lead nowhere, or to what is not tracked, are empty.
 * Where a path leads nowhere, all names are held while the kernel says so. */
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
        way->again = may_lead_yet(c) || may_lead_yet(d);
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

/* The name is held, and noted as it is.  0: the call is made now, and end_noted gets what it answered.  -1 with errno: it is not. */
int mm_begin_noted(struct noted *n, int dir, const char *path, int follows)
{
    n->way = (struct way){ .follow = follows };
    n->name = mm_scratch_take();
    long e = begin_way(&n->way, dir, path, n->name, 0, NULL, NULL);
    if (e == 0 && n->name[0])
        e = mm_touch(n->name);
    MM_STOP("noted.begun");
    if (LIKELY(e >= 0))
        return 0;
    errno = (int)-e;
    end_way(&n->way);
    mm_scratch_give(&n->name);
    return -1;
}

int mm_end_noted(struct noted *n, int r)
{
    end_way(&n->way);
    mm_scratch_give(&n->name);
    return r;
}

static int remove_name(int dir, const char *path, int flags)
{
    SCRATCH(name);
    struct way way = { 0 };
    struct mm_doomed doomed;
    if (flags & ~AT_REMOVEDIR)
        return REAL(unlinkat)(dir, path, flags);   /* which refuses them before it looks at the path */
    if (flags & AT_REMOVEDIR) {
        struct noted n;
        return mm_begin_noted(&n, dir, path, 0) ? -1 : mm_end_noted(&n, REAL(unlinkat)(dir, path, flags));
    }
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

EXPORT int unlinkat(int dir, const char *path, int flags) { return remove_name(dir, path, flags); }
EXPORT int unlink(const char *path) { return remove_name(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return remove_name(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int remove(const char *path)
{
    struct stat st;
    if (!following() || !path || sys(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return REAL(remove)(path);
    return remove_name(AT_FDCWD, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

static int inside_folder(const char *path, const char *folder) { return strcmp(path, folder) && mm_below(path, folder); }

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
                   && !inside_folder(old, new) && !inside_folder(new, old);
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
 * mm_pif_let_names_go.  NULL: none that is tracked. */
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
    struct noted n;
    return mm_begin_noted(&n, dir, path, 0) ? -1 : mm_end_noted(&n, REAL(symlinkat)(target, dir, path));
}
EXPORT int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    struct noted n;
    return mm_begin_noted(&n, dir, path, 0) ? -1 : mm_end_noted(&n, REAL(mkdirat)(dir, path, mode));
}
EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int mknodat(int dir, const char *path, mode_t mode, dev_t device)
{
    struct noted n;
    return mm_begin_noted(&n, dir, path, 0) ? -1 : mm_end_noted(&n, REAL(mknodat)(dir, path, mode, device));
}
EXPORT int mknod(const char *path, mode_t mode, dev_t device) { return mknodat(AT_FDCWD, path, mode, device); }
/* of programs linked before glibc 2.33 */
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
    struct noted n;
    return mm_begin_noted(&n, AT_FDCWD, path, 0) ? -1 : mm_end_noted(&n, REAL(__xmknod)(version, path, mode, device));
}
EXPORT int __xmknodat(int version, int dir, const char *path, mode_t mode, dev_t *device)
{
    struct noted n;
    return mm_begin_noted(&n, dir, path, 0) ? -1 : mm_end_noted(&n, REAL(__xmknodat)(version, dir, path, mode, device));
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
    struct noted n;
    return mm_begin_noted(&n, AT_FDCWD, path, 0) ? -1 : mm_end_noted(&n, REAL(bind)(socket, address, length));
}
