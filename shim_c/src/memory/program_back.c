/* program_back.c - what a program that comes back does by its own calls: descriptors, locks, files mapped shared. */
#include "memory/memory.h"
#include "memory/image_engine.h"
#include "base/opened_up.h"
#include "base/reserve_fds.h"
#include "engine/engine.h"

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

static int open_mapped(const char *path, int flags)
{
    long fd = mm_open_shut(path, flags);
    if (fd < 0 && (flags & O_ACCMODE) == O_RDWR)
        return open_mapped(path, O_RDONLY);
    if (fd < 0)
        mm_cannot_come_back("a file that it had mapped cannot be opened: ", path);
    return (int)fd;
}

/* A file mapped shared: by the wrapper, as the program did.  Nobody says whether what only reads was made by a descriptor that may write;
 * whoever has one again can make it write.  Any other file would become one of the run's. */
void mm_shared_file_back(const struct mm_vma *v, const char *path)
{
    struct stat st;
    int writes = v->protection & PROT_WRITE || (sys(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0
                                                && mm_pif_find(mm_area, st.st_dev, st.st_ino, 0));
    int fd = open_mapped(path, writes ? O_RDWR : O_RDONLY);
    mm_depth++;                        /* as above */
    int known = mm_came_back(fd);
    mm_depth--;
    if (known < 0 || mm_as_program.mmap((void *)v->start, v->end - v->start, (int)v->protection, MAP_SHARED | MAP_FIXED, fd,
                                        (off_t)v->offset) != (void *)v->start)
        mm_cannot_come_back("a mapping cannot be made: ", path);
    mm_as_program.close(fd);
}

/* A file mapped privately, which shows it where nothing was written: as wrap_map.c has it. */
void mm_private_file_back(const char *path)
{
    struct stat st;
    int fd = open_mapped(path, O_RDONLY);
    long r = sys(SYS_fstat, fd, &st);
    mm_mapped_unfollowed(mm_area, st.st_dev, st.st_ino);
    uint32_t slot = r < 0 ? 0 : mm_pif_find(mm_area, st.st_dev, st.st_ino, 0);
    mm_depth++;
    if (slot)
        r = mm_stay_home(slot, fd, 0, 0);
    mm_depth--;
    mm_close_spare(fd);
    if (r < 0)
        mm_cannot_come_back("a mapping cannot be made: ", path);
}
