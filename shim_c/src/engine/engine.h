/* engine/engine.h - where the bytes of a file are read and written.
 *
 * In a call (around an exec positions are given outside of one), with a slot that was looked up in it (enter_file).  System
 * calls only: never intercepted, no cancellation points, but for fast_path.c, which takes a whole call.  `fd` is a descriptor of
 * the file, `slot` its PIF's.
 */
#ifndef MM_ROOM_ENGINE_H
#define MM_ROOM_ENGINE_H

#include "area/area.h"

#pragma GCC visibility push(hidden)

/* private_fds.c: the library's own descriptors, of files that the program can open for writing only, and for the store's.
 * Kept out of the program's way: its own numbers come first.  mm_readers_*: around a fork (child) and an exec. */
int mm_home_reader(uint32_t slot, int fd);
int mm_home_writer(uint32_t slot, int fd);
int mm_own_reader(uint32_t slot, int fd);
extern int mm_any_locked;               /* this process has locked some file with fcntl or lockf */
void mm_locking(uint32_t slot, int fd);
uint32_t mm_locking_untracked(int fd);
void mm_not_locked(uint32_t place);
int mm_locked_reader(uint32_t slot);
int mm_locked_by(uint32_t slot, int but, int flags);
int mm_keep_own(uint32_t slot, int own);
void mm_drop_reader(uint32_t slot);
void mm_give_up_reader(uint32_t slot);
void mm_readers_before_fork(void);
void mm_birth_begin_own(void);
void mm_birth_end_own(void);
void *mm_readers_table(size_t *bytes);
void mm_readers_in_parent(void);
void mm_readers_after_fork(void);
void mm_readers_before_exec(void);
void mm_readers_exec_failed(void);
void mm_readers_after_exec(void);
int mm_among_ours(int fd);
static inline int mm_is_ours(int fd) { return UNLIKELY((unsigned)fd >= (unsigned)mm_lowest_own) && fd >= 0 && mm_among_ours(fd); }
/* A number that the program may mean: ours are no descriptors to it. */
static inline int mm_theirs(int fd) { return mm_is_ours(fd) ? -1 : fd; }
int mm_next_own(int from);
int mm_move_own(int fd);
int mm_high_fd(int fd);
void mm_hold_spares(void);
long mm_open_own(const char *path, int flags);

/* is the position of this description the FIT's? */
static inline int owned(int fd) { return UNLIKELY(mm_fit_at(mm_area, mm_fds[fd].fit)->owned != 0); }

/* Bytes that a vector asks for: the kernel moves no more in one call. */
static inline size_t mm_asked_for(const struct iovec *v, int n)
{
    size_t asked = 0;
    for (int i = 0; i < n; i++)
        asked += v[i].iov_len < MM_TRANSFER - asked ? v[i].iov_len : MM_TRANSFER - asked;
    return asked;
}

/* shut_ways.c */
long mm_way_opened(const char *path, long (*call)(const char *path, void *with), void *with);
long mm_open_shut_way(const char *path, int flags);

/* file_size.c */
long mm_size(struct mm_pif *p, int fd);
/* Bytes before it are known to be there, or it is asked how long the file is. */
static inline long mm_size_to(struct mm_pif *p, int fd, uint64_t end)
{
    uint64_t known = mm_known_size(p);
    return end <= known ? (long)known : mm_size(p, fd);
}
/* Whoever writes asks in each tick of the clock: where somebody outside of the run has cut the file, what is written behind that before
 * it is seen is lost with what was there.  Not for each write of a long sequence in place (overwrite.c). */
static inline int mm_asked_at(const struct mm_pif *p, const struct timespec *t)
{
    return p->mtime_ns == t->tv_sec * 1000000000 + t->tv_nsec;
}
static inline long mm_size_to_write(struct mm_pif *p, int fd, uint64_t at, uint64_t end, int asked)
{
    uint64_t known = mm_known_size(p);
    long size = end <= known && (LIKELY(asked) || mm_saved(mm_area, p, at / MM_BLOCK)) ? (long)known : mm_size(p, fd);
    return end <= known && size > (long)known ? (long)known : size;
}
static inline uint64_t mm_block_end(uint64_t at) { return (at + MM_BLOCK - 1) / MM_BLOCK * MM_BLOCK; }
/* locked */
void mm_make_virtual(struct mm_pif *p, uint64_t was, uint64_t size);
void mm_size_in_place(struct mm_pif *p, int fd);
int mm_reachable(uint32_t slot, int fd, uint64_t at);
long mm_may_reach(uint32_t slot, int fd, uint64_t at, size_t *count);
void mm_stamp_begins(int fd, const struct timespec *at);
void mm_stamp_told(struct mm_pif *p, const struct timespec *at);
#define MM_TICK_NS 20000000              /* longer than between two ticks of the kernel's clock; shorter than any step of it */
/* locked: the file's time is now, or that */
static inline void mm_stamp_at(struct mm_pif *p, int fd, const struct timespec *t)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (UNLIKELY(!p->mtime_ns))
        mm_stamp_begins(fd, t);
    else if (UNLIKELY(p->flags & MM_TOLD))
        mm_stamp_told(p, t);
    int64_t now = t->tv_sec * 1000000000 + t->tv_nsec, between = __atomic_load_n(&mm_area->head->between_ticks, __ATOMIC_RELAXED);
    if (UNLIKELY(now < between) && between - now < MM_TICK_NS)
        now = between;
    p->mtime_ns = p->flags & MM_SECONDS ? now - now % 1000000000 : now;
}
static inline void mm_stamp(struct mm_pif *p, int fd)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    mm_stamp_at(p, fd, &t);
}

/* truncate.c */
long mm_truncate(uint32_t slot, int fd, uint64_t length);
/* locked */
long mm_truncate_held(uint32_t slot, int fd, uint64_t length);
long mm_resize_held(uint32_t slot, int fd, uint64_t length);

/* position.c */
void mm_give_position(int fd);
void mm_give_position_held(int fd);
/* whose the position of a description is; with the FIT's lock from _begin to _end, where somebody else could come */
long mm_own_position(struct mm_fit *f, int fd);
void mm_show_position(struct mm_fit *f, int fd);
int mm_position_begin(struct mm_fit *f);
void mm_position_end(struct mm_fit *f, int held);

/* compact.c */
uint64_t mm_take_blocks(struct mm_pif *p, uint64_t count);
long mm_write_together(uint32_t slot, struct mm_pif *p, const char *from, size_t count, uint64_t at);

/* extents.c */
long mm_hand_over(uint32_t slot, int fd);
long mm_extent(uint32_t slot, int fd, off_t at, int whence);
long mm_first_bytes(uint32_t slot, int fd, char *to, size_t count);
/* locked */
long mm_zero_held(uint32_t slot, int fd, uint64_t start, uint64_t end);

/* read.c */
/* unlocked */
long mm_read(uint32_t slot, int fd, const struct iovec *v, int n, off_t at);
void mm_seen_cut(uint32_t slot, int fd) __attribute__((cold));
int mm_direct(int fd);
long mm_unaligned(int fd, const struct iovec *v, int n, uint64_t at);
/* of a place where one read ends and the next may begin */
static inline uint16_t mm_mark_of(uint64_t at) { return (uint16_t)(at ^ at >> 16); }
/* What the buffer has of a file's last block ends where the file did (p->size): what comes behind that is in place. */
static inline int mm_has_tail(const struct mm_pif *p) { return p->size % MM_BLOCK && !(p->flags & MM_VIRTUAL); }
/* Where that is, or MM_NO_LIMIT.  Asked for before an entry is: who makes the block whole says so when it is (mm_table_set). */
static inline uint64_t mm_tail(const struct mm_pif *p)
{
    uint64_t size = __atomic_load_n(&p->size, __ATOMIC_ACQUIRE);
    return size % MM_BLOCK && !(__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL) ? size : MM_NO_LIMIT;
}
/* Of redirected bytes [at, end), of which none but the last may lie behind that. */
static inline uint64_t mm_buffered_to(uint64_t tail, uint64_t at, uint64_t end)
{
    return LIKELY(end <= tail) || tail / MM_BLOCK < at / MM_BLOCK ? end : tail;
}
static inline int mm_is_longer(struct mm_pif *p, uint64_t size)
{
    return UNLIKELY(size > p->size) && mm_has_tail(p) && mm_table_get(mm_area, p, p->size / MM_BLOCK) != 0;
}
/* It is about to grow, and the buffer has more of its last block than it has: whoever had it locked was killed, or somebody outside of the
 * run has cut it where no index knows of it. */
static inline int mm_has_more(struct mm_pif *p, uint64_t size)
{
    return UNLIKELY(p->broken_off) || (UNLIKELY(p->root) && mm_more_than(mm_area, p, size));
}
/* The file has fewer bytes in place than an index knows of: whoever runs with us says so before it is (truncate_home). */
static inline int mm_is_cut(const struct mm_pif *p, uint64_t size)
{
    return UNLIKELY(size < p->fresh_from) && !(p->flags & MM_VIRTUAL) && size < mm_known_size(p) && !(mm_area->head->flags & MM_JOB);
}
/* So somebody outside of the run has cut it, whether an index knows what was there or not. */
static inline int mm_is_shorter(struct mm_pif *p, uint64_t size)
{
    return mm_is_cut(p, size) || (UNLIKELY(p->root) && UNLIKELY(mm_more_than(mm_area, p, size)));
}
/* locked */
/* its size: where somebody has cut it, what was behind that place is gone for the run, too */
long mm_size_held(uint32_t slot, struct mm_pif *p, int fd);
long mm_cut_by_others(uint32_t slot, struct mm_pif *p, int fd, uint64_t size) __attribute__((cold));
long mm_take_tail(uint32_t slot, struct mm_pif *p, int from, uint64_t size) __attribute__((cold));
long mm_cut_block(uint32_t slot, struct mm_pif *p, int fd, uint64_t length);
void mm_forget_rest(struct mm_pif *p, uint64_t length, long fresh);
long mm_end_for_good(uint32_t slot, struct mm_pif *p, int fd, uint64_t size) __attribute__((cold));
/* what a block of the file holds now from byte low on, into a new buffer block */
long mm_copy_up(uint32_t slot, struct mm_pif *p, int home, uint64_t block, uint64_t to, size_t low, uint64_t size);
/* may be short; needs no lock where nothing gathers in memory */
long mm_read_some(uint32_t slot, struct mm_pif *p, int fd, char *to, size_t count, uint64_t at, uint64_t size);

/* read_write.c */
/* unlocked; as durable as without us */
long mm_write(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append);
long mm_write_with(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append, uint32_t *aside);
long mm_seek(uint32_t slot, int fd, off_t at, int whence);
/* locked */
/* may be short */
long mm_write_some(uint32_t slot, struct mm_pif *p, int fd, const char *from, size_t count, uint64_t at, uint64_t size);
/* around all of a write, for reads without the lock: odd while one is under way, or its owner was killed */
static inline void mm_write_begins(struct mm_pif *p) { __atomic_store_n(&p->writes, p->writes | 1, __ATOMIC_RELEASE); }
static inline void mm_write_ends(struct mm_pif *p) { __atomic_store_n(&p->writes, p->writes + 1, __ATOMIC_RELEASE); }
#define MM_RUN_MAX 256                   /* blocks that one write gives new places */
#define MM_SCATTERED 4                   /* pieces from which on it pays to write them as one */
static inline int mm_own(uint64_t entry) { return entry >= mm_area->head->epoch_block; }

/* files whose bytes are (and stay) in place */
#define MM_UNSEEN 1                      /* they may change without any call that we see */

/* settle.c: unlocked, but mm_write_home, which is locked */
long mm_settle(uint32_t slot, int fd);
long mm_settle_program(uint32_t slot, int fd);
long mm_stay_home(uint32_t slot, int fd, int how, uint32_t flags);
void mm_home_by_name(uint32_t slot, const char *path, int how, uint32_t flags);
long mm_settle_for_good(uint32_t slot, const char *path, int open_flags);
long mm_write_home(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append);

/* what is written to the buffer: the program's bytes over blocks that are there, in part at least; into blocks that were handed
 * out to it, and hold nothing; what a block held before, from our own memory, into such a block */
enum { MM_WRITTEN_OVER, MM_WRITTEN_NEW, MM_COPIED_UP };

/* buffer.c: locked */
long mm_buffer_write(uint32_t slot, struct mm_pif *p, const void *from, size_t count, uint64_t at, int what);
long mm_buffer_read(uint32_t slot, struct mm_pif *p, void *to, size_t count, uint64_t at, int in_sequence);
extern uint32_t mm_map_generation;
/* Where the program has mapped files: whoever cuts such a file takes pages away.  What lies between them is looked at each time. */
extern struct mm_file_maps { uintptr_t first, last; } mm_file_maps;
void mm_file_mapped(uintptr_t start, size_t length);
struct mm_tried { uintptr_t first, last; uint32_t generation; };
extern __thread struct mm_tried mm_tried[3] __attribute__((tls_model("initial-exec")));
size_t mm_try(const void *p, size_t count, int what);
size_t mm_try_lasting(const void *p, size_t count, int what);

static inline int mm_has_tried(const void *p, size_t count, int what)
{
    const struct mm_tried *t = &mm_tried[what];
    /* as signed: a bad pointer may lie in the upper half of all addresses, where the end of its bytes is beyond them */
    return LIKELY((intptr_t)p >= (intptr_t)t->first && (uintptr_t)p + count - 1 <= t->last
                  && t->generation == __atomic_load_n(&mm_map_generation, __ATOMIC_RELAXED));
}

/* How many of these bytes (not 0), from the first on, may be touched.  what: 0 to read, 1 to write, 2 to read a vector. */
static inline size_t mm_usable(const void *p, size_t count, int what)
{
    return mm_has_tried(p, count, what) ? count : mm_try(p, count, what);
}

/* The same for a copy of ours.  None of those of which another thread may cut the file meanwhile: the kernel copies these. */
static inline size_t mm_lasting(const void *p, size_t count, int what)
{
    return mm_has_tried(p, count, what) ? count : mm_try_lasting(p, count, what);
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
#define NOT_HERE INT64_MIN               /* the general way has to be taken; nothing was done */

/* fast_path.c: not in a call, which it begins itself; unlocked */
long mm_plain_write(const struct mm_fd_view *seen, int fd, const void *from, size_t count, off_t at);
long mm_plain_read(const struct mm_fd_view *seen, int fd, void *to, size_t count, off_t at);

/* preimage.c: locked */
long mm_save_preimage(uint32_t slot, int reader, uint64_t start, uint64_t end, uint64_t buffer, uint64_t length, int yields);
long mm_note_loss(uint32_t slot, uint64_t start) __attribute__((cold));
long mm_copy(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t length);
long mm_save_blocks(uint32_t slot, struct mm_pif *p, int fd, uint64_t start, uint64_t end);
long mm_save_around(uint32_t slot, struct mm_pif *p, int fd, uint64_t first, uint64_t behind, uint64_t around, int yields);

/* order.c */
uint64_t mm_stamp_of_job(void);

/* overwrite.c: locked */
uint64_t mm_may_overwrite(uint32_t slot, struct mm_pif *p, int fd, uint64_t at, size_t count);

/* intent_log.c */
/* what is durable before something else is */
/* locked, but mm_ahead_sync, mm_ahead_blocks and mm_ahead_all, which are unlocked */
long mm_ahead_sync(void);
long mm_ahead_preimage(uint32_t slot, int reader, const struct mm_preimage *saved, uint64_t length);
long mm_ahead_home(uint32_t slot, int home);
long mm_ahead_moved(uint32_t slot, const char *copy);
long mm_ahead_blocks(uint32_t slot);
long mm_ahead_all(void);
long mm_synced(long e);                /* e, noted where the disk has refused it: EIO, ENOSPC, EDQUOT, EROFS */
/* locked */
long mm_ahead_room(struct mm_pif *p, const struct iovec *vector, int count, uint64_t at, size_t asked, uint32_t *aside);

/* write_through.c */
long mm_write_through(uint32_t slot, int fd, const struct iovec *vector, int count, off_t at, int append);

#pragma GCC visibility pop

#endif
