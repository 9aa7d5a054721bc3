/* proxy_place.c - where the names of a program that waits lead, told so that its call can be made here. */
#include "start/proxy.h"

#include <stdlib.h>
#include <sys/utsname.h>

#define FROM_FOLDER 4                  /* bytes: "cwd/" */

static int starts_with(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* In /proc, what a process has open, where it is and what its root is lead out again. */
static int leads_out(const char *path)
{
    for (int level = 0; level < 2; level++) {      /* /proc/N, /proc/N/task/N */
        const char *digits = path + (level ? strlen("/task/") : strlen("/proc/"));
        size_t n = strspn(digits, "0123456789");
        path = digits + n;
        if (!n || *path != '/')
            return 0;
        if (starts_with(path, "/fd/") || starts_with(path, "/cwd/") || starts_with(path, "/root/"))
            return 1;
        if (!starts_with(path, "/task/"))
            return 0;
    }
    return 0;
}

/* Nothing that lies there is tracked, and the store is ours. */
static int is_not_for_us(const char *path)
{
    if (starts_with(path, "/proc/"))
        return !leads_out(path);
    return starts_with(path, "/sys/") || (starts_with(path, "/dev/") && !mm_in_scope(mm_area, path)) || mm_below(path, mm_area->store);
}

/* In place of the first n bytes.  0: it becomes too long. */
static int begins_instead(char *path, size_t n, const char *with)
{
    size_t length = strlen(with), rest = strlen(path + n) + 1;
    if (length + rest > PATH_ROOM_SHOWN)
        return 0;
    memmove(path + length, path + n, rest);
    memcpy(path, with, length);
    return 1;
}

/* Other calls may mean the link itself that stands there. */
static int call_opens(long number)
{
#ifdef SYS_open
    if (number == SYS_open || number == SYS_creat)
        return 1;
#endif
    return number == SYS_openat || number == SYS_openat2;
}

/* What means "this process" in a path would be this one: its number instead, as in /dev/stdout, which is a link to such a path. */
static int means_itself(const struct mm_shown *call, const struct mm_waiting *from, char *path)
{
    static const char *const self[] = { "/proc/self/", "/proc/thread-self/" };
    char text[64], link[64];
    for (size_t n; (n = starts_with(path, "//") ? 1 : starts_with(path, "/./") ? 2 : starts_with(path, "/../") ? 3 : 0); )
        memmove(path, path + n, strlen(path + n) + 1);
    if (starts_with(path, "/dev/std") || starts_with(path, "/dev/fd/")) {
        size_t n = strlen("/dev/") + strcspn(path + strlen("/dev/"), "/");
        snprintf(text, sizeof text, "%.*s", (int)n, path);
        long to = sys_readlink(text, link, sizeof link - 1);
        link[to > 0 ? to : 0] = 0;
        if (starts_with(link, self[0]) && (path[n] || call_opens(call->notice.data.nr)) && !begins_instead(path, n, link))
            return 0;
    }
    for (int thread = 0; thread < 2; thread++)
        if (starts_with(path, self[thread])) {
            snprintf(text, sizeof text, thread ? "/proc/%u/task/%u/" : "/proc/%u/", from->tgid, call->notice.pid);
            return begins_instead(path, strlen(self[thread]), text);
        }
    return 1;
}

/* A path below the folder `where`. */
static int is_not_for_us_in(char *where, const char *path)
{
    size_t n = strlen(where);
    n -= n == 1;
    snprintf(where + n, PATH_ROOM_SHOWN - n, "/%s", path);
    return is_not_for_us(where);
}

void mm_leave_place(struct mm_place *place)
{
    if (place->dir >= 0)
        sys_close(place->dir);
    if (place->back >= 0)
        sys(SYS_fchdir, place->back);
    place->dir = AT_FDCWD;
    place->back = -1;
}

/* This thread goes where the program is, for this call only: nobody could unmount that.  A descriptor of it would have to be asked
 * for its path, here and by the wrapper; where the kernel knows no path of it (it was removed), that is done.  0: it stays here. */
static int go_there(const struct mm_waiting *from, struct mm_place *place, char *where, size_t room)
{
    if (!from->is_at || (!place->there && sys(SYS_chdir, "cwd") < 0))
        return 0;
    if (!place->there)
        place->back = from->folder;
    place->there = sys(SYS_getcwd, where, room) > 0 && where[0] == '/';
    if (!place->there)
        mm_leave_place(place);
    return place->there;
}

/* Below the root: it may go on with "proc/self". */
static int may_be_ours(const char *path)
{
    path += strspn(path, "./");
    return starts_with(path, "proc/") || starts_with(path, "dev/");
}

/* Where names lead here. */
static int reach_place(const struct mm_shown *call, const struct mm_waiting *from, int dir, struct mm_place *place)
{
    char link[64], where[PATH_ROOM_SHOWN];
    if (dir == AT_FDCWD && place->path[0] != '/' && go_there(from, place, where, sizeof where)) {
        if (where[1] || (place->beneath && !may_be_ours(place->path)))
            return !is_not_for_us_in(where, place->path) && mm_still_waits(call);
        if (!begins_instead(place->path, 0, "/"))
            return 0;
    }
    if (place->path[0] == '/')
        return means_itself(call, from, place->path) && !is_not_for_us(place->path) && mm_still_waits(call);
    if (dir != AT_FDCWD)
        snprintf(link, sizeof link, "fd/%d", dir);
    long fd = sys_openat(from->folder, dir == AT_FDCWD ? "cwd" : link, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    place->dir = fd < 0 ? AT_FDCWD : (int)fd;
    if (fd < 0 || !mm_still_waits(call))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%ld", fd);
    long n = sys_readlink(link, where, sizeof where - 1);
    where[n > 0 ? n : 0] = 0;
    return n > 0 && !is_not_for_us_in(where, place->path);
}

int mm_find_place(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, struct mm_place *place)
{
    return address && mm_shown_string(call, address, place->path, sizeof place->path) > 0 && reach_place(call, from, dir, place);
}

/* By the link to its folder, in ours: to open a file that is there no more need be known.  Not what may lead back into /proc. */
int mm_find_file(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, struct mm_place *place)
{
    char *path = place->path + FROM_FOLDER;
    if (dir != AT_FDCWD || !from->is_at || !address
        || mm_shown_string(call, address, path, sizeof place->path - FROM_FOLDER) <= 0
        || *path == '/' || may_be_ours(path))
        return mm_find_place(call, from, dir, address, place);
    memcpy(place->path, "cwd/", FROM_FOLDER);
    place->is_near = 1;
    return 1;
}

/* As mm_find_place would have found it. */
int mm_reach_file(const struct mm_shown *call, const struct mm_waiting *from, struct mm_place *place)
{
    if (!place->is_near)
        return 1;
    place->is_near = 0;
    memmove(place->path, place->path + FROM_FOLDER, strlen(place->path + FROM_FOLDER) + 1);
    return reach_place(call, from, AT_FDCWD, place);
}

/* Since Linux 6.10 who has opened a file may give it a name by its descriptor, and needs no privilege; we have not opened it. */
static int may_link_own(void)
{
    struct utsname u;
    int major = 0, minor = 0;
    return uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 && major * 100 + minor >= 610;
}

/* For linkat: an open file that is meant by its descriptor, or by that one's name in /proc.  0: it is not, or not to be had. */
int mm_find_open(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, unsigned *flags, struct mm_place *place)
{
    int fd = -1, end = 0;
    long n = mm_shown_string(call, address, place->path, sizeof place->path);
    if (n == 0 && (*flags & AT_EMPTY_PATH)) {
        fd = dir;
        if (may_link_own())
            *flags = AT_SYMLINK_FOLLOW;
    } else if (n > 0 && (*flags & AT_SYMLINK_FOLLOW) && sscanf(place->path, "/proc/self/fd/%d%n", &fd, &end) == 1
               && (place->path[end] || mm_has_own_table(from))) {     /* the name is in its process's table */
        fd = -1;
    }
    if (fd < 0)
        return 0;
    long own = mm_shown_descriptor(call, from, fd);
    place->dir = own < 0 ? AT_FDCWD : (int)own;
    if (*flags & AT_SYMLINK_FOLLOW)
        snprintf(place->path, sizeof place->path, "/proc/self/fd/%ld", own);
    return own >= 0;
}

/* For calls that take no folder. */
char *mm_whole_path(const struct mm_place *place, char *path, size_t room)
{
    if (place->dir == AT_FDCWD)
        snprintf(path, room, "%s", place->path);
    else
        snprintf(path, room, "/proc/self/fd/%d/%s", place->dir, place->path);
    return path;
}
