/* image.h - what an image file holds, byte by byte (metamori/store/read/image.py reads the
 * same; docs/reference/image.md).
 *
 * One envelope as all of the store's files: magic "mtmrMEMO", u32 version, u32 byte order
 * mark, u64 n, n bytes of payload, u32 CRC-32 of all before it.  The payload, in this order,
 * without gaps:
 *   struct mm_memory_image, the program's part of the shim and struct mm_layout
 *   (image_engine.h), threads, timers, areas, saved, existing, paths, zeros up to a whole page of the file, then
 *   the saved pages in the order of `saved`.
 * An area is a mapping of the process, or pages of one that are guarded.  `existing` are the pages that had content at the
 * instant: what a restore fills, from this image or, where it does not have them, from the one
 * below it.  All others read as zeros, or as their file.
 */
#ifndef MM_IMAGE_H
#define MM_IMAGE_H

#include <stdint.h>

#define MM_IMAGE_MAGIC "mtmrMEMO"
#define MM_IMAGE_VERSION 5
#define MM_PAGE 4096ul
#define MM_SIGNALS 64
#define MM_TIMERS 1024
#define MM_PROCESSORS 16
#define MM_BUILD_ID 32

struct mm_memory_image {
    uint64_t index;            /* of the checkpoint */
    uint64_t base;             /* index of the image below it, 0: this one is complete */
    uint64_t data;             /* where the pages begin in the file */
    uint64_t program_bytes;
    uint64_t threads, timers, areas, saved, existing, path_bytes;
    uint64_t pid;              /* as the program knows it */
    uint64_t brk;
    uint64_t pending;          /* signals */
    uint64_t tid_offset;       /* of the kernel's thread number in a thread's control block */
    uint64_t rseq_offset, rseq_size;
    struct { uint64_t handler, flags, restorer, mask; } action[MM_SIGNALS + 1];
    struct { uint64_t interval_s, interval_us, value_s, value_us; } interval[3];
    uint8_t library[MM_BUILD_ID];      /* build-id of the preload library, 0s behind it; since version 5 */
};

/* In mm_thread.scheduling: what prctl has set, and SCHED_RESET_ON_FORK.  A signal for the end of its parent is from MM_SET_DEATH on. */
enum { MM_SET_NO_THP = 1 << 11, MM_SET_NO_PRIVILEGES = 1 << 12, MM_SET_RESET = 1 << 13, MM_SET_REAPER = 1 << 23, MM_SET_DEATH = 24 };

struct mm_thread {
    uint64_t registers[8];     /* rbx rbp r12-r15 rsp: where it stands in the signal handler; all others are on its stack */
    uint64_t fs, gs, robust, robust_length, clear_tid;
    uint64_t pending;          /* signals that wait for this thread alone */
    uint32_t tid;              /* as the program knows it */
    uint32_t scheduling;       /* bit 31 (0: not known), priority * 65536 + policy * 256 + 20 + nice, and MM_SET_... */
    char name[16];
    uint64_t processors[MM_PROCESSORS];   /* that it may run on, a bit each; all 0: those that the run was given */
};

struct mm_timer {
    uint64_t interval_s, interval_ns, value_s, value_ns, signal_value;
    int32_t id, clock, notify, signal, thread, unused;
};

enum { AREA_PLAIN, AREA_STACK, AREA_SPECIAL, AREA_OURS, AREA_GUARD };     /* GUARD, behind all mappings: a part of one that nobody may touch */
struct mm_vma {
    uint64_t start, end, offset, inode;
    uint32_t protection, shared, kind, path;   /* path: offset in the paths, 0: anonymous */
};

struct mm_span { uint64_t start, end; };       /* addresses, whole pages */

#endif
