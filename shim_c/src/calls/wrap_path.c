/* wrap_path.c - names: given, taken and moved. */
#include "calls/calls.h"

#include <stddef.h>
#include <sys/un.h>

#define PATH_ROOM 4096

static int moved_away(long error) { return error < 0 ? fail(error) : 0; }

static int is_link(int dir, const char *path)
{
    struct stat st;
    return following() && sys(SYS_newfstatat, dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

static int remove_once(int dir, const char *path, int flags)
{
    SCRATCH(name);
    struct way way = { 0 };
    struct mm_doomed doomed;
    if (flags & ~AT_REMOVEDIR)
        return REAL(unlinkat)(dir, path, flags);   /* which refuses them before it looks at the path */
    if (!flags && !mm_names_a_file(path))
        return REAL(unlinkat)(dir, path, flags);   /* "file/", or a folder: nothing goes */
    if (flags & AT_REMOVEDIR) {
        struct noted n;
        if (mm_begin_noted(&n, dir, path, MM_THE_NAME))
            return -1;
        int r = REAL(unlinkat)(dir, path, flags);
        MM_STOP("rmdir.made");
        return mm_end_noted(&n, r);
    }
    for (;;) {
        doomed = (struct mm_doomed){ 0 };
        long e = mm_begin_way(&way, dir, path, name, 0, NULL, NULL);
        if (e == 0 && name[0]) {
            struct statx st;
            long looked = mm_look_at(name, &st);
            e = mm_touch_looked(name, looked, &st);
            if (e == 0)
                e = mm_keep(name, looked, &st, NULL, &doomed);
        } else if (e == 0 && is_link(dir, path) && mm_outer_place(dir, path)) {
            doomed.mode = S_IFLNK;
        }
        if (e < 0) {
            mm_end_way(&way);
            return fail(e);
        }
        if (!S_ISLNK(doomed.mode) || way.all)
            break;
        mm_end_way(&way);
        way.again = 1;
    }
    MM_STOP("unlink.kept");
    int r = doomed.moves ? moved_away(mm_take_away(&doomed, dir, path)) : REAL(unlinkat)(dir, path, flags);
    int saved = errno;
    MM_STOP("unlink.made");
    if (r == 0)
        mm_gone(&doomed);
    else
        mm_spared(&doomed);
    if (r == 0 && S_ISLNK(doomed.mode))
        mm_way_changed();
    mm_end_way(&way);
    errno = saved;
    return r;
}

static int remove_name(int dir, const char *path, int flags) { return MM_WITH_ROOM(dir, path, remove_once(dir, path, flags)); }
EXPORT int unlinkat(int dir, const char *path, int flags) { return remove_name(dir, path, flags); }
EXPORT int unlink(const char *path) { return remove_name(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return remove_name(AT_FDCWD, path, AT_REMOVEDIR); }

/* As the C library does it: who looked first what stands there would find another thing at the call. */
EXPORT int remove(const char *path)
{
    int r = remove_name(AT_FDCWD, path, 0);
    return r < 0 && errno == EISDIR ? remove_name(AT_FDCWD, path, AT_REMOVEDIR) : r;
}

static int inside_folder(const char *path, const char *folder) { return strcmp(path, folder) && mm_below(path, folder); }

static int is_way(long looked, const struct statx *st) { return looked == 0 && (S_ISDIR(st->stx_mode) || S_ISLNK(st->stx_mode)); }

static int is_folder(const struct statx *st) { return st && S_ISDIR(st->stx_mode); }

static uint64_t dev_of(const struct statx *st) { return sys_dev(st->stx_dev_major, st->stx_dev_minor); }

static int one_file(const struct statx *a, const struct statx *b) { return dev_of(a) == dev_of(b) && a->stx_ino == b->stx_ino; }

/* What a rename is about. here, there: what the looks at old and new answered; a, b: what stands there, or NULL. */
struct moving {
    const char *old, *new;
    unsigned flags;
    int files, names;          /* both are written as a file's name is; as one that there can be */
    long here, there;
    struct statx at_old, at_new;
    const struct statx *a, *b;
    int from_in, to_in;        /* in the scope */
};

/* Does the kernel refuse, for the paths are of different mounts?  It says so before it finds that nothing can be renamed to a dot. */
static int of_two_mounts(const struct moving *m)
{
    SCRATCH(dot);
    strcpy(dot, m->new);
    strcpy(strrchr(dot, '/') + 1, ".");
    return sys(SYS_renameat, AT_FDCWD, m->old, AT_FDCWD, dot) == -EXDEV;
}

/* Does a file leave the scope?  Not where the kernel says at once that it stays. */
static int leaves_scope(const struct moving *m)
{
    if (!m->a || (m->b && one_file(m->a, m->b)) || (m->flags & RENAME_NOREPLACE && m->b))
        return 0;
    return (m->from_in && !m->to_in) || (m->to_in && !m->from_in && m->flags & RENAME_EXCHANGE && m->b);
}

/* Before what is in a folder, or leaves the scope, is noted and saved, which takes room and moves ctimes: would the kernel refuse?
 * 0 or -errno. */
static long is_refused(const struct moving *m)
{
    if (of_two_mounts(m))
        return -EXDEV;
    if (!m->files)
        return 0;                      /* a slash or a dot at its end, which the kernel looks at first */
    if (m->b ? m->flags & RENAME_NOREPLACE : m->flags & RENAME_EXCHANGE)
        return m->b ? -EEXIST : -ENOENT;
    return mm_may_go(m->old, m->a) ?: mm_may_go(m->new, m->b);
}

/* What leaves the scope has been seen to, what the call replaces is kept, and folders that get other paths take along what is in
 * them.  old and new are held. */
static long before_move(const struct moving *m, struct mm_doomed *doomed)
{
    int exchanged = (m->flags & RENAME_EXCHANGE) != 0, same = m->a && m->b && one_file(m->a, m->b);
    if (!m->names)
        return 0;                      /* the kernel refuses */
    int goes = is_folder(m->a) && !same, comes = m->a && exchanged && is_folder(m->b) && !same, leaves = leaves_scope(m);
    int copied = !m->flags && m->a && m->b && dev_of(m->a) != dev_of(m->b);        /* if it were kept: on one mount it is not */
    long e = goes || comes || leaves ? is_refused(m) : copied && of_two_mounts(m) ? -EXDEV : 0;
    if (e == 0 && m->from_in)
        e = mm_touch_looked(m->old, m->here, &m->at_old);
    if (e == 0 && m->to_in)
        e = mm_touch_looked(m->new, m->there, &m->at_new);
    if (e == 0 && m->to_in && m->a && !m->b)
        e = mm_room_for_name(m->new);
    if (e == 0 && goes)
        e = mm_folder_moves(m->old, m->new);
    if (e == 0 && comes)
        e = mm_folder_moves(m->new, m->old);
    if (e == 0 && leaves)
        e = mm_leave_scope(m->from_in ? m->old : m->new);
    if (e == 0 && m->to_in && !(m->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)) && m->a && m->b && !same
        && !S_ISDIR(m->a->stx_mode) && m->files) {     /* the kernel refuses the others: the file's ctime stays */
        e = mm_keep(m->new, m->there, &m->at_new, m->old, doomed);
        if ((e == -EACCES || e == -EPERM || e == -EROFS) && of_two_mounts(m))
            e = -EXDEV;
    }
    return e;
}

/* What is at `path` now, as st had it, came over from a place that was in the scope (was_in), or not. */
static void moved_to(const char *path, const struct statx *st, int is_in, int was_in)
{
    if (is_in && was_in && st && S_ISREG(st->stx_mode))
        mm_file_named(path, dev_of(st), st->stx_ino);
    else if (is_in && was_in)
        return;
    else if (is_in)
        mm_arrived(path);
    else if (was_in)
        mm_left_scope(path);
}

static void after_move(const struct moving *m)
{
    int exchanged = (m->flags & RENAME_EXCHANGE) != 0;
    if (m->a && m->b && one_file(m->a, m->b))
        return;                        /* nothing has moved */
    moved_to(m->new, m->a, m->to_in, m->from_in);
    if (exchanged)
        moved_to(m->old, m->b, m->from_in, m->to_in);
    if (is_folder(m->a) || (exchanged && is_folder(m->b)))
        mm_folder_moved(m->old, m->new, exchanged);
}

/* Both paths as they are, also where one of them is not tracked: mm_begin_way left that empty.  0 or -errno. */
static int both(int from_dir, const char *from, int to_dir, const char *to, char *old, char *new)
{
    int e = old[0] ? 0 : mm_canonical(from_dir, from, old, PATH_ROOM);
    return e || new[0] ? e : mm_canonical(to_dir, to, new, PATH_ROOM);
}

static int is_too_long(long error) { return error == -ENAMETOOLONG || error == -ERANGE; }

/* One of the two has a path that no call takes, so that nobody could say what happens to the other: it is copied, as between mounts. */
static long too_far(int from_dir, const char *from)
{
    struct stat st;
    long r = sys(SYS_newfstatat, from_dir, from, &st, AT_SYMLINK_NOFOLLOW);
    mm_said_too_long();
    return r < 0 ? r : -EXDEV;
}

static int move_once(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    SCRATCH(old);
    SCRATCH(new);
    struct way way = { .folders = 1 };
    struct moving moving = { .old = old, .new = new, .flags = flags, .files = mm_names_a_file(from) && mm_names_a_file(to),
                             .names = mm_has_last_name(from) && mm_has_last_name(to) };
    long e;
    int leads, followed;
    for (;; mm_end_way(&way), way.again = 1) {
        e = mm_begin_way(&way, from_dir, from, old, to_dir, to, new);
        if (e < 0)
            return fail(e);
        followed = way.entered && (old[0] || new[0]);
        long told = followed ? both(from_dir, from, to_dir, to, old, new) : 0;
        e = mm_resource_error((int)told) ? told : is_too_long(told) ? too_far(from_dir, from) : 0;
        /* the kernel refuses to put a folder into itself, or in place of one that it is in: the root, say, whose names are many */
        followed = followed && told == 0 && !inside_folder(old, new) && !inside_folder(new, old);
        if (followed) {
            moving.here = mm_look_at(old, &moving.at_old);
            moving.there = mm_look_at(new, &moving.at_new);
        }
        leads = followed ? is_way(moving.here, &moving.at_old) || is_way(moving.there, &moving.at_new)
              : told == 0 && (mm_outer_way(from_dir, from) || mm_outer_way(to_dir, to));
        if (leads && !way.all && mm_apart(from_dir, from, to_dir, to))
            leads = 0;
        if (!leads || way.all)
            break;
    }
    struct mm_doomed doomed = { 0 };
    if (followed && mm_resource_error((int)moving.here))
        e = moving.here;
    else if (followed && mm_resource_error((int)moving.there))
        e = moving.there;
    else if (followed) {
        moving.a = moving.here == 0 ? &moving.at_old : NULL, moving.b = moving.there == 0 ? &moving.at_new : NULL;
        moving.from_in = mm_tracked(old), moving.to_in = mm_tracked(new);
        e = before_move(&moving, &doomed);
    }
    MM_STOP("rename.kept");
    int r = e < 0 ? fail(e)
          : doomed.moves ? moved_away(mm_take_replaced(&doomed, &moving.at_old, from_dir, from, to_dir, to))
          : flags ? REAL(renameat2)(from_dir, from, to_dir, to, flags) : REAL(renameat)(from_dir, from, to_dir, to);
    int saved = errno;
    if (followed && r == 0) {
        mm_gone(&doomed);
        after_move(&moving);
    } else {
        mm_spared(&doomed);
    }
    if (leads && r == 0)
        mm_way_changed();
    mm_end_way(&way);
    errno = saved;
    return r;
}

static int move(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return MM_WITH_ROOM(to_dir, to, move_once(from_dir, from, to_dir, to, flags));
}
EXPORT int rename(const char *from, const char *to) { return move(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return move(from_dir, from, to_dir, to, 0);
}
EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    const unsigned alone = RENAME_NOREPLACE | RENAME_WHITEOUT;
    if ((flags & ~(alone | RENAME_EXCHANGE)) || ((flags & RENAME_EXCHANGE) && (flags & alone)))
        return REAL(renameat2)(from_dir, from, to_dir, to, flags);     /* which refuses them before it looks at the paths */
    return move(from_dir, from, to_dir, to, flags);
}

/* A file that lost its last name gets none again by its descriptor, though the store has one for it.  One that was
 * opened without a name (O_TMPFILE) may: the kernel calls it "#inode (deleted)".  Of one that left the scope the kernel knows. */
static int unlinked(const struct mm_pif *p)
{
    static const char mark[] = " (deleted)";
    if (!(p->flags & MM_NAMELESS) || p->flags & MM_LEFT)
        return 0;
    const char *path = mm_path_at(mm_area, p->path);
    size_t n = strlen(path);
    return n < sizeof mark || strcmp(path + n - (sizeof mark - 1), mark) != 0;
}

/* The file that a link is made of: what is known of it before the kernel makes the link. */
struct linked {
    struct mm_pif *p;          /* named by a descriptor, and its names_lock may be held; NULL */
    uint32_t slot;
    int held;
    int leaves;                /* it has no name, and gets one out of the scope */
};

/* The file that gets a name by its descriptor, or by a path that leads to that: nobody gives or takes one of it until
 * mm_pif_let_names_go.  NULL: none that is tracked. */
static struct mm_pif *hold_linked(int dir, const char *path, int flags, struct linked *l)
{
    struct stat st;
    uint32_t slot;
    if (!mm_usable(path, 1, 2) || sys(SYS_newfstatat, dir, path, &st, flags & AT_EMPTY_PATH) < 0 || !S_ISREG(st.st_mode)
        || !(slot = mm_pif_there(mm_area, dir, path, flags & AT_EMPTY_PATH, st.st_dev, st.st_ino)))
        return NULL;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    l->slot = slot;
    l->held = mm_pif_hold_names(p);
    if ((p->flags & MM_USED) && p->dev == st.st_dev && p->ino == st.st_ino)
        return p;
    mm_pif_let_names_go(p, l->held);
    return NULL;
}

/* In the scope by the name that it has already?  old: that one, empty where it is not tracked, or not known. */
static int linked_in_scope(int dir, const char *path, int flags, const char *old)
{
    SCRATCH(name);
    if (old[0] || !(flags & AT_EMPTY_PATH) || !mm_usable(path, 1, 2) || *path)
        return old[0] != 0;
    snprintf(name, 4096, "/proc/thread-self/fd/%d", dir);
    long n = sys_readlink(name, name + 64, 4000);
    if (n <= 0)
        return 0;
    name[64 + n] = 0;
    return mm_tracked(name + 64);
}

/* A link out of the scope: who opens the file by that is to find its PIF; one without a name leaves.  0 or -errno. */
static long before_link_out(int dir, const char *path, const char *old, struct linked *l)
{
    SCRATCH(by);
    struct statx st;
    long e = old[0] ? mm_look_at(old, &st) : -ENOENT;
    if (e == 0 && S_ISREG(st.stx_mode))
        mm_pif_for(&st, old, 0, &e);
    else if (e == -ENOENT || e == -ENOTDIR || e == -EACCES)
        e = 0;                         /* the kernel says so */
    l->leaves = l->p && l->p->flags & MM_NAMELESS && !(l->p->flags & MM_LEFT);
    if (e < 0 || !l->leaves)
        return e;
    if (*path)
        snprintf(by, 4096, "%s", path);
    else
        snprintf(by, 4096, "/proc/thread-self/fd/%d", dir);
    return mm_settle_for_good(l->slot, by, 0);
}

/* Why the kernel does not get to what a link is made of; error: it does. */
static long unreached(int dir, const char *path, int flags, long error)
{
    struct stat st;
    int follow = flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
    long r = sys(SYS_newfstatat, dir, path, &st, (flags & AT_EMPTY_PATH) | follow);
    return r < 0 ? r : error;
}

static int link_once(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    SCRATCH(name);
    struct way way = { 0 };
    SCRATCH(old);
    struct linked l = { 0 };
    if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_FOLLOW))
        return REAL(linkat)(from_dir, from, to_dir, to, flags);        /* which refuses them before it looks at the paths */
    int by_name = !flags, by_descriptor = !by_name && following();
    if (by_descriptor)
        enter();
    way.again = by_descriptor;         /* none of its names is known, which others may be taking: nobody takes one meanwhile */
    long e;
    while ((e = mm_begin_way(&way, to_dir, to, name, from_dir, by_name ? from : NULL, by_name ? old : NULL)) == 0
           && by_name && !way.all && is_link(from_dir, from) && (name[0] || mm_outer_place(to_dir, to))
           && !mm_apart(from_dir, from, to_dir, to)) {
        mm_end_way(&way);
        way.again = 1;                 /* as a symlinkat */
    }
    if (!by_name)
        old[0] = 0;
    if (e == 0 && (flags & AT_SYMLINK_FOLLOW) && name[0]
        && (mm_canonical_follow(from_dir, from, old, PATH_ROOM) != 0 || !mm_tracked(old)))
        old[0] = 0;
    /* the old name too: by it the file is found when the new one goes */
    if (e == 0 && old[0] && way.entered)
        e = mm_touch(old);
    if (e == 0 && name[0])
        e = mm_touch_new(name);
    if (e == -EACCES || e == -ENOSPC)  /* the kernel looks at the old name first */
        e = unreached(from_dir, from, flags, e);
    l.p = e == 0 && by_descriptor ? hold_linked(from_dir, from, flags, &l) : NULL;
    if (l.p && unlinked(l.p)) {
        /* what the kernel says of the new name comes first: a link from another file system gets no further than that */
        e = sys(SYS_linkat, AT_FDCWD, "/proc/self/exe", to_dir, to, 0);
        e = e == -EXDEV ? -ENOENT : e;
    } else if (e == 0 && !name[0] && (l.p || (old[0] && way.entered))) {
        e = before_link_out(from_dir, from, old, &l);
    }
    MM_STOP("link.begun");
    int in_scope = e == 0 && name[0] && linked_in_scope(from_dir, from, flags, old);
    int r = e < 0 ? fail(e) : REAL(linkat)(from_dir, from, to_dir, to, flags);
    int saved = errno;
    if (r == 0 && name[0])
        in_scope ? (void)mm_named(name) : mm_arrived(name);
    else if (r == 0 && l.leaves)
        mm_left_for_good(l.slot);
    if (l.p)
        mm_pif_let_names_go(l.p, l.held);
    if (r == 0 && way.all)
        mm_way_changed();
    mm_end_way(&way);
    if (by_descriptor)
        leave();
    errno = saved;
    return r;
}
EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return MM_WITH_ROOM(to_dir, to, link_once(from_dir, from, to_dir, to, flags));
}
EXPORT int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* Who looked a path up when a folder was there is not to go on by the link. */
static int symlink_once(const char *target, int dir, const char *path)
{
    struct noted n;
    if (LIKELY(mm_begin_noted(&n, dir, path, MM_ALL_HELD) == 0)) {
        int r = REAL(symlinkat)(target, dir, path);
        if (r == 0 && n.way.all)
            mm_way_changed();
        return mm_end_noted(&n, r);
    }
    if (errno == EACCES || errno == ENOSPC) {      /* of the new name; the kernel looks at the target first */
        int of_name = errno;
        long e = sys(SYS_symlinkat, target, AT_FDCWD, "/");
        errno = e == -EEXIST ? of_name : (int)-e;
    }
    return -1;
}
EXPORT int symlinkat(const char *target, int dir, const char *path) { return MM_WITH_ROOM(dir, path, symlink_once(target, dir, path)); }
EXPORT int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    struct noted n;
    return MM_WITH_ROOM(dir, path, mm_begin_noted(&n, dir, path, MM_NEW_NAME) ? -1 : mm_end_noted(&n, REAL(mkdirat)(dir, path, mode)));
}
EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* What mknod makes none of the kernel refuses before it looks at the path. */
static int is_made(mode_t mode)
{
    mode_t kind = mode & S_IFMT;
    return !kind || kind == S_IFREG || kind == S_IFCHR || kind == S_IFBLK || kind == S_IFIFO || kind == S_IFSOCK;
}

EXPORT int mknodat(int dir, const char *path, mode_t mode, dev_t device)
{
    struct noted n;
    if (!is_made(mode))
        return REAL(mknodat)(dir, path, mode, device);
    return MM_WITH_ROOM(dir, path, mm_begin_noted(&n, dir, path, MM_NEW_NAME)
                                   ? -1 : mm_end_noted(&n, REAL(mknodat)(dir, path, mode, device)));
}
EXPORT int mknod(const char *path, mode_t mode, dev_t device) { return mknodat(AT_FDCWD, path, mode, device); }
/* of programs linked before glibc 2.33 */
EXPORT int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
    struct noted n;
    if (!is_made(mode))
        return REAL(__xmknod)(version, path, mode, device);
    return mm_begin_noted(&n, AT_FDCWD, path, MM_NEW_NAME) ? -1 : mm_end_noted(&n, REAL(__xmknod)(version, path, mode, device));
}
EXPORT int __xmknodat(int version, int dir, const char *path, mode_t mode, dev_t *device)
{
    struct noted n;
    if (!is_made(mode))
        return REAL(__xmknodat)(version, dir, path, mode, device);
    return mm_begin_noted(&n, dir, path, MM_NEW_NAME) ? -1 : mm_end_noted(&n, REAL(__xmknodat)(version, dir, path, mode, device));
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
    return mm_begin_noted(&n, AT_FDCWD, path, MM_NEW_NAME) ? -1 : mm_end_noted(&n, REAL(bind)(socket, address, length));
}
