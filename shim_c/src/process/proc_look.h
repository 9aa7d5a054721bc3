/* proc_look.h - what /proc says of a process that stands still, in one pass; proc_look.c says how. */
#ifndef MM_PROC_LOOK_H
#define MM_PROC_LOOK_H

#include <stdint.h>

/* CDEF-BEGIN */
/* One descriptor: its path and its fdinfo follow. */
struct mm_seen_fd {
    int32_t fd;
    uint32_t mode, path_length, info_length;
    uint64_t dev, ino, size, nlink, rdev, block;
};
/* Texts of a process, each behind its length: stat, status, children, maps, cmdline, environ, limits (16 pairs), exe, cwd; then its
 * descriptors. */

long mm_proc_look(uint32_t pid, const int32_t *but, char *out, uint64_t size);
int mm_proc_catches(uint32_t pid, int number);
/* CDEF-END */

#endif
