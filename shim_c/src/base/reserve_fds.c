/* reserve_fds.c - a descriptor for a moment, also when the program has used up its own.
 *
 * Its limit is raised for that moment where it may be.  Where it may not, numbers that are kept for this are lent: they are
 * open from the moment that the process joined the run, as high as they can be, and go back when they are closed.
 */
#define _GNU_SOURCE
#include "base/check.h"
#include "base/lift.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

#include <stdio.h>

static int spare[MM_SPARE] = { -1, -1, -1 };   /* kept and not lent */
static int lent[MM_SPARE] = { -1, -1, -1 };
static int place[MM_SPARE];            /* the number that one had: others may have become free meanwhile, which are the program's */
static const int none = -1;
int mm_lowest_own = MM_FDS;

int mm_spare(int i) { return __atomic_load_n(&spare[i], __ATOMIC_ACQUIRE); }

void mm_spare_keep(int i, int fd)
{
    __atomic_store_n(&spare[i], mm_note_own(fd), __ATOMIC_RELEASE);
}

static void back(int i)
{
    __atomic_store_n(&lent[i], -1, __ATOMIC_RELAXED);
    int fd = (int)sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
    if (fd >= 0 && fd < place[i]) {
        int up = (int)sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, place[i]);
        sys_close(fd);
        fd = up;
    }
    mm_spare_keep(i, fd);
}

static long open_lent(int dir, const char *path, int flags, int mode)
{
    for (int i = 0; i < MM_SPARE; i++) {
        int number = __atomic_exchange_n(&spare[i], none, __ATOMIC_ACQ_REL);
        if (number < 0)
            continue;
        place[i] = number;
        sys_close(number);
        long fd = sys_openat(dir, path, flags | O_CLOEXEC, mode);
        if (fd >= 0)
            __atomic_store_n(&lent[i], (int)fd, __ATOMIC_RELEASE);
        else
            back(i);
        return fd;
    }
    return -EMFILE;
}

/* A number or -errno. */
long mm_open_spare(int dir, const char *path, int flags, int mode)
{
    long fd = sys_openat(dir, path, flags | O_CLOEXEC, mode);
    uint64_t hard, mask;
    if (fd != -EMFILE)
        return fd;
    mask = sys_mask_all();
    if (mm_lift(MM_FILES_LIMIT, &hard) < hard)
        fd = sys_openat(dir, path, flags | O_CLOEXEC, mode);
    MM_STOP("spare.lifted");
    mm_lift_end(MM_FILES_LIMIT);
    sys_mask_back(mask);
    return fd == -EMFILE ? open_lent(dir, path, flags, mode) : fd;
}

static long pipe_lent(int own[2])
{
    int which[2], count = 0, number;
    long e = -EMFILE;
    for (int i = 0; count < 2 && i < MM_SPARE; i++)
        if ((number = __atomic_exchange_n(&spare[i], none, __ATOMIC_ACQ_REL)) >= 0) {
            place[i] = number;
            sys_close(number);
            which[count++] = i;
        }
    if (count == 2)
        e = sys(SYS_pipe2, own, O_CLOEXEC);
    for (int i = 0; i < count; i++)
        if (e == 0)
            __atomic_store_n(&lent[which[i]], own[i], __ATOMIC_RELEASE);
        else
            back(which[i]);
    return e;
}

long mm_pipe_spare(int own[2])
{
    uint64_t hard, mask;
    long e = sys(SYS_pipe2, own, O_CLOEXEC);
    if (e != -EMFILE)
        return e;
    mask = sys_mask_all();
    if (mm_lift(MM_FILES_LIMIT, &hard) < hard)
        e = sys(SYS_pipe2, own, O_CLOEXEC);
    mm_lift_end(MM_FILES_LIMIT);
    sys_mask_back(mask);
    return e == -EMFILE ? pipe_lent(own) : e;
}

void mm_close_spare(int fd)
{
    sys_close(fd);
    for (int i = 0; i < MM_SPARE; i++)
        if (__builtin_expect(fd == __atomic_load_n(&lent[i], __ATOMIC_ACQUIRE), 0))
            back(i);
}
