/* program_back.c - what a program that comes back does by its own calls: descriptors, locks, files mapped shared. */
#include "memory/memory.h"
#include "memory/image_engine.h"

__attribute__((weak)) struct mm_as_program mm_as_program;      /* init.c has the one that counts */

/* The run's descriptors are open, by whoever started this process; what the loader opened beside them goes. */
void mm_descriptors_back(const struct mm_came_descriptor *list, uint32_t count)
{
    int next = 0;
    for (uint32_t i = 0; i <= count; i++) {
        int fd = i < count ? list[i].fd : 1 << 30;
        while (next < fd) {
            int own = mm_next_own(next), end = own >= 0 && own < fd ? own : fd;
            if (end > next)
                sys(SYS_close_range, next, end - 1, 0);
            next = end == fd ? fd : end + 1;
        }
        next = fd + 1;
    }
    mm_depth++;                        /* within a call; not counted: no checkpoint is taken before the program is back */
    for (uint32_t i = 0; i < count; i++) {
        const struct mm_came_descriptor *d = &list[i];
        mm_move_own(d->fd);
        if (d->followed && d->same_as >= 0)
            mm_duplicated(d->same_as, d->fd);
        else if (d->followed)
            mm_came_back(d->fd);
        if (d->close_on_exec)
            sys(SYS_fcntl, d->fd, F_SETFD, FD_CLOEXEC);
    }
    mm_depth--;
}

/* The locks of the process, when nothing of ours opens and closes files any more: closing any descriptor of a file drops
 * them. -1: somebody else has one of them. */
int mm_locks_back(const struct mm_came_lock *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct flock l = { .l_type = (short)list[i].type, .l_whence = SEEK_SET, .l_start = list[i].start,
                           .l_len = list[i].length };
        if (mm_as_program.fcntl(list[i].fd, F_SETLK, &l) < 0)
            return -1;
    }
    return 0;
}

/* A file mapped shared and writable: through the wrappers, as the program did. */
void mm_shared_file_back(uint64_t address, uint64_t length, int protection, const char *path, uint64_t offset)
{
    int fd = mm_as_program.open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    mm_as_program.mmap((void *)address, length, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    mm_as_program.close(fd);
}
