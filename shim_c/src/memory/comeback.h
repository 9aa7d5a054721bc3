/* comeback.h - how a process comes back: what `metamori restart` writes, and the preload library reads (memory/restore.c). */
#ifndef MM_COMEBACK_H
#define MM_COMEBACK_H

#include <stdint.h>

/* CDEF-BEGIN */
#define MM_MEMORY_SIGNAL 32            /* the C library's own: programs can neither block nor wait for it */
#define MM_NO_NAME 7                   /* kind of memory that processes share: a file that was deleted (shared_kind) */
/* A descriptor of a process that comes back; it was opened before the program was started. */
struct mm_came_descriptor {
    int32_t fd, same_as;       /* same_as: an earlier one of the same open description, or -1 */
    uint32_t close_on_exec, followed;
};
struct mm_came_lock {              /* of the process: fcntl's F_SETLK */
    int32_t fd, type;
    int64_t start, length;
};
struct mm_came_segment {           /* memory of several processes: a descriptor of what stands for it */
    uint64_t kind, inode;          /* as the image's mappings name it (memory/image_engine.h) */
    int32_t fd;                    /* of System V: its number */
    uint32_t how;                  /* MM_CAME_... */
    int32_t open;                  /* a descriptor of it that the program has, -1: none */
    uint32_t seals;                /* which it gets when all have mapped it */
};
#define MM_CAME_REMOVED 1              /* it lives as long as somebody has it mapped */
#define MM_CAME_WHOLE 2                /* its content is there, and nobody may write into it */
struct mm_came_notice {            /* the process is told of a message (mq_notify) */
    int32_t fd, how, signal;
    uint32_t pad_;
    uint64_t value;
};
struct mm_came_watch {             /* of an inotify descriptor */
    int32_t fd, number;
    uint32_t events, pad_;
};
/* What was watched (inotify), by whom is not said: in <store>/run/inotify. A path of this length follows, without a 0. */
struct mm_watched {
    uint64_t dev, ino;
    uint32_t length, pad_;
};
#define MM_LATE_LIMITS 3               /* of data, stack and address space: less of it may be allowed than it takes to come back */
/* locks, notices, watches, descriptors, segments, then the paths of images, the complete one first, and of what is watched, each ended
 * by 0 */
struct mm_comeback {
    uint32_t images, descriptors, locks, segments, notices, watches;
    uint64_t limit[MM_LATE_LIMITS][2];
};
/* CDEF-END */

#endif
