/* shim.h - what the wrappers share.
 *
 * Every wrapper: if the call is about nothing that is followed, the real call at once.  Otherwise between enter() and
 * leave(), which a checkpoint waits for, and with slots that were looked up in between.  Engine code uses raw system calls (sys.h): it is never intercepted, never a
 * cancellation point, and returns -errno; only the outermost wrapper sets errno.
 */
#ifndef MM_SHIM_H
#define MM_SHIM_H

#define _GNU_SOURCE
#include <aio.h>
#include <fts.h>
#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdint.h>
#include <grp.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/vlimit.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <threads.h>
#include <utime.h>
#include <wchar.h>

#include "area_internal.h"
#include "lift.h"

#pragma GCC visibility push(hidden)    /* as in area_internal.h */

typedef void (*mm_handler)(int);

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Functions that every call passes through and that have no array: the compiler's guard of the stack guards nothing there. */
#define HOT __attribute__((no_stack_protector))

#define CALL(group, type, name, parameters) extern type (*real_##name) parameters;
#define ALIAS(group, alias, name)
#include "calls.def"
#undef CALL
#undef ALIAS

/* the real call; another library's constructor may come before ours */
#define REAL(name) (LIKELY(real_##name) ? real_##name : (mm_begin(), real_##name))

/* in the file that holds the wrappers of a group, after them */
#define SYMBOL_ALIAS(alias, name) \
    __asm__(".globl " #alias "\n.type " #alias ",%function\n.set " #alias "," #name "\n");

#define MM_TRANSFER 0x7ffff000ul       /* bytes that the kernel moves in one call (MAX_RW_COUNT) */
#define MM_FDS 1048576                 /* the kernel's own limit unless fs.nr_open was raised */
struct mm_descriptor {
    uint32_t fit;              /* 0: not a regular file that we know */
    uint32_t pif;              /* 0: nothing of this file is followed */
    uint32_t generation;       /* of the PIF table when pif was looked up, or MM_CHANGING */
};
#define MM_CHANGING UINT32_MAX         /* no generation: the number is about to mean another file, or none (renumber.c) */
extern struct mm_descriptor mm_fds[MM_FDS];

extern struct mm_area *mm_area;          /* NULL: not under Metamori, or not yet */
extern struct mm_process *mm_self;
extern uint32_t mm_self_slot;
extern int mm_buffer_fd;
extern __thread int mm_depth __attribute__((tls_model("initial-exec")));

/* wrap_signal.c: a handler waits while its thread is in a followed call */
extern int mm_unwrapped_handlers;
extern __thread int mm_holding __attribute__((tls_model("initial-exec")));
extern __thread uint64_t mm_deferred __attribute__((tls_model("initial-exec")));
extern __thread int mm_within_syscall __attribute__((tls_model("initial-exec")));
void mm_actions_after_fork(void);
void mm_deliver(void);
static inline void mm_deliver_if_free(void)
{
    if (UNLIKELY(mm_deferred) && !mm_depth && !mm_holding)
        mm_deliver();
}

/* context.c: init.c registers what these do (a call may come before our constructor) */
struct mm_life {
    void (*begin)(void);                 /* joins the run */
    int (*begin_late)(void);             /* by hand in LD_PRELOAD: starts the run at the first need */
    void (*in_child)(void);              /* after a fork, in the child */
    void (*last_out)(void);              /* the process ends: was it the run's last? */
};
extern struct mm_life mm_life;
void mm_begin(void);
int mm_begin_late(void);
void mm_in_child(void);
void mm_last_out(void);
void mm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int mm_same_namespace(struct mm_area *area);
void mm_resolve(void);
void mm_old_libc(void);
extern int mm_ready;
extern const char *mm_single_threaded; /* the C library's own word, which older ones do not have */
/* is the process part of a run? */
static inline int active(void)
{
    if (UNLIKELY(!mm_ready))
        mm_begin();
    return mm_area != NULL;
}
/* the same before a call that changes something: by hand in LD_PRELOAD, the run begins here */
static inline int following(void) { return active() || (UNLIKELY(mm_ready == 2) && mm_begin_late()); }
void mm_enter_wait(void);
/* renumber.c: in the count of calls while a descriptor of this process becomes another file's: those that begin wait */
#define MM_RENUMBERING 0x80000000u
extern uint32_t mm_renumbering;        /* what they wait at */
static inline void enter(void)
{
    if (mm_depth++ == 0) {
        if (UNLIKELY(__atomic_add_fetch((int32_t *)&mm_self->calls, 1, __ATOMIC_SEQ_CST) < 0)
            || UNLIKELY(__atomic_load_n(&mm_area->head->freeze, __ATOMIC_SEQ_CST)))
            mm_enter_wait();
    }
}
static inline void leave(void)
{
    MM_ASSERT(mm_depth > 0);
    if (--mm_depth == 0) {
        __atomic_sub_fetch(&mm_self->calls, 1, __ATOMIC_RELEASE);
        mm_deliver_if_free();
    }
}

/* What was stored into a mapped file before a sync is in a checkpoint that holds anything stored after it: to stores of
 * running threads a checkpoint from outside is what a power cut would be, and the calls that order them keep their order. */
static inline void mapped_barrier(void)
{
    if (mm_area && UNLIKELY(__atomic_load_n(&mm_area->head->mapped, __ATOMIC_RELAXED))) {
        enter();
        leave();
    }
}

/* wrap_stream.c: held while a FIT's stream is looked at, or forgotten before its FILE goes */
extern uint32_t mm_streams_lock;
/* wrap_map.c */
extern uint32_t mm_noted_lock;

/* descriptors.c */
int mm_opened(int fd, int flags, mode_t mode, int created, const char *path);
struct open_how;
int mm_open_resolved(int dir, const char *path, const struct open_how *how, size_t size);
void mm_closing(int fd);
void mm_replaced_unseen(int fd);
uint32_t mm_stable(int fd);
void mm_forget_descriptors(void);
void mm_duplicated(int fd, int to);
uint32_t mm_pif_again(int fd);
int mm_home_reader(uint32_t pif, int fd);
int mm_own_reader(uint32_t pif, int fd);
void mm_locking(uint32_t pif, int fd);
int mm_locked_reader(uint32_t pif);
void mm_drop_reader(uint32_t pif);
void mm_readers_after_fork(void);
void mm_readers_before_exec(void);
void mm_readers_exec_failed(void);
void mm_readers_after_exec(void);
int mm_stranger(void);
void mm_map(int fd, uint32_t fit, uint32_t pif, uint32_t generation);
extern uint32_t mm_table_lock;
int mm_table_begin(void);
void mm_table_end(int locked_here);
extern __thread int mm_forking __attribute__((tls_model("initial-exec")));
int mm_is_ours(int fd);
int mm_next_own(int from);
void mm_move_own(int fd);
int mm_high_fd(int fd);
void mm_hold_spares(void);
long mm_open_own(const char *path, int flags);
void mm_adopt(void);
void mm_came(int fd, int received);
void mm_fork_begin(void);
void mm_fork_in_parent(void);
void mm_after_fork(void);
extern int mm_memory_shared;
void mm_other_world(unsigned long clone_flags);

/* renumber.c */
struct mm_going { uint32_t fit, pif; };
struct mm_onto { int fd, to, outermost, was_followed; struct mm_going before; };
int mm_going(int fd, struct mm_going *going);
void mm_went(int fd, const struct mm_going *going);
long mm_close(int fd);
void mm_onto_begin(struct mm_onto *onto, int fd, int to);
void mm_onto_end(const struct mm_onto *onto, int done);
void mm_renumber_in_child(void);

/* elsewhere.c */
extern int mm_elsewhere;                 /* names may lead elsewhere than in the rest of the run */
void mm_join_elsewhere(struct mm_area *area);
int mm_leads_elsewhere(const char *path);
void mm_said_elsewhere(const char *path);
extern int mm_top_fd;
static inline uint32_t pif_of(int fd)
{
    if (UNLIKELY((unsigned)fd >= MM_FDS) || !__atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE) || UNLIKELY(!mm_area))
        return 0;
    if (__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE)
        != __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE))
        return mm_pif_again(fd);
    return __atomic_load_n(&mm_fds[fd].pif, __ATOMIC_RELAXED);
}
/* A quick look: a few loads and no call, so that a wrapper that hands on to the kernel saves no register.  UNSURE where there is
 * more to find out; whoever gets that looks again by pif_of. */
enum mm_kind { MM_UNSURE, MM_UNFOLLOWED, MM_ALL_HOME, MM_REDIRECTED };
struct mm_seen { uint32_t slot, fit; struct mm_pif *p; struct mm_fit *f; };
static inline enum mm_kind mm_look(int fd, struct mm_seen *seen)
{
    const struct mm_area *a = mm_area;
    if (UNLIKELY(!a) || UNLIKELY((unsigned)fd >= MM_FDS))
        return MM_UNSURE;
    uint32_t fit = __atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE);
    if (!fit)
        return MM_UNFOLLOWED;
    if (UNLIKELY(__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE)
                 != __atomic_load_n(&a->head->pif_generation, __ATOMIC_ACQUIRE)))
        return MM_UNSURE;
    seen->slot = __atomic_load_n(&mm_fds[fd].pif, __ATOMIC_RELAXED);
    seen->fit = fit;
    if (!seen->slot)
        return MM_UNFOLLOWED;
    seen->p = mm_region_if_mapped(a, PIFS, (uint64_t)seen->slot * sizeof *seen->p);
    seen->f = mm_region_if_mapped(a, FITS, (uint64_t)fit * sizeof *seen->f);
    if (UNLIKELY(!seen->p || !seen->f))
        return MM_UNSURE;
    return __atomic_load_n(&seen->p->root, __ATOMIC_ACQUIRE) || seen->f->owned
        || (__atomic_load_n(&seen->p->flags, __ATOMIC_RELAXED) & MM_VIRTUAL) ? MM_REDIRECTED : MM_ALL_HOME;
}
/* What was looked at before enter() may be no more after it: a program whose memory is saved while it waits there comes back
 * in another process, where the run area is a new one and every slot may be another.  So a slot is what it is after it. */
static inline int mm_still(const struct mm_seen *seen, int fd)
{
    return LIKELY(__atomic_load_n(&mm_fds[fd].pif, __ATOMIC_RELAXED) == seen->slot)
        && LIKELY(__atomic_load_n(&mm_fds[fd].fit, __ATOMIC_RELAXED) == seen->fit);
}
/* The call begins on a file that was just seen to be followed: its PIF.  0: it is not any more, and nothing has begun. */
static inline uint32_t enter_file(int fd)
{
    enter();
    uint32_t slot = pif_of(fd);
    if (UNLIKELY(!slot))
        leave();
    return slot;
}
/* is the position of this description the FIT's? */
static inline int owned(int fd) { return UNLIKELY(mm_fit_at(mm_area, mm_fds[fd].fit)->owned != 0); }
/* every byte at home, the kernel knows the size */
static inline int is_native(const struct mm_pif *p)
{
    return !__atomic_load_n(&p->root, __ATOMIC_ACQUIRE)
        && !(__atomic_load_n(&p->flags, __ATOMIC_RELAXED) & MM_VIRTUAL);
}

/* nothing goes home before the commit */
#define ISOLATED(p) ((p)->fresh_from == MM_NO_LIMIT)
/* Bytes that the file surely has, without asking how long it is. */
static inline uint64_t mm_known_size(const struct mm_pif *p)
{
    if (p->flags & MM_VIRTUAL)
        return p->size;
    uint64_t limit = __atomic_load_n(&p->home_limit, __ATOMIC_RELAXED);
    return !ISOLATED(p) ? p->fresh_from : limit != MM_NO_LIMIT ? limit : 0;
}

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
static inline int open_flags(int fd) { return (int)mm_fit_at(mm_area, mm_fds[fd].fit)->attributes; }
static inline int readable(int fd) { return (open_flags(fd) & O_ACCMODE) != O_WRONLY; }
static inline int writable(int fd) { return (open_flags(fd) & O_ACCMODE) != O_RDONLY; }
/* a result of the engine as the C library gives it */
static inline long result(long r)
{
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

/* data.c: the engine; results or -errno */
long mm_read(uint32_t pif, int fd, const struct iovec *v, int n, off_t at);
long mm_write(uint32_t pif, int fd, const struct iovec *v, int n, off_t at, int append);
long mm_size(struct mm_pif *p, int fd);
long mm_truncate(uint32_t pif, int fd, uint64_t length);
long mm_seek(uint32_t pif, int fd, off_t at, int whence);
void mm_give_position(int fd);
void mm_give_position_held(int fd);
void mm_stamp(struct mm_pif *p);
uint64_t mm_take_blocks(struct mm_pif *p, uint64_t count);
long mm_hand_over(uint32_t pif, int fd);
long mm_extent(uint32_t pif, int fd, off_t at, int whence);
long mm_zero(uint32_t pif, int fd, uint64_t start, uint64_t end);
long mm_read_some(uint32_t pif, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at, uint64_t size);
long mm_write_some(uint32_t pif, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at, uint64_t size);

/* together.c */
#define MM_RUN_MAX 256                   /* blocks that one write gives new places */
#define MM_SCATTERED 4                   /* pieces from which on it pays to write them as one */
static inline int mm_own(uint64_t entry) { return entry >= mm_area->head->epoch_block; }
long mm_write_together(uint32_t pif, struct mm_pif *p, const char *from, size_t count, uint64_t at);

/* limits.c */
extern uint64_t mm_size_limit;           /* RLIM_INFINITY: none; 0: not asked for yet */
static inline int mm_no_limit(void) { return LIKELY(__atomic_load_n(&mm_size_limit, __ATOMIC_RELAXED) == RLIM_INFINITY); }
void mm_lift_limit(int back);
int mm_unlimited_slow(void);
static inline int mm_unlimited(void) { return mm_no_limit() || mm_unlimited_slow(); }
uint64_t mm_limit_begin(void);
void mm_limit_end(uint64_t mask);
void mm_limit_after_fork(void);
long mm_within_limit(uint64_t at, size_t *count);
int mm_reachable(int fd, uint64_t at);
long mm_may_reach(int fd, uint64_t at, size_t *count);

/* home.c: files whose bytes are (and stay) at home */
#define MM_UNSEEN 1                      /* they may change without any call that we see */
long mm_settle(uint32_t pif, int fd);
void mm_settle_program(uint32_t pif, int fd);
long mm_stay_home(uint32_t pif, int fd, int how, uint32_t flags);
void mm_home_by_name(uint32_t pif, const char *path, int how, uint32_t flags);
void mm_all_home(uint64_t dev);
long mm_write_home(uint32_t pif, int fd, const struct iovec *v, int n, off_t at, int append);

long mm_own_position(struct mm_fit *f, int fd);
void mm_show_position(struct mm_fit *f, int fd);
int mm_position_begin(struct mm_fit *f);
void mm_position_end(struct mm_fit *f, int held);

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

/* The PIF's lock. */
static inline uint64_t hold(struct mm_pif *p)
{
    uint64_t mask = defer_handlers();
    mm_lock(&p->lock);
    if (!mm_no_limit())
        mm_lift_limit(0);
    return mask;
}

static inline void release(struct mm_pif *p, uint64_t mask)
{
    if (UNLIKELY(__atomic_load_n(&mm_lifted[MM_SIZE_LIMIT], __ATOMIC_RELAXED)))
        mm_lift_limit(1);
    mm_unlock(&p->lock);
    deliver_handlers(mask);
}

/* slots.c: the first touch in an epoch */
static inline void touched(uint32_t slot, struct mm_pif *p)
{
    if (UNLIKELY(p->epoch != mm_area->head->epoch))
        mm_pif_touched(mm_area, slot);
}

/* buffer.c */
/* what is written to the buffer: the program's bytes over blocks that are there; into blocks that were handed out to it; what a
 * block held before, from our own memory, into such a block */
enum { MM_WRITTEN_OVER, MM_WRITTEN_NEW, MM_COPIED_UP };
long mm_buffer_write(uint32_t slot, struct mm_pif *p, const void *from, size_t count, uint64_t at, int what);
long mm_buffer_read(uint32_t slot, struct mm_pif *p, void *to, size_t count, uint64_t at, int in_sequence);
extern uint32_t mm_map_generation;
struct mm_tried { uintptr_t first, last; uint32_t generation; };
extern __thread struct mm_tried mm_tried[3] __attribute__((tls_model("initial-exec")));
size_t mm_try(const void *p, size_t count, int what);
/* How many of these bytes (not 0), from the first on, may be touched.  what: 0 to read, 1 to write, 2 to read a vector. */
static inline size_t mm_usable(const void *p, size_t count, int what)
{
    const struct mm_tried *t = &mm_tried[what];
    return LIKELY((uintptr_t)p >= t->first && (uintptr_t)p + count - 1 <= t->last
                  && t->generation == __atomic_load_n(&mm_map_generation, __ATOMIC_RELAXED)) ? count : mm_try(p, count, what);
}
/* Bytes [low, high) of a frame are about to be newer than the disk buffer's. */
static inline void mm_frame_newer(struct mm_frame *f, uint32_t low, uint32_t high)
{
    if (f->low == f->high)
        f->low = low, f->high = high;
    if (low < f->low)
        f->low = low;
    if (high > f->high)
        f->high = high;
    f->used = 1;
}
static inline void mm_frame_used(struct mm_frame *f)
{
    if (!f->used)                      /* a line of memory that nobody changes stays in every processor's cache */
        f->used = 1;
}

/* A read that needs no lock is worth a try: no more than what gathers lies in memory. */
#define FEW_FRAMES(p) (__atomic_load_n(&(p)->frames, __ATOMIC_RELAXED) <= 1)

/* plain.c */
#define NOT_HERE INT64_MIN               /* the general way has to be taken; nothing was done */
long mm_plain_write(const struct mm_seen *seen, int fd, const void *from, size_t count, off_t at);
long mm_plain_read(const struct mm_seen *seen, int fd, void *to, size_t count, off_t at);

#include "programs.h"

/* preimage.c */
long mm_save_preimage(uint32_t pif, int reader, uint64_t start, uint64_t end, uint64_t buffer, uint64_t length);
long mm_copy(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t length);

/* ahead.c: what is durable before something else is */
long mm_ahead_sync(void);
long mm_ahead_preimage(uint32_t pif, int reader, uint64_t start, uint64_t end, uint64_t buffer, uint64_t length);
long mm_ahead_home(uint32_t pif, int home);
long mm_ahead_moved(uint32_t pif, const char *copy);
long mm_ahead_blocks(uint32_t pif);
long mm_ahead_all(void);

/* paths.c, touch.c */
int mm_canonical(int dir, const char *path, char *out, size_t room);
int mm_tracked(const char *canonical);
int mm_ignore(const char *path);
long mm_touch(const char *canonical);
void mm_names_config(const char *track, const char *ignore);

/* watch.c */
extern int mm_watch_fd;
void mm_watch(uintptr_t start, size_t length);
void mm_watch_after_fork(void);
void mm_unseen(void);
/* The kernel is about to change any bytes of a file whose mappings are watched: the next checkpoint compares it. */
static inline void mm_unseen_in(struct mm_pif *p) { __atomic_add_fetch(&p->unseen, 1, __ATOMIC_SEQ_CST); }

/* hooks that files above register */
extern void (*mm_on_tracked)(int fd);    /* a descriptor of a tracked file has appeared: wrap_engine.c, once there is a ring */
extern int (*mm_make_room)(void);        /* a write found the disk full: 1 when a prune has freed some (runtime.c) */

/* wrap_engine.c */
void mm_ring_made(void);
void mm_ring_mapped(int fd);
void mm_ring_may_use(int fd);
long mm_before_raw(long number, long a, long b, long c);

/* wrap_signal.c */
void mm_hold_term(void);

/* wrap_stream.c */
void mm_streams_init(void);
void mm_old_libc(void);

/* memory_glue.c: runs with memory */
/* A variable of the library that belongs to the program and comes back with it. */
#define MM_PROGRAM_STATE __attribute__((section("mm_program")))
void mm_memory_region(void);
void mm_memory_joined(void);
int mm_memory_run(void);
int mm_memory_left_alone(void);
extern __thread uint32_t mm_known_tid __attribute__((tls_model("initial-exec")));
extern struct mm_header *mm_memory_head;
extern int mm_uffd;                      /* -1: changes are not counted */
const char *mm_memory_keep(const char *text);

/* runtime.c */
int mm_runtime_call(int what, long argument, void *data);
int mm_made_room(void);
void mm_runtime_after_fork(void);
int mm_runtime_hold(void);
void mm_runtime_let_go(int held);
void mm_runtime_credentials(void);

#pragma GCC visibility pop

#endif
