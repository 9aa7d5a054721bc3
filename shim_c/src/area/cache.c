/* cache.c - the AML cache: buffer bytes in memory, in frames of one chunk each (thesis 4.3.2).
 *
 * Small writes gather here and reach the disk buffer in pieces; whole blocks go there straight, their cache is the
 * kernel's.  How much a file may hold is the run's setting; which frame leaves then is found here, by second chance
 * (docs/adr/0024).  All together have a bound too (frames_max).
 * The frames lie in a mapped file of the run area: every process sees them, a SIGKILL loses nothing.
 * Invariants: a frame holds its whole chunk; [low, high) is widened before the bytes are changed; a frame's chunk is
 * written and read under its PIF's lock, or while the run is frozen; a PIF counts no fewer frames than it has (a kill may leave
 * one too many counted): without any, large reads go past them.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <string.h>

struct mm_frame *mm_frame_at(struct mm_area *a, uint32_t frame)
{
    return mm_region(a, FRAMES, (uint64_t)frame * sizeof(struct mm_frame));
}

char *mm_frame_bytes(struct mm_area *a, uint32_t frame)
{
    return mm_region(a, CACHE, (uint64_t)frame * MM_CHUNK);
}

/* Of all files together: 64 MiB, or four files' budgets where that is more.  Frames are never fewer again, so whoever comes when
 * all are taken does without: the kernel's cache serves as well, with a call for each piece. */
static uint64_t frames_max(const struct mm_header *h)
{
    uint64_t four = 4 * h->cache_size / MM_CHUNK;
    return four > (64u << 20) / MM_CHUNK ? four : (64u << 20) / MM_CHUNK;
}

/* All are taken. */
int mm_cache_is_full(struct mm_area *a)
{
    return __atomic_load_n(&a->head->frame_count, __ATOMIC_RELAXED) > frames_max(a->head)
        && !__atomic_load_n(&a->head->free_frame, __ATOMIC_RELAXED);
}

/* A frame for a chunk, its bytes undefined; 0 when all are taken or the disk has no room for one. */
uint32_t mm_frame_take(struct mm_area *a, uint32_t slot, uint64_t chunk)
{
    struct mm_header *h = a->head;
    uint32_t frame = 0;
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(a, slot)->lock));
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (mm_reserve(a, CHUNKS, (chunk + 1) * 4) == 0 && mm_room_held(a, MM_CHUNK / MM_BLOCK) == 0) {
        if (h->free_frame) {
            frame = h->free_frame;
            h->free_frame = mm_frame_at(a, frame)->next_free;
        } else if (h->frame_count <= frames_max(h)
                   && mm_reserve(a, FRAMES, ((uint64_t)h->frame_count + 1) * sizeof(struct mm_frame)) == 0
                   && mm_reserve(a, CACHE, ((uint64_t)h->frame_count + 1) * MM_CHUNK) == 0) {
            frame = __atomic_fetch_add(&h->frame_count, 1, __ATOMIC_ACQ_REL);
        }
    }
    if (frame) {
        struct mm_frame *f = mm_frame_at(a, frame);
        f->chunk = chunk;
        f->low = f->high = f->next_free = f->used = 0;
        __atomic_add_fetch(&mm_pif_at(a, slot)->frames, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&h->frames_used, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&f->slot, slot, __ATOMIC_RELEASE);      /* last: others look for theirs by it */
    }
    mm_unlock(&h->lock);
    return frame;
}

void mm_frame_free(struct mm_area *a, uint32_t frame)
{
    struct mm_frame *f = mm_frame_at(a, frame);
    mm_lock(&a->head->lock, MM_LOCK_AREA);
    if (f->slot) {
        if (mm_frame_of(a, f->chunk) == frame)
            __atomic_store_n((uint32_t *)mm_region(a, CHUNKS, f->chunk * 4), 0, __ATOMIC_RELEASE);
        uint32_t slot = f->slot;
        __atomic_store_n(&f->slot, 0, __ATOMIC_RELEASE);
        __atomic_sub_fetch(&mm_pif_at(a, slot)->frames, 1, __ATOMIC_RELAXED);
        __atomic_sub_fetch(&a->head->frames_used, 1, __ATOMIC_RELAXED);
        f->next_free = a->head->free_frame;
        a->head->free_frame = frame;
    }
    mm_unlock(&a->head->lock);
}

/* What is newer than the disk buffer, to the disk buffer; 0 or -errno, and then it stays newer. */
int mm_frame_write_back(struct mm_area *a, uint32_t frame, int buffer)
{
    struct mm_frame *f = mm_frame_at(a, frame);
    MM_ALWAYS(f->low <= f->high && f->high <= MM_CHUNK);
    while (f->low < f->high) {
        long r = sys_pwrite(buffer, mm_frame_bytes(a, frame) + f->low, f->high - f->low, f->chunk * MM_CHUNK + f->low);
        if (r <= 0)
            return r < 0 ? (int)r : -ENOSPC;
        f->low += r;
    }
    f->low = f->high = 0;
    return 0;
}

static uint32_t frame_pif(struct mm_area *a, uint32_t frame)
{
    return __atomic_load_n(&mm_frame_at(a, frame)->slot, __ATOMIC_ACQUIRE);
}

/* One of a file's frames leaves: the first from its hand on that was not used since the hand passed it.  The hand stays at
 * the place, which is the next to be taken.  0, or -errno: it could not be written, and stays. */
int mm_cache_evict(struct mm_area *a, uint32_t slot, int buffer)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    uint32_t end = __atomic_load_n(&a->head->frame_count, __ATOMIC_ACQUIRE), i = p->hand;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    for (uint32_t left = 2 * end; left && p->frames; left--, i++) {
        if (i == 0 || i >= end)
            i = 1;
        struct mm_frame *f = mm_frame_at(a, i);
        if (__atomic_load_n(&f->slot, __ATOMIC_ACQUIRE) != slot)
            continue;
        if (f->used) {
            f->used = 0;
            continue;
        }
        p->hand = i;
        int e = mm_frame_write_back(a, i, buffer);
        if (e == 0)
            mm_frame_free(a, i);
        return e;
    }
    return -ENOENT;
}

/* All of a file's frames, or of all files (slot 0). */
int mm_cache_write_back(struct mm_area *a, uint32_t slot, int buffer)
{
    int result = 0;
    if (slot && !mm_pif_at(a, slot)->frames)
        return 0;
    for (uint32_t i = 1; i < __atomic_load_n(&a->head->frame_count, __ATOMIC_ACQUIRE); i++) {
        uint32_t of = frame_pif(a, i);
        int e = of && (!slot || of == slot) ? mm_frame_write_back(a, i, buffer) : 0;
        if (e)
            result = e;
    }
    return result;
}

/* A file that nobody has open any more leaves its frames to others; those that cannot be written stay. */
void mm_cache_leave(struct mm_area *a, uint32_t slot, int buffer)
{
    uint32_t end = __atomic_load_n(&a->head->frame_count, __ATOMIC_ACQUIRE);
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(a, slot)->lock));
    for (uint32_t i = 1; mm_pif_at(a, slot)->frames && i < end; i++)
        if (frame_pif(a, i) == slot && mm_frame_write_back(a, i, buffer) == 0)
            mm_frame_free(a, i);
}

/* Forget a file's frames, what they hold included. */
void mm_cache_drop(struct mm_area *a, uint32_t slot)
{
    uint32_t end = __atomic_load_n(&a->head->frame_count, __ATOMIC_ACQUIRE);
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(a, slot)->lock) || !(mm_pif_at(a, slot)->flags & MM_USED));
    for (uint32_t i = 1; mm_pif_at(a, slot)->frames && i < end; i++)
        if (frame_pif(a, i) == slot)
            mm_frame_free(a, i);
}
