/* buffer.c - buffer bytes as the engine sees them: in the AML cache, or in the disk buffer. */
#include "engine/engine.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define SMALL MM_BLOCK                 /* from this size on a write goes to the disk buffer straight */

/* A copy in user space would fault where the kernel says EFAULT.  So the program's pages are tried first, and the
 * answer is remembered until it unmaps or protects something (wrap_map.c counts that). */
uint32_t mm_map_generation;
struct mm_file_maps mm_file_maps = { UINTPTR_MAX, 0 };

void mm_file_mapped(uintptr_t start, size_t length)
{
    uintptr_t end = start + length - 1, first = mm_file_maps.first, last = mm_file_maps.last;
    while (start < first && !__atomic_compare_exchange_n(&mm_file_maps.first, &first, start, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    while (end > last && !__atomic_compare_exchange_n(&mm_file_maps.last, &last, end, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}
__thread struct mm_tried mm_tried[3] __attribute__((tls_model("initial-exec")));

/* A device's memory (perf's rings, [vvar]) is not populated, nor is any before Linux 5.14.  A call that reads a mask and then
 * finds no sense in what is asked for says whether it could read. */
static int can_be_read(uintptr_t page, uintptr_t last)
{
    while (page <= last && sys(SYS_rt_sigprocmask, -1, page, 0, 8) != -EFAULT)
        page += 4096;
    return page > last;
}

static int try(uintptr_t first, uintptr_t last, int what)
{
    if (last < first)
        return 0;
    long r = sys(SYS_madvise, first, last - first + 4096, what == 1 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    return r == 0 || (r == -EINVAL && what != 1 && can_be_read(first, last));
}

static int may_be_cut(uintptr_t first, uintptr_t last) { return last >= mm_file_maps.first && first <= mm_file_maps.last; }

size_t mm_try(const void *p, size_t count, int what)
{
    uintptr_t first = (uintptr_t)p & ~4095ul, last = ((uintptr_t)p + count - 1) & ~4095ul;
    uint32_t generation = __atomic_load_n(&mm_map_generation, __ATOMIC_RELAXED);
    if (!try(first, last, what)) {
        uintptr_t end = first;
        while (end < last && try(end, end, what))
            end += 4096;
        return end > (uintptr_t)p ? end - (uintptr_t)p : 0;
    }
    if (may_be_cut(first, last + 4095))
        return count;                  /* what is usable now */
    /* what meets what is known already is known with it: names lie on two pages of a stack as often as on one */
    struct mm_tried *t = &mm_tried[what];
    int meets = t->generation == generation && t->last && first <= t->last + 1 && t->first <= last + 4096;
    *t = (struct mm_tried){ meets && t->first < first ? t->first : first,
                            meets && t->last > last + 4095 ? t->last : last + 4095, generation };
    return count;
}

size_t mm_try_lasting(const void *p, size_t count, int what)
{
    return may_be_cut((uintptr_t)p, (uintptr_t)p + count - 1) ? 0 : mm_try(p, count, what);
}

/* A frame that holds what the disk buffer has of a chunk, nothing if it is new; 0: there is none to be had. */
static uint32_t frame_with(uint32_t slot, uint64_t chunk, int new)
{
    uint32_t frame = mm_frame_take(mm_area, slot, chunk);
    if (!frame)
        return 0;
    char *bytes = mm_frame_bytes(mm_area, frame);
    long r = !bytes ? -ENOMEM : new ? 0 : sys_pread(mm_buffer_fd, bytes, MM_CHUNK, chunk * MM_CHUNK);
    if (r < 0) {
        mm_frame_free(mm_area, frame);
        return 0;
    }
    memset(bytes + r, 0, MM_CHUNK - r);
    __atomic_store_n((uint32_t *)mm_region(mm_area, CHUNKS, chunk * 4), frame, __ATOMIC_RELEASE);
    return frame;
}

/* Give a small write's chunk a frame; others of the file leave for it where its budget is used up.  A budget of less than
 * one still has one, the tail window. */
static uint32_t frame_for(uint32_t slot, struct mm_pif *p, uint64_t chunk, int new)
{
    while (p->frames && ((uint64_t)p->frames + 1) * MM_CHUNK > mm_area->head->cache_size)
        if (mm_cache_evict(mm_area, slot, mm_buffer_fd) < 0)
            return 0;
    return frame_with(slot, chunk, new);
}

/* Whole blocks that fill a chunk gather in one frame: the kernel gets them in one piece and keeps them in one folio, which is
 * cheaper by half than a folio for each call.  Not in an epoch's first chunk: many files with little to say hold no frames. */
static int gathers(const struct mm_pif *p, size_t count)
{
    return count < MM_CHUNK && p->taken > MM_CHUNK / MM_BLOCK;
}

/* The frame of the chunk in which blocks are handed out; whole blocks (not small) get one from its start on.  A single one that is
 * there then is of a chunk that an epoch ended in, and makes way.  Blocks are handed out in sequence: those behind a chunk's
 * first one that is new are new too. */
static __attribute__((noinline)) uint32_t frame_to_fill(uint32_t slot, struct mm_pif *p, uint64_t place, int what, int small)
{
    int start = place % MM_CHUNK == 0;
    if (!small && (!start || (p->frames == 1 && mm_cache_evict(mm_area, slot, mm_buffer_fd) < 0)))
        return 0;
    uint32_t frame = frame_for(slot, p, place / MM_CHUNK, start && what != MM_WRITTEN_OVER);
    if (frame && !small)
        mm_frame_at(mm_area, frame)->next_free = 1;
    return frame;
}

/* A frame that gathers is full: the kernel gets it.  Where the disk cannot take it now it stays, and says so later. */
static void leave_full(uint32_t frame)
{
    const struct mm_frame *f = mm_frame_at(mm_area, frame);
    if (f->next_free && f->low == 0 && f->high == MM_CHUNK && mm_frame_write_back(mm_area, frame, mm_buffer_fd) == 0)
        mm_frame_free(mm_area, frame);
}

static long write_piece(uint32_t frame, const char *from, size_t count, uint64_t at, int what)
{
    uint32_t inside = at % MM_CHUNK;
    char *to = mm_frame_bytes(mm_area, frame) + inside;
    MM_ASSERT(inside + count <= MM_CHUNK && mm_frame_at(mm_area, frame)->chunk == at / MM_CHUNK);
    size_t lasts = what == MM_COPIED_UP ? count : mm_lasting(from, count, 0);
    mm_frame_newer(mm_frame_at(mm_area, frame), inside, inside + (lasts ? lasts : count));
    if (!lasts) {                      /* by way of the disk buffer, of which the frame is newer until it has them */
        long r = sys_pwrite(mm_buffer_fd, from, count, at);
        return r > 0 ? sys_pread(mm_buffer_fd, to, r, at) : r;
    }
    memcpy(to, from, lasts);
    return lasts;
}

/* Bytes from a place in a chunk on that lie in no frame, as far as they are asked for. */
static size_t unframed(uint64_t at, size_t count)
{
    size_t piece = MM_CHUNK - at % MM_CHUNK;
    while (piece < count && !mm_frame_of(mm_area, (at + piece) / MM_CHUNK))
        piece += MM_CHUNK;
    return piece < count ? piece : count;
}

/* May be short; bytes written or -errno. */
long mm_buffer_write(uint32_t slot, struct mm_pif *p, const void *from, size_t count, uint64_t at, int what)
{
    int small = count < SMALL || what == MM_COPIED_UP, may_gather = !small && gathers(p, count);
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (!p->frames && !small && !may_gather)
        return sys_pwrite(mm_buffer_fd, from, count, at);
    size_t done = 0;
    while (done < count) {
        uint64_t place = at + done, chunk = place / MM_CHUNK;
        size_t piece = MM_CHUNK - place % MM_CHUNK;
        uint32_t frame = mm_frame_of(mm_area, chunk);
        if (!frame && (small || may_gather) && chunk == (p->alloc_next - 1) / (MM_CHUNK / MM_BLOCK))
            frame = frame_to_fill(slot, p, place, what, small);
        if (!frame)
            piece = unframed(place, count - done);
        else if (piece > count - done)
            piece = count - done;
        long r = frame ? write_piece(frame, (const char *)from + done, piece, place, what)
                       : sys_pwrite(mm_buffer_fd, (const char *)from + done, piece, place);
        if (r <= 0)
            return done ? (long)done : r;
        done += r;
        if (frame && may_gather)
            leave_full(frame);
    }
    return done;
}

/* 0 where the disk buffer ends; else bytes read, maybe short, or -errno.  Small reads in sequence bring their
 * chunk into memory; they and every read of a file with frames are made with the PIF's lock held. */
long mm_buffer_read(uint32_t slot, struct mm_pif *p, void *to, size_t count, uint64_t at, int in_sequence)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (!p->frames && count >= SMALL)
        return sys_pread(mm_buffer_fd, to, count, at);
    uint32_t frame = mm_frame_of(mm_area, at / MM_CHUNK);
    size_t piece = MM_CHUNK - at % MM_CHUNK;
    if (!frame && count < SMALL && in_sequence)
        frame = frame_for(slot, p, at / MM_CHUNK, 0);
    if (!frame)
        return sys_pread(mm_buffer_fd, to, unframed(at, count), at);
    if (piece > count)
        piece = count;
    size_t usable = mm_lasting(to, piece, 1);
    if (!usable && mm_frame_write_back(mm_area, frame, mm_buffer_fd) == 0)
        return sys_pread(mm_buffer_fd, to, piece, at);   /* the kernel says what is wrong with it, or knows how: a device's memory */
    if (!usable && !(usable = mm_usable(to, piece, 1)))
        return -EFAULT;
    piece = usable;
    memcpy(to, mm_frame_bytes(mm_area, frame) + at % MM_CHUNK, piece);
    mm_frame_used(mm_frame_at(mm_area, frame));
    return piece;
}
