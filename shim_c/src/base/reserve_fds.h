/* reserve_fds.h - a descriptor for a moment, also when the program has used up its own. */
#ifndef MM_RESERVE_FDS_H
#define MM_RESERVE_FDS_H
#pragma GCC visibility push(hidden)
#define MM_SPARE 3
#define MM_FDS 1048576                 /* the kernel's own limit unless fs.nr_open was raised */
long mm_open_spare(int dir, const char *path, int flags, int mode);
void mm_close_spare(int fd);
long mm_pipe_spare(int own[2]);         /* mm_close_spare closes both */
extern int mm_lowest_own;                /* none of the library's own descriptors was ever below */
static inline int mm_note_own(int fd)
{
    if (fd >= 0 && fd < __atomic_load_n(&mm_lowest_own, __ATOMIC_RELAXED))
        __atomic_store_n(&mm_lowest_own, fd, __ATOMIC_RELAXED);
    return fd;
}
int mm_spare(int i);
void mm_spare_keep(int i, int fd);
#pragma GCC visibility pop
#endif
