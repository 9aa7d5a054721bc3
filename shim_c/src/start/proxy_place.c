/* proxy_place.c - where the names of a program that waits lead, told so that its call can be made here. */
#include "start/proxy.h"

#include <stdlib.h>
#include <sys/utsname.h>

static int starts_with(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* Nothing that lies there is tracked, /proc/self is not the same here, and the store is ours. */
static int is_not_for_us(const char *path)
{
    return starts_with(path, "/proc/") || starts_with(path, "/dev/") || starts_with(path, "/sys/") || mm_below(path, mm_area->store);
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

/* The path that an argument names, where names lead here.  0: leave the call to the kernel. */
int mm_find_place(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, struct mm_place *place)
{
    char link[64], where[PATH_ROOM_SHOWN];
    if (!address || mm_shown_string(call, address, place->path, sizeof place->path) <= 0)
        return 0;
    if (place->path[0] == '/')
        return !is_not_for_us(place->path) && mm_still_waits(call);
    if (dir == AT_FDCWD && go_there(from, place, where, sizeof where - 1)) {
        strcat(where, "/");
        return !is_not_for_us(where) && mm_still_waits(call);
    }
    if (dir != AT_FDCWD)
        snprintf(link, sizeof link, "fd/%d", dir);
    long fd = sys_openat(from->folder, dir == AT_FDCWD ? "cwd" : link, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    place->dir = fd < 0 ? AT_FDCWD : (int)fd;
    if (fd < 0 || !mm_still_waits(call))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%ld", fd);
    long n = sys_readlink(link, where, sizeof where - 2);
    strcpy(where + (n > 0 ? n : 0), "/");
    return n > 0 && !is_not_for_us(where);
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
    } else if (n > 0 && (*flags & AT_SYMLINK_FOLLOW) && sscanf(place->path, "/proc/self/fd/%d%n", &fd, &end) == 1 && place->path[end]) {
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
