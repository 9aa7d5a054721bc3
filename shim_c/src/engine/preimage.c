/* preimage.c - bytes that are about to be destroyed in place, saved to the buffer and noted in the journal. */
#include "engine/engine.h"

#include <linux/falloc.h>
#include <linux/fs.h>

#define PIECE_LEAST (1ul << 20)
#define PIECES 64                        /* where blocks are shared a piece costs the same whatever its length */

/* Copy bytes between files: by reflink or inside the kernel where that is possible.  0 or -errno. */
long mm_copy(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t length)
{
    int kernel = 1;
    SCRATCH(piece);
    while (length) {
        long r = -EXDEV;
        if (kernel) {
            loff_t a = from_at, b = to_at;
            r = sys(SYS_copy_file_range, from, &a, to, &b, length, 0);
            if (r < 0 && r != -EINTR)
                kernel = 0;
        }
        if (r <= 0) {
            r = sys_pread(from, piece, length < SCRATCH_BYTES ? length : SCRATCH_BYTES, from_at);
            if (r == 0)            /* a hole at the end reads as zeros */
                return 0;
            if (r > 0)
                r = sys_pwrite(to, piece, r, to_at);
        }
        if (r <= 0)
            return r < 0 ? r : -ENOSPC;
        from_at += r, to_at += r, length -= r;
    }
    return 0;
}

/* Where the data goes on to that lies at a byte, not beyond end, or where data begins behind it; *stop: where that ends.  The
 * last answer is kept, since tmpfs walks to the end of the data page by page: a hole that was made there since is copied as zeros. */
static uint64_t data_at(uint32_t slot, int reader, uint64_t at, uint64_t end, uint64_t *stop)
{
    static __thread struct { uint64_t from, until; uint32_t slot; } seen __attribute__((tls_model("initial-exec")));
    if (seen.slot != slot || at < seen.from || at >= seen.until) {
        long data = sys_lseek(reader, at, SEEK_DATA);
        if (data == -ENXIO)
            return end;
        long hole = data < 0 ? data : sys_lseek(reader, data, SEEK_HOLE);
        if (data < 0 || hole < 0)
            data = at, hole = end;
        seen.slot = slot, seen.from = data, seen.until = hole;
    }
    *stop = seen.until < end ? seen.until : end;
    return at > seen.from ? at : seen.from;
}

/* What was copied and is nobody's pre-image: the disk has its room again once nobody waits, for it may wait for the disk. */
static __thread struct { uint64_t run, at, bytes; } left __attribute__((tls_model("initial-exec")));

static void give_back(void)
{
    if (left.bytes && left.run == mm_area->head->run)
        sys(SYS_fallocate, mm_buffer_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, left.at, left.bytes);
    left.bytes = 0;
}

static int frozen_soon(void) { return __atomic_load_n(&mm_area->head->freeze, __ATOMIC_RELAXED) != 0; }

/* Bytes in place [start, end) to the buffer, in pieces: the disk has begun with one when the next is copied. */
static long save_bytes(uint32_t slot, int reader, uint64_t start, uint64_t end, uint64_t buffer, int yields)
{
    uint64_t piece = ((end - start) / PIECES / PIECE_LEAST + 1) * PIECE_LEAST;     /* only whole blocks are shared */
    int ahead = mm_area->head->flags & MM_POWER && end - start > piece;
    long r = 0;
    for (uint64_t at = start, stop; r == 0 && (at = data_at(slot, reader, at, end, &stop)) < end; at = stop) {
        if (stop - at > piece)
            stop = at + piece;
        MM_STOP("preimage.piece");
        r = yields && frozen_soon() ? -EAGAIN : mm_copy(reader, at, mm_buffer_fd, buffer + (at - start), stop - at);
        if (r == 0 && ahead)           /* where that is refused, an fdatasync does it all */
            ahead = sys(SYS_sync_file_range, mm_buffer_fd, buffer + (at - start), stop - at, SYNC_FILE_RANGE_WRITE) == 0;
    }
    for (uint64_t at = 0; r == 0 && ahead && yields && at < end - start; at += piece)   /* then an fdatasync is short */
        r = frozen_soon() ? -EAGAIN : sys(SYS_sync_file_range, mm_buffer_fd, buffer + at, piece, SYNC_FILE_RANGE_WAIT_BEFORE);
    return r;
}

static long into_journal(const struct mm_preimage *record)
{
    mm_lock(&mm_area->head->lock, MM_LOCK_AREA);
    int e = mm_journal_append(mm_area, record, sizeof *record, "", 0);
    mm_unlock(&mm_area->head->lock);
    return e;
}

/* Save bytes in place [start, end) from a byte of the buffer on, 0: where there is room.  Holes stay holes.  length: where
 * the file is about to be cut, or MM_NO_LIMIT.  yields: rather not (-EAGAIN) where somebody waits to freeze the run.  They
 * may be destroyed after an mm_ahead_sync. */
long mm_save_preimage(uint32_t slot, int reader, uint64_t start, uint64_t end, uint64_t buffer, uint64_t length, int yields)
{
    struct mm_header *h = mm_area->head;
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    if (!buffer)
        buffer = mm_blocks_take(mm_area, (end - start + MM_BLOCK - 1) / MM_BLOCK) * MM_BLOCK;
    give_back();
    long position = sys_lseek(reader, 0, SEEK_CUR);   /* it may be the program's own descriptor */
    long result = save_bytes(slot, reader, start, end, buffer, yields);
    sys_lseek(reader, position, SEEK_SET);
    struct mm_preimage record = { .type = MM_PREIMAGE, .epoch = h->epoch, .after_index = h->newest, .slot = slot,
                                  .start = start, .end = end, .buffer_start = buffer, .stamp_ns = mm_stamp_of_job() };
    if (result < 0) {
        left.run = h->run, left.at = buffer, left.bytes = end - start;
        if (result != -EAGAIN)
            give_back();
        return result;
    }
    result = mm_ahead_preimage(slot, reader, &record, length);
    return result < 0 ? result : into_journal(&record);
}

/* Somebody outside of the run has cut the file here: the bytes behind that an index knows, and that were not saved before, are lost. */
long mm_note_loss(uint32_t slot, uint64_t start)
{
    const struct mm_header *h = mm_area->head;
    struct mm_preimage record = { .type = MM_PREIMAGE, .epoch = h->epoch, .after_index = h->newest, .slot = slot,
                                  .start = start, .end = start };
    return into_journal(&record);
}

/* Pre-images of the blocks of bytes in place [start, end), as far as an index knows them and this epoch has none yet.
 * They may be overwritten after an mm_ahead_sync. */
long mm_save_blocks(uint32_t slot, struct mm_pif *p, int fd, uint64_t start, uint64_t end)
{
    return mm_save_around(slot, p, fd, start, end, MM_BLOCK, 0);
}

/* As much around them is saved too, at places that this number divides, but may not be overwritten.  yields: as above. */
long mm_save_around(uint32_t slot, struct mm_pif *p, int fd, uint64_t first, uint64_t behind, uint64_t around, int yields)
{
    uint64_t start = first / around * around;
    uint64_t end = behind > MM_NO_LIMIT - around ? behind : (behind + around - 1) / around * around;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (start >= p->fresh_from)
        return 0;
    if (UNLIKELY(mm_area->head->flags & MM_GONE)) {    /* nobody can have it; a job is told so (store_removed.py) */
        p->fresh_from = 0;
        return 0;
    }
    int reader = mm_own_reader(slot, fd);   /* its position is ours, holes are looked for by it */
    struct stat st;
    long r = reader < 0 ? reader : sys(SYS_fstat, reader, &st);
    if (r < 0)
        return r;
    uint64_t needed = p->fresh_from < (uint64_t)st.st_size ? p->fresh_from : (uint64_t)st.st_size;
    if (end > needed)
        end = needed;
    uint64_t last = (end + MM_BLOCK - 1) / MM_BLOCK;
    for (uint64_t block = start / MM_BLOCK, run; block < last; block += run) {
        run = 1;
        if (mm_saved(mm_area, p, block))
            continue;
        while (block + run < last && !mm_saved(mm_area, p, block + run))
            run++;
        /* no frame of its cache may lie over them: of MM_HOME there is none */
        uint64_t place = p->flags & MM_HOME ? mm_take_blocks(p, run) : mm_blocks_take(mm_area, run), stop = (block + run) * MM_BLOCK;
        r = mm_save_preimage(slot, reader, block * MM_BLOCK, stop < needed ? stop : needed, place * MM_BLOCK, MM_NO_LIMIT, yields);
        if (r == 0)
            r = mm_saved_set(mm_area, p, block, place, run);
        if (r < 0)
            return r;
    }
    return mm_area->head->flags & MM_JOB ? mm_wrote(mm_area, p, first, behind < needed ? behind : needed) : 0;
}
