/* opened_up.c - what its mode shuts even to its owner, opened up for a moment, as a restore does it.
 *
 * The program has it in use, and may have shut it to himself since.  By a descriptor that only leads there: nobody can exchange what
 * has the name meanwhile.
 */
#define _GNU_SOURCE
#include "base/opened_up.h"
#include "base/check.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

#include <stdio.h>
#include <sys/stat.h>

/* The kernel takes a set-group-id bit away when somebody who is not in the group changes the mode. */
static int mode_comes_back(const struct stat *st)
{
    gid_t group[256];
    long n = st->st_mode & S_ISGID ? sys(SYS_getgroups, 256, group) : 0;
    int is_in = !(st->st_mode & S_ISGID) || st->st_gid == (gid_t)sys(SYS_getegid);
    for (long i = 0; i < n && !is_in; i++)
        is_in = group[i] == st->st_gid;
    return is_in;
}

/* 1: a file or folder of the user's own, which lets him in until mm_shut_again.  -1: it has the bits of its mode that are needed.
 * 0: it is not to be had.  flags: O_NOFOLLOW, O_DIRECTORY. */
int mm_open_up(struct mm_opened_up *o, const char *path, int flags, mode_t needed)
{
    struct stat st;
    long at = mm_open_spare(AT_FDCWD, path, O_PATH | flags, 0);
    if (at < 0)
        return 0;
    o->at = (int)at;
    snprintf(o->by, sizeof o->by, "/proc/thread-self/fd/%d", o->at);
    int stands = sys(SYS_fstat, at, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
    int has = stands && !(~st.st_mode & needed) && st.st_uid == (uid_t)sys(SYS_geteuid);
    if (stands && (~st.st_mode & needed) && mode_comes_back(&st)) {
        o->mode = st.st_mode & 07777;
        o->opened = o->mode | (S_ISDIR(st.st_mode) ? MM_SHUT_FOLDER : MM_SHUT_BITS);
        if (sys(SYS_fchmodat, AT_FDCWD, o->by, o->opened) == 0) {
            MM_STOP("mode.opened");
            return 1;
        }
    }
    mm_close_spare(o->at);
    return -has;
}

/* A mode that somebody gave it meanwhile stays. */
void mm_shut_again(const struct mm_opened_up *o)
{
    struct stat st;
    if (sys(SYS_fstat, o->at, &st) == 0 && (st.st_mode & 07777) == o->opened)
        sys(SYS_fchmodat, AT_FDCWD, o->by, o->mode);
    mm_close_spare(o->at);
}

/* Another process may have opened it up, which shuts it again at any moment: tried again. */
long mm_open_shut(const char *path, int flags)
{
    struct mm_opened_up o;
    long fd = mm_open_spare(AT_FDCWD, path, flags, 0);
    for (int tries = 0; fd == -EACCES && tries < MM_SHUT_TRIES; tries++) {
        int opened = mm_open_up(&o, path, flags & O_NOFOLLOW, MM_SHUT_BITS);
        if (!opened)
            break;
        fd = mm_open_spare(AT_FDCWD, opened > 0 ? o.by : path, opened > 0 ? flags & ~O_NOFOLLOW : flags, 0);
        if (opened > 0)
            mm_shut_again(&o);
    }
    return fd;
}

/* As lgetxattr has it. */
long mm_getxattr_shut(const char *path, const char *name, void *value, size_t room)
{
    struct mm_opened_up o;
    long r = sys(SYS_lgetxattr, path, name, value, room);
    for (int tries = 0; r == -EACCES && tries < MM_SHUT_TRIES; tries++) {
        int opened = mm_open_up(&o, path, O_NOFOLLOW, MM_SHUT_BITS);
        if (!opened)
            break;
        r = opened > 0 ? sys(SYS_getxattr, o.by, name, value, room) : sys(SYS_lgetxattr, path, name, value, room);
        if (opened > 0)
            mm_shut_again(&o);
    }
    return r;
}
