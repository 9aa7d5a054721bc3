/* held_names.c - the names that a call gives, takes or changes: looked up, held, noted. */
#include "calls/calls.h"

#include <sys/vfs.h>

#define PATH_ROOM 4096

int (*mm_asker_gone)(void);

void mm_end_way(struct way *way)
{
    int saved = errno;
    if (way->entered) {
        mm_let_names_go(&way->names);
        leave();
    }
    way->entered = 0;
    errno = saved;
}

/* One that leads nowhere, or is not tracked, gets an empty name. */
static void empty_unless_tracked(const struct way *way, int error, char *name)
{
    if (error != 0 || (!mm_tracked(name) && !(way->folders && mm_scope_uneven(mm_area, name))))
        name[0] = 0;
}

/* A path that leads nowhere, as another call of the run may change just now. */
static int may_lead_yet(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EACCES;
}

/* Both names, or one (other NULL), looked up and held.  0, or -errno where nobody can tell what stands there: the call fails
 * with that.  Names that lead nowhere, or to what is not tracked, are empty.
 * Where a path leads nowhere, all names are held while the kernel says so. */
int mm_begin_way(struct way *way, int dir, const char *path, char *name, int other_dir, const char *other_path, char *other)
{
    int all = way->again;
    *way = (struct way){ .follow = way->follow, .folders = way->folders };
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
            *way = (struct way){ .names = way->names, .entered = 1, .all = 1, .follow = way->follow, .folders = way->folders };
        }
        int c = (way->follow ? mm_canonical_follow : mm_canonical)(dir, path, name, PATH_ROOM), d = 0;
        if (other && (c != 0 || !mm_canonical_beside(other_dir, other_path, dir, path, name, other, PATH_ROOM)))
            d = mm_canonical(other_dir, other_path, other, PATH_ROOM);
        int dark = mm_resource_error(c) ? c : mm_resource_error(d) ? d : all && mm_has_lapsed() ? -ESRCH : 0;
        empty_unless_tracked(way, c, name);
        if (other)
            empty_unless_tracked(way, d, other);
        if (dark) {
            mm_end_way(way);
            return dark;
        }
        if (all)
            return 0;
        way->again = may_lead_yet(c) || may_lead_yet(d);
        if (way->again)
            continue;
        if (!name[0] && (!other || !other[0]))
            return 0;
        MM_STOP("names.found");
        enter();
        mm_hold_names(&way->names, name[0] ? name : NULL, other && other[0] ? other : NULL);
        way->entered = 1;
        MM_STOP("names.held");
        int lapsed = mm_has_lapsed();
        if (LIKELY(ways == mm_ways()) && !lapsed)
            return 0;
        mm_end_way(way);
        if (lapsed)
            return -ESRCH;
    }
}

/* Is it a name that is not tracked, and of which what leads through it may be?  A link that comes or goes there changes where
 * tracked names lead.  Not on a filesystem that a program serves: it may be one of the run, whose calls would wait for this one. */
int mm_outer_place(int dir, const char *path)
{
    SCRATCH(name);
    struct statfs fs;
    if (!following() || mm_canonical(dir, path, name, PATH_ROOM) != 0 || mm_tracked(name))
        return 0;
    char *slash = strrchr(name, '/');
    slash[slash == name] = 0;
    return sys(SYS_statfs, name, &fs) == 0 && fs.f_type != MM_OF_A_PROGRAM;
}

/* The same of one at which a link or a folder stands. */
int mm_outer_way(int dir, const char *path)
{
    struct stat st;
    return following() && sys(SYS_newfstatat, dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0
        && (S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode)) && mm_outer_place(dir, path);
}

static int is_served(int dir, const char *path)
{
    SCRATCH(name);
    struct statfs fs;
    if (mm_canonical(dir, path, name, PATH_ROOM) != 0)
        return 0;
    char *slash = strrchr(name, '/');
    slash[slash == name] = 0;
    return sys(SYS_statfs, name, &fs) == 0 && fs.f_type == MM_OF_A_PROGRAM;
}

/* Does a program serve the filesystem of one of them only?  Then the kernel refuses to give the one what the other has. */
int mm_apart(int dir, const char *path, int other_dir, const char *other)
{
    return is_served(dir, path) != is_served(other_dir, other);
}

/* As mm_begin_way, where the call follows a link that stands there.  Once the name is held it is looked at: a link may have come to it
 * until then, which nobody but its maker held.  st, *looked: of what stands there. */
static long begin_followed(struct noted *n, int dir, const char *path, long *looked, struct statx *st)
{
    for (int links = 0;; links++) {
        n->way = (struct way){ .follow = links > 0, .again = links > 1 };
        long e = mm_begin_way(&n->way, dir, path, n->name, 0, NULL, NULL);
        *looked = e == 0 && n->name[0] ? mm_look_at(n->name, st) : -ENOENT;
        if (e < 0 || (*looked == 0 && !S_ISLNK(st->stx_mode)) || (n->way.follow && (n->way.all || *looked < 0)))
            return e;
        mm_end_way(&n->way);
    }
}

/* The name is held, and noted as it is.  0: the call is made now, and mm_end_noted gets what it answered.  -1 with errno: it is not. */
int mm_begin_noted(struct noted *n, int dir, const char *path, enum noting how)
{
    struct statx st;
    long looked = 0;
    int follows = how == MM_FOLLOWED;
    n->way = (struct way){ 0 };
    n->ino = 0;
    n->name = mm_scratch_take();
    long e = follows ? begin_followed(n, dir, path, &looked, &st) : mm_begin_way(&n->way, dir, path, n->name, 0, NULL, NULL);
    if (e == 0 && how == MM_ALL_HELD && !n->way.all && (n->name[0] || mm_outer_place(dir, path))) {
        mm_end_way(&n->way);
        n->way.again = 1;
        e = mm_begin_way(&n->way, dir, path, n->name, 0, NULL, NULL);
    }
    if (e == 0 && n->name[0])
        e = follows ? mm_touch_looked(n->name, looked, &st) : mm_touch(n->name);
    if (e == 0 && n->name[0] && (how == MM_NEW_NAME || how == MM_ALL_HELD))
        e = mm_room_for_name(n->name);
    if (e == 0 && follows && n->name[0] && looked == 0)
        n->dev = sys_dev(st.stx_dev_major, st.stx_dev_minor), n->ino = st.stx_ino;
    MM_STOP("noted.begun");
    if (LIKELY(e >= 0))
        return 0;
    errno = (int)-e;
    mm_end_way(&n->way);
    mm_scratch_give(&n->name);
    return -1;
}

int mm_end_noted(struct noted *n, int r)
{
    mm_end_way(&n->way);
    mm_scratch_give(&n->name);
    return r;
}

/* mm_made_room after a call that was to give or take a name: was the store's disk full? */
int mm_made_room_at(int dir, const char *path, int follow, int *asked)
{
    int saved = errno, ours = 0;
    if (LIKELY(saved != ENOSPC && saved != EDQUOT) || !following())
        return 0;
    SCRATCH(name);
    struct statx st;
    enter();
    name[0] = 0;
    int e = follow ? mm_canonical_follow(dir, path, name, PATH_ROOM) : mm_canonical(dir, path, name, PATH_ROOM);
    if ((e == 0 || e == -ENOENT) && name[0] && mm_tracked(name)) {
        strrchr(name, '/')[1] = 0;
        ours = mm_look_at(name, &st) == 0 && sys_dev(st.stx_dev_major, st.stx_dev_minor) == mm_store_dev();
    }
    leave();
    errno = saved;
    return ours && mm_made_room(-1, asked);
}
