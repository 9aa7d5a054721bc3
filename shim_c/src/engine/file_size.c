/* file_size.c - how long a file is: as the kernel knows it, or as the run does. */
#include "engine/engine.h"

long mm_size(struct mm_pif *p, int fd)
{
    if (p->flags & MM_VIRTUAL)
        return (long)p->size;
    struct stat st;
    long r = sys(SYS_fstat, fd, &st);
    return r < 0 ? r : st.st_size;
}

/* Before the first of a file's bytes is redirected, by way of fd.  The later of that time and the one in place counts, for some of
 * what is written goes there: one in place that lies in the future, as where the clock was set back, is replaced as the kernel
 * would have done it.  And what the program may do by file capabilities ends with its first changed byte. */
void mm_stamp_begins(int fd, int64_t seconds)
{
    struct timespec now[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
    struct stat st;
    __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);
    sys(SYS_fremovexattr, fd, "security.capability");
    if (sys(SYS_fstat, fd, &st) == 0 && st.st_mtim.tv_sec > seconds && sys(SYS_utimensat, fd, NULL, now, 0) == -EPERM) {
        now[0].tv_nsec = UTIME_NOW;    /* somebody else's file: who may write to it may set both */
        sys(SYS_utimensat, fd, NULL, now, 0);
    }
}
