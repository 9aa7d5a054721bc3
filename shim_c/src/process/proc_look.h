/* proc_look.h - what /proc says of a process that stands still, in one pass; proc_look.c says how. */
#ifndef MM_PROC_LOOK_H
#define MM_PROC_LOOK_H

#include <stdint.h>

struct mm_area;
struct mm_memory;

/* CDEF-BEGIN */
/* One descriptor: its fdinfo, but of a pipe, and its path follow.  A pipe's size is what it can hold, where it reads from an empty
 * one. */
struct mm_seen_fd {
    int32_t fd;
    uint32_t mode, path_length, info_length;
    uint64_t dev, ino, size, nlink, rdev, block;
    int64_t position;
    uint64_t flags;
};
/* Lengths of the texts of a process and the texts: children; then its descriptors.  The rest can be taken apart later, and is read
 * meanwhile: maps, cmdline, environ, limits (16 pairs), exe, cwd, group and session, places (its root and its namespaces), status. */
#define MM_SEEN_TEXTS 1
#define MM_SEEN_REST 9
#define MM_SEEN_PARTS 2

/* What a process does: its letter as in /proc/PID/stat (0: it is gone), the thread that traces its first one, and the signals that it
 * has handlers for. */
struct mm_proc_does {
    uint32_t state, tracer;
    uint64_t catches;
};

/* A process, and what is said of it. */
struct mm_proc_view {
    uint32_t pid;
    struct mm_memory *memory;
    uint32_t like;             /* the first that had the same mapped when it was held: what that is is read of that one only */
    uint32_t as_held;          /* and read so of this one now */
    char *text[2];
    int64_t length[2];         /* or -errno; 0: not yet */
};

int mm_proc_looks(struct mm_proc_view *seen, uint32_t count, uint32_t *next, uint32_t most);
void mm_proc_looked(struct mm_proc_view *seen, uint32_t count);
uint64_t mm_maps_key(const char *text, uint64_t length);
struct mm_proc_does mm_proc_does(uint32_t pid);
int mm_proc_ended(const uint32_t *pids, uint32_t count);
int mm_held_ended(struct mm_area *area, const uint32_t *processes, const uint32_t *pids, uint32_t count);
/* CDEF-END */

#endif
