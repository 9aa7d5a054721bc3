/* area_internal.h - what the C side of the run area shares between its files; not for Python. */
#ifndef MM_AREA_INTERNAL_H
#define MM_AREA_INTERNAL_H

#include "area/layout.h"
#include "base/check.h"
#include "base/crc.h"
#include "base/lock_order.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

/* said of declarations too, so that the compiler knows them to be here and reaches them without a table of addresses */
#pragma GCC visibility push(hidden)

#define MM_MAGIC "MMAREA\n\0"
/* What a process is called that writes an image: whoever takes orphans has it for a child when its parent has ended. */
#define MM_WRITER_NAME "metamori.image"
#define MM_SEGMENT_BITS 26
#define MM_SEGMENTS 1024

enum { HEADER, PROCESSES, FITS, PIFS, PAGES, JOURNAL, STRINGS, CHUNKS, FRAMES, CACHE, REGIONS };
_Static_assert(REGIONS <= 15, "segments are numbered by shifts");

/* a slot never lies across two segments */
#define POWER_OF_TWO(type) _Static_assert((sizeof(type) & (sizeof(type) - 1)) == 0, #type " is padded to a power of two")
POWER_OF_TWO(struct mm_process);
POWER_OF_TWO(struct mm_pif);
POWER_OF_TWO(struct mm_fit);
POWER_OF_TWO(struct mm_frame);

struct mm_area {
    struct mm_header *head;
    int folder;                /* 0, or a descriptor of <store>/run: it leads there also after chroot */
    uint64_t store_dev;        /* the filesystem of that folder, once somebody asked; 0 */
    char store[MM_STORE_MAX];
    char *segment[MM_SEGMENTS][16];        /* by region; the first of all regions lie in one page, and most programs need no more */
};

int mm_is_still(uint32_t pid, uint64_t began);
int mm_table_set_to(struct mm_area *a, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count, uint64_t size);
int mm_run_is_watched(struct mm_area *a);
int mm_tell_run(struct mm_area *a, const char *text);
void *mm_region_map(struct mm_area *a, int region, uint64_t offset);
/* The few that every call needs are here and, for Python, in the one file that owns them. */
#define MM_INLINE extern inline __attribute__((gnu_inline))
/* the byte at an offset of a region; valid up to the end of its segment */
MM_INLINE void *mm_region(struct mm_area *a, int region, uint64_t offset)
{
    char *p = __atomic_load_n(&a->segment[offset >> MM_SEGMENT_BITS][region], __ATOMIC_ACQUIRE);
    if (__builtin_expect(p != NULL, 1))
        return p + (offset & ((1ul << MM_SEGMENT_BITS) - 1));
    return mm_region_map(a, region, offset);
}
/* the same, NULL where this process has not looked yet */
static inline void *mm_region_if_mapped(const struct mm_area *a, int region, uint64_t offset)
{
    char *p = __atomic_load_n(&a->segment[offset >> MM_SEGMENT_BITS][region], __ATOMIC_ACQUIRE);
    return p ? p + (offset & ((1ul << MM_SEGMENT_BITS) - 1)) : NULL;
}
static inline void *mm_page(struct mm_area *a, uint32_t page)
{
    return mm_region(a, PAGES, (uint64_t)page * MM_BLOCK);
}
int mm_reserve(struct mm_area *a, int region, uint64_t end);
int mm_header_open(struct mm_area *a);

MM_INLINE struct mm_process *mm_proc(struct mm_area *a, uint32_t process)
{
    return mm_region(a, PROCESSES, (uint64_t)process * sizeof(struct mm_process));
}
MM_INLINE struct mm_pif *mm_pif_at(struct mm_area *a, uint32_t slot)
{
    return mm_region(a, PIFS, (uint64_t)slot * sizeof(struct mm_pif));
}
MM_INLINE struct mm_fit *mm_fit_at(struct mm_area *a, uint32_t fit)
{
    return mm_region(a, FITS, (uint64_t)fit * sizeof(struct mm_fit));
}
MM_INLINE struct mm_frame *mm_frame_at(struct mm_area *a, uint32_t frame)
{
    return mm_region(a, FRAMES, (uint64_t)frame * sizeof(struct mm_frame));
}
MM_INLINE char *mm_frame_bytes(struct mm_area *a, uint32_t frame)
{
    return mm_region(a, CACHE, (uint64_t)frame * MM_CHUNK);
}
/* The frame of a chunk, 0 without. */
static inline uint32_t mm_frame_of(struct mm_area *a, uint64_t chunk)
{
    if (chunk * 4 >= a->head->reserved[CHUNKS])
        return 0;
    return __atomic_load_n((uint32_t *)mm_region(a, CHUNKS, chunk * 4), __ATOMIC_ACQUIRE);
}

/* Locks hold the owner's tid; a lock whose owner is dead is taken over: what it guards is true at every instruction. */
#define MM_WAITED 0x80000000u
#define MM_STARVED 0x40000000u         /* with no owner: kept for one that has waited long (lock.c) */
#define MM_OWNER 0x3fffffffu
extern __thread uint32_t mm_tid __attribute__((tls_model("initial-exec")));
/* for assertions: functions that are called with a lock held say so by it */
static inline int mm_locked_by_me(const uint32_t *lock)
{
    return mm_tid && (__atomic_load_n(lock, __ATOMIC_RELAXED) & MM_OWNER) == mm_tid;
}
char *mm_digits(char *to, uint64_t number);
int mm_owner_gone(uint32_t tid, const void *word);
int mm_half_restored(struct mm_area *a);
uint64_t mm_mounts_here(void);
int mm_lock_timed(uint32_t *lock, long timeout_ms);
int mm_handlers_wait(void);
/* kind: its place in the order.  1: it was the lock of somebody who was killed; else 0. */
static inline int mm_lock(uint32_t *lock, enum mm_lock_kind kind)
{
    uint32_t nobody = 0, me = mm_tid;
    MM_ASSERT(mm_handlers_wait());
    mm_lock_taking(lock, kind);
    if (__builtin_expect(me && __atomic_compare_exchange_n(lock, &nobody, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1)) {
        mm_lock_taken(lock, kind);
        return 0;
    }
    MM_STOP("lock.waits");
    int left = mm_lock_timed(lock, -1);
    mm_lock_taken(lock, kind);
    return left;
}
static inline void mm_lock_free(uint32_t *lock)
{
    uint32_t was = __atomic_exchange_n(lock, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(was & MM_WAITED, 0)) {
        if (was & MM_STARVED)
            __atomic_or_fetch(lock, MM_STARVED | MM_WAITED, __ATOMIC_RELAXED);   /* also where somebody has come in between */
        sys_futex_wake(lock, was & MM_STARVED ? 1 << 30 : 1);
    }
}
static inline void mm_unlock(uint32_t *lock)
{
    MM_ASSERT(mm_locked_by_me(lock));
    mm_lock_left(lock);
    mm_lock_free(lock);
}
void mm_release_locks(struct mm_area *a, uint32_t tid);
void mm_release_if(uint32_t *lock, uint32_t tid);
uint32_t mm_page_take(struct mm_area *a);
void mm_page_give(struct mm_area *a, uint32_t page);
int mm_journal_append(struct mm_area *a, const void *record, uint32_t length, const void *more, uint32_t more_length);

/* cache.c */
int mm_frame_write_back(struct mm_area *a, uint32_t frame, int buffer);
void mm_frame_free(struct mm_area *a, uint32_t frame);

/* table.c */
#define MM_FAN 512
#define MM_INDEX(block, level) ((block) >> (9 * (level)) & (MM_FAN - 1))
#define MM_TABLE_LIMIT (1ull << 27)
/* What a block table says of a block. */
static inline uint64_t mm_table_walk(struct mm_area *a, const uint32_t *from, uint64_t block)
{
    uint64_t entry = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    if (block >= MM_TABLE_LIMIT)
        return 0;
    for (int level = 2; level >= 0 && entry; level--) {
        if (level == 2)
            MM_STOP("table.walk");
        entry = __atomic_load_n(&((uint64_t *)mm_page(a, (uint32_t)entry))[MM_INDEX(block, level)], __ATOMIC_ACQUIRE);
    }
    return entry;
}
int mm_table_next(struct mm_area *a, struct mm_pif *p, uint64_t from, struct mm_range *run);
void mm_table_empty(struct mm_area *a, struct mm_pif *p);
void mm_table_free(struct mm_area *a, struct mm_pif *p);

/* lock_owner.c */
extern uint32_t *mm_as_a_call;

/* processes.c */
void mm_process_leave(struct mm_area *a, uint32_t process);
void mm_release_some_dead(struct mm_area *a, uint32_t pid);
uint32_t mm_process_of(struct mm_area *a, uint32_t pid);
int mm_birth_begin(struct mm_area *a);
void mm_child_joined(int header);

/* slots.c */
uint32_t mm_pif_make(struct mm_area *a, const struct mm_pif *as, const char *path);
uint32_t mm_pif_born(struct mm_area *a, int dir, const char *path, int flags, uint64_t dev, uint64_t ino, uint32_t slot);
uint32_t mm_fit_new(struct mm_area *a);
void mm_fit_ref(struct mm_area *a, uint32_t fit);
void mm_fit_unref(struct mm_area *a, uint32_t fit);
void mm_mapped_unfollowed(struct mm_area *a, uint64_t dev, uint64_t ino);
int mm_was_mapped(struct mm_area *a, uint64_t dev, uint64_t ino);
void mm_pif_drop(struct mm_area *a, uint32_t slot);
void mm_pif_hide(struct mm_area *area, uint32_t slot);
int mm_pif_ref(struct mm_area *a, uint32_t slot, uint64_t dev, uint64_t ino);
/* The names_lock, unless this thread has it: 0 then. */
static inline int mm_pif_hold_names(struct mm_pif *p)
{
    uint32_t holder = __atomic_load_n(&p->names_lock, __ATOMIC_RELAXED);
    if (__builtin_expect(holder != 0, 0) && (holder & MM_OWNER) == mm_tid)
        return 0;
    mm_lock(&p->names_lock, MM_LOCK_FILE_NAMES);
    return 1;
}

static inline void mm_pif_let_names_go(struct mm_pif *p, int held)
{
    if (held)
        mm_unlock(&p->names_lock);
}

/* space_reserve.c */
int mm_room_held(struct mm_area *a, uint64_t more);
int mm_room_set_aside(struct mm_area *a, struct mm_process *process, uint32_t blocks);
void mm_room_set_back(struct mm_area *a, struct mm_process *process, uint32_t blocks, int needed);
void mm_room_of_dead(struct mm_area *a, struct mm_process *process);

/* context.c; what the rooms above see of it by this header */
extern struct mm_area *mm_area;          /* NULL: not under Metamori, or not yet; once there it stays, for threads that look at it */
extern struct mm_header *mm_memory_head; /* of a run with memory */
extern int mm_uffd;                      /* -1: changes are not counted */
/* The program has put memory under a protection key: the signal's handler may not read it, also when the key was freed. */
extern int mm_keys;
/* It has kept memory from its children (MADV_DONTFORK, MADV_WIPEONFORK): a copy of the process would lack that, too. */
extern int mm_kept_from_children;
/* A thread may have a folder and umask, a network or IPC namespace of its own; the kernel may be about to tell the program of changes in one (F_NOTIFY). */
extern int mm_folders_apart, mm_places_apart, mm_folders_told;
/* of a thread that came back: its number as the program knows it */
extern __thread uint32_t mm_known_tid __attribute__((tls_model("initial-exec")));
/* This thread has a process number of the kernel's in hand, or is about to get one: no image is made (memory/numbers.c). */
extern __thread uint32_t mm_numbers __attribute__((tls_model("initial-exec")));

#pragma GCC visibility pop

#endif
