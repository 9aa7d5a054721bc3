/* area/area.h - the run area, mapped by every process of the run, and the process that this is.
 *
 * enter() and leave() make a call: a freeze, and so a checkpoint, waits for those that have begun and lets none begin.  They nest.
 * hold() and release() are the PIF's lock, mm_lock and mm_unlock any other: they hold the owner's thread number, and a lock
 * whose owner was killed is taken over, so what it guards is true at every instruction.  Nothing allocates; slots, blocks and
 * frames come out of the area.  area_internal.h: what the files of this room offer each other, and Python by _area.
 */
#ifndef MM_ROOM_AREA_H
#define MM_ROOM_AREA_H

#include "base/base.h"
#include "base/reserve_fds.h"
#include "area/area_internal.h"

#pragma GCC visibility push(hidden)

struct mm_descriptor {
    uint32_t fit;              /* 0: not a regular file that we know */
    uint32_t slot;              /* 0: nothing of this file is tracked */
    uint32_t generation;       /* of the PIF table when slot was looked up, or MM_CHANGING */
};
#define MM_CHANGING UINT32_MAX         /* no generation: the number is about to mean another file, or none (renumber.c) */

/* init.c registers what these do (a call may come before our constructor) */
struct mm_life {
    void (*begin)(void);                 /* joins the run */
    int (*begin_late)(void);             /* by hand in LD_PRELOAD: starts the run at the first need */
    void (*in_child)(void);              /* after a fork, in the child */
    void (*last_out)(void);              /* the process ends: was it the run's last? */
    void (*over)(void);                  /* the run is over, and threads of this process still run */
};
extern struct mm_life mm_life;

/* context.c; more of it in area_internal.h */
extern struct mm_descriptor mm_fds[MM_FDS];
extern int mm_top_fd;
extern int mm_active;                    /* part of the run: a call that begins now is tracked */
extern int mm_ready;
extern struct mm_process *mm_self;
extern uint32_t mm_self_process;
extern int mm_buffer_fd, mm_watch_fd, mm_birth_fd, mm_report_fd;
extern const char *mm_single_threaded; /* the C library's own word, which older ones do not have */
extern int mm_cloned;                  /* by hand: the C library may not know of all threads */
extern int mm_memory_shared;
extern int mm_in_vfork;                /* a child of vfork: it has no runtime */
extern uint32_t mm_streams_lock;       /* held while a FIT's stream is looked at, or forgotten before its FILE goes */
extern uint32_t mm_noted_lock;
extern __thread uint32_t mm_fork_numbers __attribute__((tls_model("initial-exec")));   /* mm_numbers will be, by a fork */
extern void (*mm_on_tracked)(int fd);    /* a descriptor of a tracked file has appeared: wrap_async_io.c, once there is a ring */
void mm_begin(void);
int mm_begin_late(void);
void mm_in_child(void);
void mm_last_out(void);
void mm_run_over(void);
int mm_stranger(void);
int mm_same_namespace(struct mm_area *area);
int mm_memory_run(void);

/* guard.c */
/* How deep in tracked calls a thread is, and whether a handler waits for their end: one word, for they are taken back and looked
 * at by one instruction (mm_out). */
union mm_call { struct { int depth, waited_for; }; uint64_t both; };
extern __thread union mm_call mm_call __attribute__((tls_model("initial-exec")));
#define mm_depth mm_call.depth
extern int mm_unwrapped_handlers;
extern __thread int mm_holding __attribute__((tls_model("initial-exec")));
extern __thread uint64_t mm_deferred __attribute__((tls_model("initial-exec")));
#define MM_CANCELLED (1ull << 31)         /* in it: the C library's signal 32, which is not blocked meanwhile (memory/handler.c) */
void mm_deliver(void);

static inline void mm_defer(uint64_t bit)
{
    mm_deferred |= bit;
    mm_call.waited_for = 1;
}

static inline void mm_deliver_if_free(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);       /* what said that they wait is taken back before it is looked whether one does */
    if (UNLIKELY(mm_deferred) && !mm_depth && !mm_holding)
        mm_deliver();
}

/* report.c */
void mm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* guard.c */
void mm_enter_wait(int on_file);

/* in the count of calls while a descriptor of this process becomes another file's: those that begin wait */
#define MM_RENUMBERING 0x80000000u
extern uint32_t mm_renumbering;        /* what they wait at */

/* on_file: what the call is about is looked up again in mm_fds before anything else, and may be tracked no more. */
static inline void enter_as(int on_file)
{
    MM_ASSERT(mm_depth > 0 || !mm_locks_held(MM_LOCK_NAME, MM_LOCK_LIMITS));     /* it may wait for others' calls, and they for these */
    if (mm_depth++ == 0) {
        if (UNLIKELY(__atomic_add_fetch((int32_t *)&mm_self->calls, 1, __ATOMIC_SEQ_CST) < 0)
            || UNLIKELY(__atomic_load_n(&mm_area->head->freeze, __ATOMIC_SEQ_CST)))
            mm_enter_wait(on_file);
    }
}
static inline void enter(void) { enter_as(0); }

/* Whether nothing else of this process can begin or end a call meanwhile: no other thread, nor a handler that does not wait for
 * this thread's call, nor an image of its memory.  Then no locked instruction is needed to count it. */
static inline int mm_alone(void) { return *mm_single_threaded && !(mm_cloned | mm_unwrapped_handlers) && !mm_memory_head; }

/* enter_as(1) of one that takes a file's lock next; 1: it is alone, and that lock's instruction stands between the count and the look
 * for a freeze (mm_unfrozen).  Until then a checkpoint may be under way: nothing but the lock is changed, and what says
 * that its owner died (broken_off).  The file is open here, so that its slot is no other file's, whatever the checkpoint does.
 * Handlers wait before it is looked: one might begin a thread. */
static inline int mm_enter_alone(void)
{
    MM_ASSERT(mm_depth > 0 || !mm_locks_held(MM_LOCK_NAME, MM_LOCK_LIMITS));
    mm_depth++;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (UNLIKELY(!mm_alone())) {
        mm_depth--;
        enter_as(1);
        return 0;
    }
    MM_STOP("data.alone");
    MM_ASSERT(mm_alone());
    if (mm_depth == 1) {
        MM_ASSERT(!(mm_self->calls & MM_RENUMBERING));
        mm_self->calls++;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    return 1;
}
/* Behind the lock.  0: it is left, and then the call waits outside. */
static inline int mm_unfrozen(void)
{
    sys_barrier_behind_lock();
    MM_ASSERT(mm_self->calls & ~MM_RENUMBERING);   /* whoever freezes now waits for this call */
    return LIKELY(!__atomic_load_n(&mm_area->head->freeze, __ATOMIC_RELAXED)) || mm_depth > 1;
}

/* 0: the thread is in no call any more, and no handler waits for that.  One that comes behind it may never come back. */
static inline int mm_out(void)
{
#if defined(__x86_64__)
    int rest;
    __asm__ volatile("subq $1, %0" : "+m"(mm_call.both), "=@ccnz"(rest) : : "memory");
    return rest;
#else
    mm_depth--;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return (*(volatile uint64_t *)&mm_call.both) != 0;
#endif
}

/* The count goes down first: a thread that a handler ends in between would leave its call under way for ever. */
static inline void leave(void)
{
    MM_ASSERT(mm_depth > 0);
    if (UNLIKELY(mm_depth > 1)) {
        mm_out();
        return;
    }
    __atomic_sub_fetch(&mm_self->calls, 1, __ATOMIC_RELEASE);
    if (UNLIKELY(mm_out()))
        mm_deliver_if_free();
}
/* The same; it is looked again whether the thread is alone: a handler of what its own instruction raised may have begun others. */
static inline void mm_leave_alone(void)
{
    if (UNLIKELY(mm_depth > 1) || !LIKELY(mm_alone())) {
        leave();
        return;
    }
    sys_barrier_before_store();
    mm_self->calls--;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    mm_depth = 0;                      /* behind it, so that handlers wait */
    mm_deliver_if_free();
}

/* What was stored into a mapped file before a sync is in a checkpoint that holds anything stored after it: to stores of
 * running threads a checkpoint from outside is what a power cut would be, and the calls that order them keep their order. */
static inline void mapped_barrier(void)
{
    if (mm_active && UNLIKELY(__atomic_load_n(&mm_area->head->mapped, __ATOMIC_RELAXED))) {
        enter();
        leave();
    }
}

/* descriptor_table.c: mm_fds changes between these two, so that a fork finds it whole */
extern uint32_t mm_table_lock;
int mm_table_begin(void);
void mm_table_end(int locked_here);
uint32_t mm_stable(int fd);
uint32_t mm_pif_again(int fd);

/* scope.c */
int mm_scope_all(struct mm_area *a, int (*is_so)(const char *folder));

/* What is found from here on may be noted as of this one; 0 is none, and looked at again. */
static inline uint32_t mm_generation(void)
{
    uint32_t now = __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE);
    return now & 1 ? 0 : now;
}

static inline uint32_t pif_of(int fd)
{
    if (UNLIKELY((unsigned)fd >= MM_FDS) || !__atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE) || UNLIKELY(!mm_area))
        return 0;
    if (__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE)
        != __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE))
        return mm_pif_again(fd);
    return __atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED);
}

/* A quick look: a few loads and no call, so that a wrapper that hands on to the kernel saves no register.  UNSURE where there is
 * more to find out; whoever gets that looks again by pif_of. */
enum mm_kind { MM_UNSURE, MM_UNTRACKED, MM_IN_PLACE, MM_REDIRECTED };
struct mm_fd_view { uint32_t slot, fit; struct mm_pif *p; struct mm_fit *f; };

static inline enum mm_kind mm_look(int fd, struct mm_fd_view *seen)
{
    const struct mm_area *a = mm_area;
    if (UNLIKELY(!a) || UNLIKELY((unsigned)fd >= (unsigned)mm_lowest_own))     /* it may be ours, or too high for the table */
        return MM_UNSURE;
    uint32_t fit = __atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE);
    if (!fit)
        return MM_UNTRACKED;
    if (UNLIKELY(__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE)
                 != __atomic_load_n(&a->head->pif_generation, __ATOMIC_ACQUIRE)))
        return MM_UNSURE;
    seen->slot = __atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED);
    seen->fit = fit;
    if (!seen->slot)
        return MM_UNTRACKED;
    seen->p = mm_region_if_mapped(a, PIFS, (uint64_t)seen->slot * sizeof *seen->p);
    seen->f = mm_region_if_mapped(a, FITS, (uint64_t)fit * sizeof *seen->f);
    if (UNLIKELY(!seen->p || !seen->f))
        return MM_UNSURE;
    return __atomic_load_n(&seen->p->root, __ATOMIC_ACQUIRE) || seen->f->owned
        || (__atomic_load_n(&seen->p->flags, __ATOMIC_RELAXED) & MM_VIRTUAL) ? MM_REDIRECTED : MM_IN_PLACE;
}

/* What was looked at before enter() may be no more after it: a program whose memory is saved while it waits there comes back
 * in another process, where the run area is a new one and every slot may be another.  So a slot is what it is after it. */
static inline int mm_still(const struct mm_fd_view *seen, int fd)
{
    return LIKELY(__atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED) == seen->slot)
        && LIKELY(__atomic_load_n(&mm_fds[fd].fit, __ATOMIC_RELAXED) == seen->fit);
}

/* The call begins on a file that was just seen to be tracked: its PIF.  0: it is not any more, and nothing has begun. */
static inline uint32_t enter_file(int fd)
{
    MM_STOP("data.looked");
    enter_as(1);
    uint32_t slot = pif_of(fd);
    if (UNLIKELY(!slot))
        leave();
    return slot;
}

static inline uint32_t mm_pif_of(const struct statx *st)
{
    return mm_pif_find(mm_area, sys_dev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino, sys_birth(st));
}

/* The PIF of a file that was just looked at, and has this number.  One without a name, of which the store has a copy, may have had
 * the number before, and still count as open by a process that was killed; in a job, any that another run has removed. */
static inline uint32_t mm_pif_there(struct mm_area *a, int dir, const char *path, int flags, uint64_t dev, uint64_t ino)
{
    const uint32_t gone = MM_COPIED | MM_NAMELESS;
    uint32_t slot = mm_pif_find(a, dev, ino, 0);
    int sure = !slot || !((mm_pif_at(a, slot)->flags & gone) == gone || a->head->flags & MM_JOB);
    return LIKELY(sure) ? slot : mm_pif_born(a, dir, path, flags, dev, ino, slot);
}

/* every byte in place, the kernel knows the size */
static inline int is_native(const struct mm_pif *p)
{
    return !__atomic_load_n(&p->root, __ATOMIC_ACQUIRE)
        && !(__atomic_load_n(&p->flags, __ATOMIC_RELAXED) & MM_VIRTUAL);
}

#define MM_ANY_SIZE (1ull << 62)         /* no file is longer */

/* nothing is written back before the commit */
#define ISOLATED(p) ((p)->fresh_from == MM_NO_LIMIT)

/* Untracked programs live, and the file does not stay in place for them yet. */
static inline int untracked_see(const struct mm_pif *p)
{
    return UNLIKELY(mm_area->head->untracked) && !(p->flags & (MM_HOME | MM_COPIED));
}

/* Bytes that the file surely has, without asking how long it is.  Of one that a checkpoint did not find, fresh_from says nothing. */
static inline uint64_t mm_known_size(const struct mm_pif *p)
{
    if (p->flags & MM_VIRTUAL)
        return p->size;
    uint64_t limit = __atomic_load_n(&p->home_limit, __ATOMIC_RELAXED);
    return p->fresh_from < MM_ANY_SIZE ? p->fresh_from : limit != MM_NO_LIMIT ? limit : 0;
}
/* Has the buffer more of a file's last block than the file, if it has it?  Then its end there (mm_has_tail) is not in that block, or lies
 * behind it. */
static inline int mm_may_have_more(const struct mm_pif *p, uint64_t size)
{
    return size % MM_BLOCK && !(p->flags & MM_VIRTUAL)
        && (p->size > size || p->size % MM_BLOCK == 0 || p->size / MM_BLOCK != size / MM_BLOCK);
}
static inline int mm_more_than(struct mm_area *a, struct mm_pif *p, uint64_t size)
{
    return mm_may_have_more(p, size)
        && mm_table_get(a, p, size / MM_BLOCK)
        && !(p->size < size && p->size % MM_BLOCK && mm_table_get(a, p, p->size / MM_BLOCK));
}
/* Somebody outside of the run has cut it. */
static inline void mm_pif_shorter(struct mm_pif *p, uint64_t size)
{
    p->cut = size < p->cut ? size : p->cut;
    if (p->fresh_from < MM_ANY_SIZE)
        __atomic_store_n(&p->fresh_from, size, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&p->home_limit, size, __ATOMIC_RELEASE);
}
static inline int open_flags(int fd) { return (int)mm_fit_at(mm_area, mm_fds[fd].fit)->attributes; }
/* access mode 3 is neither: such a descriptor is for ioctl only */
static inline int readable(int fd) { return !(open_flags(fd) & O_WRONLY); }
static inline int writable(int fd) { int mode = open_flags(fd) & O_ACCMODE; return mode == O_WRONLY || mode == O_RDWR; }

/* fsize_limit.c */
extern uint64_t mm_size_limit;           /* RLIM_INFINITY: none; 0: not asked for yet */
static inline int mm_no_limit(void) { return LIKELY(__atomic_load_n(&mm_size_limit, __ATOMIC_RELAXED) == RLIM_INFINITY); }
void mm_lift_limit(int back);
int mm_unlimited_slow(void);
static inline int mm_unlimited(void) { return mm_no_limit() || mm_unlimited_slow(); }
uint64_t mm_limit_begin(void);
void mm_limit_end(uint64_t mask);
void mm_limit_after_fork(void);
long mm_within_limit(uint64_t at, size_t *count);
#define MM_MASK_LEFT (~0ull)             /* no mask: SIGKILL is never in one */

/* While a lock is held the program's signal handlers wait: one might want what it guards. */
static inline uint64_t defer_handlers(void)
{
    mm_holding++;
    return UNLIKELY(mm_unwrapped_handlers) ? sys_mask_all() : MM_MASK_LEFT;
}

static inline void deliver_handlers(uint64_t mask)
{
    if (UNLIKELY(mask != MM_MASK_LEFT))
        sys_mask_back(mask);
    MM_ASSERT(mm_holding > 0);
    mm_holding--;
    mm_deliver_if_free();
}

/* The same with any other lock. */
static inline void mm_lock_own(uint32_t *lock, enum mm_lock_kind kind)
{
    mm_holding++;
    mm_lock(lock, kind);
}
static inline void mm_unlock_own(uint32_t *lock)
{
    mm_unlock(lock);
    mm_holding--;
    mm_deliver_if_free();
}

/* The PIF's lock, where the program's handlers wait already (in a call: wrap_signal.c). */
static inline void hold_within(struct mm_pif *p)
{
    MM_ASSERT(mm_depth > 0 || mm_holding > 0);
    if (UNLIKELY(mm_lock(&p->lock, MM_LOCK_FILE)))
        p->broken_off = 1;
    if (UNLIKELY(!mm_no_limit()))
        mm_lift_limit(0);
}

static inline void release_within(struct mm_pif *p)
{
    if (UNLIKELY(__atomic_load_n(&mm_lifted[MM_SIZE_LIMIT], __ATOMIC_RELAXED)))
        mm_lift_limit(1);
    mm_unlock(&p->lock);
}

/* The PIF's lock. */
static inline uint64_t hold(struct mm_pif *p)
{
    uint64_t mask = defer_handlers();
    hold_within(p);
    return mask;
}

static inline void release(struct mm_pif *p, uint64_t mask)
{
    release_within(p);
    deliver_handlers(mask);
}

/* the first touch in an epoch */
static inline void touched(uint32_t slot, struct mm_pif *p)
{
    if (UNLIKELY(p->epoch != mm_area->head->epoch))
        mm_pif_touched(mm_area, slot);
}

/* report.c */
int mm_first_time(uint64_t key);

/* The kernel is about to change any bytes of a file whose mappings are watched: the next checkpoint compares it. */
static inline void mm_unseen_in(struct mm_pif *p) { __atomic_add_fetch(&p->unseen, 1, __ATOMIC_SEQ_CST); }
#pragma GCC visibility pop

#endif
