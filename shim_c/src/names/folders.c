/* folders.c - a folder that gets another path takes along all that is in it.
 *
 * Each name in it changes then, the one that it had and the one that it gets: both are noted before, as any name is before it
 * changes.  Otherwise what is found there later would pass for what always stood there, though another folder was there before.
 */
#include "names/names.h"

#include <dirent.h>

#define PATH_ROOM 4096

static long touch_tracked(const char *path) { return mm_tracked(path) ? mm_touch(path) : 0; }

static int crosses(const char *from, const char *to) { return mm_tracked(from) && !mm_tracked(to); }

/* What is done with a name in a folder that moves: the paths that it has before and after, its kind as getdents has it, and what
 * each_name was given.  0 or -errno, which ends the walk. */
typedef long visitor(char *from, char *to, int kind, int given);

/* Each name in the folder `in`, which is one of the two paths; both are as they were when it returns.  Of what somebody else has shut
 * nothing in it is known by any name. */
static long each_name(char *from, char *to, const char *in, visitor *visit, int given)
{
    size_t n = strlen(from), m = strlen(to);
    long dir = mm_open_shut_way(in, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), got, r = 0;
    if (dir < 0)
        return mm_resource_error((int)dir) ? dir : 0;
    SCRATCH(list);
    while (r == 0 && (got = sys(SYS_getdents64, dir, list, SCRATCH_BYTES)) > 0)
        for (long at = 0; r == 0 && at < got; at += ((struct dirent64 *)(list + at))->d_reclen) {
            const struct dirent64 *d = (struct dirent64 *)(list + at);
            size_t length = strlen(d->d_name) + 1;
            if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || n + length >= PATH_ROOM || m + length >= PATH_ROOM)
                continue;
            from[n] = to[m] = '/';
            memcpy(from + n + 1, d->d_name, length);
            memcpy(to + m + 1, d->d_name, length);
            r = visit(from, to, d->d_type, given);
            r = r == -EACCES ? 0 : r;
            from[n] = to[m] = 0;
        }
    mm_close_spare((int)dir);
    return r;
}

static int may_be(int kind, int wanted) { return kind == wanted || kind == DT_UNKNOWN; }

static long note_all(char *from, char *to, int there);

/* What is known of the place that a folder gets. */
enum there { EMPTY, UNKNOWN };             /* there is nothing at any name below it; who knows */

/* There is nothing: it is noted without a look. */
static long touch_nothing(const char *path) { return mm_tracked(path) ? mm_touch_looked(path, -ENOENT, &(struct statx){ 0 }) : 0; }

static long note_one(char *from, char *to, int kind, int there)
{
    long r = touch_tracked(from);
    if (r == 0)
        r = there == EMPTY ? touch_nothing(to) : touch_tracked(to);
    if (r == 0 && may_be(kind, DT_REG) && crosses(from, to))
        r = mm_leave_scope(from);
    return r == 0 && may_be(kind, DT_DIR) ? note_all(from, to, there) : r;
}

/* The names below `from`, and what stands where they will be: not below a link, which leads to names of others.  Where no folder
 * stands nothing stands below it, and all names are held: nobody of the run makes one.  Something else may stand there: a folder
 * and a file change places. */
static long note_all(char *from, char *to, int there)
{
    struct statx st;
    if (there == UNKNOWN) {
        long r = mm_look_at(to, &st);
        there = r == -ENOENT || (r == 0 && !S_ISDIR(st.stx_mode)) ? EMPTY : UNKNOWN;
    }
    return each_name(from, to, from, note_one, there);
}

/* Before a folder is renamed. 0 or -errno. */
long mm_folder_moves(const char *from, const char *to)
{
    SCRATCH(old);
    SCRATCH(new);
    strcpy(old, from);
    strcpy(new, to);
    return note_all(old, new, UNKNOWN);
}

/* What is in a folder that moved `from` here: files that come into the scope arrive. */
static long one_arrives(char *from, char *to, int kind, int given)
{
    if (may_be(kind, DT_REG) && crosses(to, from))
        mm_arrived(to);
    return may_be(kind, DT_DIR) ? each_name(from, to, to, one_arrives, given) : 0;
}

/* The path that a file has now, or NULL: it was not in a folder that moved, or has no name by now. */
static const char *now_at(const struct mm_pif *p, const char *from, const char *to, int exchanged, char *path)
{
    const char *was = mm_path_at(mm_area, p->path);
    int moved = mm_below(was, from), back = !moved && exchanged && mm_below(was, to);
    const char *rest = was + strlen(moved ? from : to), *now = moved ? to : from;
    if ((p->flags & (MM_USED | MM_NAMELESS)) != MM_USED || !(moved || back) || !*rest || strlen(now) + strlen(rest) >= PATH_ROOM)
        return NULL;                   /* what stands there itself has been named */
    memcpy(path, now, strlen(now));
    strcpy(path + strlen(now), rest);
    return path;
}

/* Afterwards: every file in it is elsewhere; exchanged, both ways.  A checkpoint could not find them all again: folders may
 * move twice before it looks, and into each other. */
void mm_folder_moved(const char *from, const char *to, int exchanged)
{
    SCRATCH(path);
    SCRATCH(old);
    int some_left = 0;
    mm_lock(&mm_area->head->lock, MM_LOCK_AREA);
    for (uint32_t slot = 1; slot < mm_area->head->pif_count; slot++) {
        struct mm_pif *p = mm_pif_at(mm_area, slot);
        const char *now = now_at(p, from, to, exchanged, path);
        if (now && mm_tracked(now))
            mm_set_path(mm_area, p, now);
        some_left |= now && !mm_tracked(now);
    }
    mm_unlock(&mm_area->head->lock);
    for (uint32_t slot = 1; some_left && slot < mm_area->head->pif_count; slot++) {
        const char *now = now_at(mm_pif_at(mm_area, slot), from, to, exchanged, path);
        if (now && !mm_tracked(now))
            mm_left_scope(now);
    }
    if (mm_tracked(from) && mm_tracked(to) && !mm_scope_uneven(mm_area, from) && !mm_scope_uneven(mm_area, to))
        return;
    each_name(strcpy(old, from), strcpy(path, to), path, one_arrives, 0);
    if (exchanged)
        each_name(strcpy(old, to), strcpy(path, from), path, one_arrives, 0);
}
