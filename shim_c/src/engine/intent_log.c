/* intent_log.c - the log of what has to be durable before something else is, <store>/run/ahead.
 *
 * After a power cut nothing mapped is trusted: the run area may say what never was together.  The checkpoints are, and
 * this log, in which a record counts that is whole.  Invariants:
 *  1. Bytes in place that an index needs are destroyed only when their pre-image is durable, and a record that names it.
 *  2. An fsync of a file with redirected blocks is answered only when they are durable, and a record that names them.
 *  3. When redirected bytes have been written back, a durable record says so before anything else is done to them there.
 *  4. A file loses its name to a copy (another inode) only when a durable record says whose copy that is.
 * A record is appended by a pwrite behind the last whole one, and the tail moves only then: what was acknowledged lies
 * before everything that was not.  Read by metamori/runtime/area/wal.py.
 */
#include "engine/engine.h"

#include <stdio.h>

#define INLINE_MAX (64 << 10)          /* bytes of a pre-image that the log holds itself: then one file is synced, not two */

static long log_open(int flags)
{
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/run/ahead", mm_area->store);
    return mm_open_spare(mm_area->folder > 0 ? mm_area->folder : AT_FDCWD, mm_area->folder > 0 ? "ahead" : path,
                         flags | O_NOFOLLOW, 0600);
}

static int leads_nowhere(long r) { return r == -ENOENT || r == -ESTALE; }

/* Where the store was removed, or others have completed this run of a job, nobody can need what is not in the log. */
static long unless_gone(long r)
{
    int gone = leads_nowhere(r) && mm_area->folder > 0 && leads_nowhere(sys(SYS_faccessat, mm_area->folder, "header", F_OK));
    return gone ? 0 : r;
}

/* What a sync answered, noted where the disk has refused it: the kernel never tries that again. */
long mm_synced(long e)
{
    if (e == -EIO || e == -ENOSPC || e == -EDQUOT || e == -EROFS)
        __atomic_add_fetch(&mm_area->head->unsynced, 1, __ATOMIC_RELAXED);
    return e;
}

static long sync_data(long fd) { return mm_synced(sys(SYS_fdatasync, fd)); }

static long sync_folder(const char *inside)
{
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/%s", mm_area->store, inside);
    long fd = mm_open_spare(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    long r = fd < 0 ? fd : sys(SYS_fsync, fd);
    if (fd >= 0)
        mm_close_spare((int)fd);
    return r;
}

/* Everything that is in the log now is durable: 0, or -errno. */
static long make_durable(long log)
{
    struct mm_header *h = mm_area->head;
    uint64_t tail = __atomic_load_n(&h->ahead_tail, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&h->ahead_synced, __ATOMIC_ACQUIRE) >= tail)
        return 0;
    long r = sync_data(log);
    if (r == 0 && !__atomic_load_n(&h->ahead_named, __ATOMIC_ACQUIRE)) {
        static const char *const folders[] = { "run", "buffer", "" };
        for (int i = 0; r == 0 && i < 3; i++)
            r = sync_folder(folders[i]);
        if (r == 0)
            __atomic_store_n(&h->ahead_named, 1, __ATOMIC_RELEASE);
    }
    uint64_t seen = __atomic_load_n(&h->ahead_synced, __ATOMIC_ACQUIRE);
    while (r == 0 && seen < tail
           && !__atomic_compare_exchange_n(&h->ahead_synced, &seen, tail, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return r;
}

long mm_ahead_sync(void)
{
    struct mm_header *h = mm_area->head;
    if (__atomic_load_n(&h->ahead_synced, __ATOMIC_ACQUIRE) >= __atomic_load_n(&h->ahead_tail, __ATOMIC_ACQUIRE))
        return 0;
    long log = log_open(O_WRONLY), r = log < 0 ? log : make_durable(log);
    if (log >= 0)
        mm_close_spare((int)log);
    return unless_gone(r);
}

static void describe(struct mm_ahead *r, uint32_t kind, uint32_t slot)
{
    const struct mm_pif *p = mm_pif_at(mm_area, slot);
    const struct mm_header *h = mm_area->head;
    *r = (struct mm_ahead){
        .magic = MM_AHEAD_MAGIC, .kind = kind, .run = h->run, .epoch = h->epoch, .index = h->newest,
        .dev = p->dev, .ino = p->ino, .btime_ns = p->btime_ns, .object = p->object, .created = p->created,
        .size = p->size, .home_limit = p->home_limit, .cut = p->cut < p->cut_before ? p->cut : p->cut_before,
        .mtime_ns = p->mtime_ns, .old_size = p->old_size, .old_mtime_ns = p->old_mtime_ns, .old_mode = p->old_mode,
        .old_uid = p->old_uid, .old_gid = p->old_gid, .flags = p->flags, .length_after = MM_NO_LIMIT,
        .path_length = (uint32_t)strlen(mm_path_at(mm_area, p->path)),
    };
}

#define PADDED(n) (((uint64_t)(n) + 7) & ~(uint64_t)7)

/* One piece of a record at *at, padded with zeros: 0 or -errno. */
static long put(long log, uint64_t *at, const void *bytes, uint64_t n, uint32_t *crc)
{
    static const char zeros[8];
    uint64_t done = 0, more = PADDED(n) - n;
    while (done < n) {
        long r = sys_pwrite((int)log, (const char *)bytes + done, n - done, *at + done);
        if (r <= 0)
            return r < 0 ? r : -ENOSPC;
        done += r;
    }
    if (more) {
        long r = sys_pwrite((int)log, zeros, more, *at + n);
        if (r != (long)more)
            return r < 0 ? r : -ENOSPC;
    }
    *crc = mm_crc32(mm_crc32(*crc, bytes, n), zeros, more);
    *at += n + more;
    return 0;
}

/* Bytes in place into the record, from wherever they are read. */
static long put_bytes(long log, uint64_t *at, int from, uint64_t start, uint64_t n, uint32_t *crc)
{
    SCRATCH(piece);
    long r = 0;
    for (uint64_t done = 0; r == 0 && done < n;) {
        uint64_t step = n - done < 8192 ? n - done : 8192;
        long got = sys_pread(from, piece, step, start + done);
        if (got < 0)
            return got;
        memset(piece + got, 0, step - got);        /* it ends there: holes read as zeros */
        r = put(log, at, piece, step, crc);
        done += step;
    }
    return r;
}

/* A whole record behind the last one.  from: an open file whose bytes [start, start + data_length) go into it, or the buffer. */
static long append(long log, struct mm_ahead *r, const char *path, const struct mm_range *ranges, int from)
{
    struct mm_header *h = mm_area->head;
    const size_t head = offsetof(struct mm_ahead, kind), rest = sizeof *r - head;
    uint64_t length = sizeof *r + PADDED(r->path_length) + r->ranges * sizeof *ranges + PADDED(r->data_length);
    if (length > UINT32_MAX)
        return -EFBIG;
    r->length = (uint32_t)length;
    mm_lift_limit(0);
    mm_lock(&h->ahead_lock, MM_LOCK_AHEAD);
    uint64_t start = h->ahead_tail, at = start + sizeof *r;
    uint32_t crc = mm_crc32(0, (char *)r + head, rest);
    long e = put(log, &at, path, r->path_length, &crc);
    if (e == 0)
        e = put(log, &at, ranges, r->ranges * sizeof *ranges, &crc);
    if (e == 0 && r->data_length)
        e = put_bytes(log, &at, from, from == mm_buffer_fd ? r->buffer_start : r->start, r->data_length, &crc);
    r->crc = crc;
    if (e == 0) {
        long n = sys_pwrite((int)log, r, sizeof *r, start);
        e = n == (long)sizeof *r ? 0 : n < 0 ? n : -ENOSPC;
    }
    if (e == 0)
        __atomic_store_n(&h->ahead_tail, start + length, __ATOMIC_RELEASE);
    mm_unlock(&h->ahead_lock);
    mm_lift_limit(1);
    return e;
}

/* Bytes in place [start, end) are in the buffer and are about to be destroyed; length: the file is about to be cut there,
 * or MM_NO_LIMIT.  Durable after mm_ahead_sync. */
long mm_ahead_preimage(uint32_t slot, int reader, const struct mm_preimage *saved, uint64_t length)
{
    uint64_t start = saved->start, end = saved->end;
    struct mm_ahead record;
    struct stat st;
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    if (!(mm_area->head->flags & MM_POWER))
        return 0;
    long e = sys(SYS_fstat, reader, &st);
    if (e == 0 && end - start > INLINE_MAX)
        e = sync_data(mm_buffer_fd);
    if (e < 0)
        return e;
    describe(&record, MM_AHEAD_PREIMAGE, slot);
    record.start = start, record.end = end, record.buffer_start = saved->buffer_start, record.length_after = length;
    record.data_length = end - start > INLINE_MAX ? 0 : (uint32_t)(end - start);
    record.stamp_ns = saved->stamp_ns;
    record.home_ctime_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000u + st.st_ctim.tv_nsec;
    long log = log_open(O_WRONLY);
    e = log < 0 ? log : append(log, &record, mm_path_at(mm_area, mm_pif_at(mm_area, slot)->path), NULL,
                                 saved->stamp_ns ? mm_buffer_fd : reader);     /* what was there at that time */
    if (log >= 0)
        mm_close_spare((int)log);
    return unless_gone(e);
}

/* Where links cannot lead: this copy is the backing file from now on.  Durable on return. */
long mm_ahead_moved(uint32_t slot, const char *copy)
{
    struct mm_ahead record;
    struct statx st;
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    if (!(mm_area->head->flags & MM_POWER))
        return 0;
    long e = mm_statx(AT_FDCWD, copy, AT_SYMLINK_NOFOLLOW, &st);
    if (e < 0)
        return e;
    describe(&record, MM_AHEAD_MOVED, slot);
    record.start = st.stx_ino;
    record.end = sys_birth(&st);
    record.buffer_start = sys_dev(st.stx_dev_major, st.stx_dev_minor);
    long log = log_open(O_WRONLY);
    e = log < 0 ? log : append(log, &record, mm_path_at(mm_area, mm_pif_at(mm_area, slot)->path), NULL, -1);
    if (e == 0)
        e = make_durable(log);
    if (log >= 0)
        mm_close_spare((int)log);
    return e;
}

/* All bytes of a file were written back, from the buffer: there they are durable from now on. */
long mm_ahead_home(uint32_t slot, int home)
{
    struct mm_ahead record;
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    long log = log_open(O_WRONLY), e = log < 0 ? log : sync_data(home);
    if (e == 0) {
        describe(&record, MM_AHEAD_HOME, slot);
        e = append(log, &record, mm_path_at(mm_area, mm_pif_at(mm_area, slot)->path), NULL, -1);
    }
    if (e == 0)
        e = make_durable(log);
    if (log >= 0)
        mm_close_spare((int)log);
    return e;
}

/* A file's blocks that are not in the log yet, as the table has them.  ahead, bound: of buffer blocks, below the one they were in
 * the log before, below the other they will be. */
struct news { struct mm_range *ranges; uint64_t count, room, ahead, bound; };

/* 0 or -errno. */
static long collect_news(struct mm_pif *p, struct news *news)
{
    const struct mm_header *h = mm_area->head;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    uint64_t known = h->flags & MM_POWER ? h->committed_block : 0;   /* in checkpoints that a power cut leaves */
    uint64_t since = p->ahead_block > known ? p->ahead_block : known;
    long n = mm_collect(mm_area, p, 0, since, NULL, 0);
    *news = (struct news){ .ahead = p->ahead_block, .bound = p->alloc_next };   /* later ones may not be in the buffer yet */
    news->room = ((uint64_t)n * sizeof(struct mm_range) + MM_BLOCK) & ~(uint64_t)(MM_BLOCK - 1);
    struct mm_range *ranges = (struct mm_range *)sys(SYS_mmap, 0, news->room, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((unsigned long)ranges > -4096ul)
        return (long)ranges;
    mm_collect(mm_area, p, 0, since, ranges, n);
    for (long i = 0; i < n; i++) {
        if (ranges[i].buffer >= news->bound)
            continue;
        if (ranges[i].buffer + ranges[i].count > news->bound)
            ranges[i].count = news->bound - ranges[i].buffer;
        ranges[news->count++] = ranges[i];
    }
    news->ranges = ranges;
    return 0;
}

static int still_there(struct mm_pif *p, const struct news *news)
{
    for (const struct mm_range *r = news->ranges; r < news->ranges + news->count; r++)
        for (uint64_t i = 0; i < r->count; i++)
            if (mm_table_get(mm_area, p, r->block + i) != r->buffer + i)
                return 0;
    return 1;
}

enum { AGAIN = 1 };

/* They are in the buffer by now, for good.  AGAIN: one of them has another place since, or none, and no record would have it. */
static long append_blocks(long log, uint32_t slot, struct mm_pif *p, struct news *news)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (p->ahead_block > news->ahead && p->ahead_block >= news->bound)
        news->count = 0;               /* another has done it */
    else if (p->ahead_block < news->ahead || !still_there(p, news))
        return AGAIN;
    struct mm_ahead record;
    describe(&record, MM_AHEAD_SYNCED, slot);
    record.ranges = (uint32_t)news->count;
    record.whole = !p->ahead_block;
    long e = 0;
    if (news->count || record.whole || p->size != p->ahead_size)
        e = append(log, &record, mm_path_at(mm_area, p->path), news->ranges, -1);
    if (e == 0)
        p->ahead_block = p->ahead_block > news->bound ? p->ahead_block : news->bound, p->ahead_size = p->size;
    return e;
}

#define TRIES 3                          /* then nobody writes to it meanwhile */

/* All of the file is in place, and the log does not have it as longer. */
static int says_nothing(const struct mm_pif *p) { return is_native(p) && p->ahead_size != MM_NO_LIMIT; }

/* What is acknowledged survives a power cut: the file's blocks in the buffer, and which they are. */
long mm_ahead_blocks(uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (says_nothing(p))
        return 0;
    long e = AGAIN, log = -1;
    for (int tried = 1; e == AGAIN; tried++) {
        struct news news = { .ranges = NULL };
        uint64_t mask = hold(p);
        e = mm_cache_write_back(mm_area, slot, mm_buffer_fd);
        if (e == 0)
            e = collect_news(p, &news);
        if (tried < TRIES)
            release(p, mask);
        if (e == 0)
            e = sync_data(mm_buffer_fd);
        if (e == 0 && log < 0)
            e = (log = log_open(O_WRONLY)) < 0 ? log : 0;
        MM_STOP("ahead.buffered");
        if (tried < TRIES)
            mask = hold(p);
        if (e == 0 && !says_nothing(p))
            e = append_blocks(log, slot, p, &news);
        release(p, mask);
        if (news.ranges)
            sys(SYS_munmap, news.ranges, news.room);
    }
    if (e == 0)
        e = make_durable(log);
    if (log >= 0)
        mm_close_spare((int)log);
    return e;
}

/* Frames of the cache that a file may have after a write of so many pieces: each piece takes one at each of its ends. */
static uint64_t frames_after(const struct mm_pif *p, int pieces)
{
    uint64_t most = mm_area->head->cache_size / MM_CHUNK + 1, frames = p->frames + 2 * (uint64_t)pieces;
    if (frames <= most)
        return frames;
    return p->frames > most ? p->frames : most;
}

/* Of the program's memory the kernel tries the first byte before it looks for room. */
static int unreadable(const struct iovec *v, int n)
{
    while (n > 1 && !v->iov_len)
        v++, n--;
    return !mm_usable(v->iov_base, 1, 0);
}

/* Before a write that is to be durable, and that nothing else refuses: blocks of the store's disk that mm_ahead_blocks may take after it, for frames
 * of the cache, the ranges of the log's record, the record, and what the filesystem needs to find them.  0, -EFAULT,
 * -ENOSPC or -EDQUOT. */
long mm_ahead_room(struct mm_pif *p, const struct iovec *v, int n, uint64_t at, size_t asked, uint32_t *aside)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (is_native(p) && at >= p->fresh_from)
        return 0;                      /* all is in place, and so is this */
    uint64_t ranges = p->redirected + asked / MM_BLOCK + 2;
    uint64_t blocks = frames_after(p, n) * (MM_CHUNK / MM_BLOCK) + ranges * sizeof(struct mm_range) / MM_BLOCK + 8;
    long e = mm_room_set_aside(mm_area, mm_self, (uint32_t)blocks);
    if (e < 0)
        return unreadable(v, n) ? -EFAULT : e;
    *aside = (uint32_t)blocks;
    return 0;
}

/* sync(2): the same for every file that has blocks there. */
long mm_ahead_all(void)
{
    long e = 0;
    for (uint32_t slot = 1; slot < mm_area->head->pif_count && e == 0; slot++) {
        const struct mm_pif *p = mm_pif_at(mm_area, slot);
        if ((p->flags & MM_USED) && p->epoch > mm_area->head->committed_epoch)
            e = mm_ahead_blocks(slot);
    }
    return e;
}
