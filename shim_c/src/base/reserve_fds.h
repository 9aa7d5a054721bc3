/* reserve_fds.h - a descriptor for a moment, also when the program has used up its own. */
#ifndef MM_RESERVE_FDS_H
#define MM_RESERVE_FDS_H
#pragma GCC visibility push(hidden)
#define MM_SPARE 3
long mm_open_spare(int dir, const char *path, int flags, int mode);
void mm_close_spare(int fd);
extern int mm_lowest_spare;
int mm_spare(int i);
void mm_spare_keep(int i, int fd);
#pragma GCC visibility pop
#endif
