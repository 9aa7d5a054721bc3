/* compact.c - whole blocks of one write that are scattered over the buffer get new places beside each other.
 *
 * What was written at random lies in the buffer in the order in which it was written.  Written again in sequence it would be
 * a call for each block, this time and every later time, and so would each read of it (docs/adr/0023).
 */
#include "engine/engine.h"

/* Buffer blocks for a file, out of a small reservation, so that what is written in sequence lies in sequence. */
uint64_t mm_take_blocks(struct mm_pif *p, uint64_t count)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (p->alloc_next < mm_area->head->epoch_block)
        p->taken = 0;
    if (p->alloc_next < mm_area->head->epoch_block || p->alloc_next + count > p->alloc_end) {
        uint64_t reserve = count < 64 ? 64 : count;
        /* killed in between, it begins behind its old end and is empty */
        __atomic_store_n(&p->alloc_next, mm_blocks_take(mm_area, reserve), __ATOMIC_RELEASE);
        MM_STOP("data.reserving");
        __atomic_store_n(&p->alloc_end, p->alloc_next + reserve, __ATOMIC_RELEASE);
    }
    MM_ASSERT(p->alloc_next + count <= p->alloc_end && p->alloc_end <= mm_area->head->next_block);
    uint64_t first = p->alloc_next;
    p->alloc_next += count;
    p->taken = (uint8_t)(count + p->taken < UINT8_MAX ? count + p->taken : UINT8_MAX);
    return first;
}

/* Whole blocks of a write that lie in the buffer in so many pieces that new neighbouring blocks are the better place: their
 * number, or 0.  The old ones stay unused in the buffer.  Of the seams between blocks a move leaves fewer by a fourth of its
 * blocks at least; other writes make two for each block that they redirect, once in an interval: so no interval leaves
 * more than a few unused blocks for each that is used. */
static uint64_t scattered(struct mm_pif *p, size_t count, uint64_t at)
{
    uint64_t first = at / MM_BLOCK, blocks = at % MM_BLOCK ? 0 : count / MM_BLOCK, pieces = 1, i = 1;
    if (blocks < MM_SCATTERED)
        return 0;
    uint64_t before = mm_table_get(mm_area, p, first);
    for (; i < blocks && i < MM_RUN_MAX; i++) {
        uint64_t entry = mm_table_get(mm_area, p, first + i);
        if (!entry && (first + i) * MM_BLOCK >= p->fresh_from)
            break;                     /* in place it may be overwritten */
        pieces += mm_own(before) ? entry != before + 1 : mm_own(entry);
        before = entry;
    }
    return pieces >= MM_SCATTERED && pieces >= i / 4 + 3 ? i : 0;
}

/* They are written there, in one piece: bytes, or -errno.  0: nothing was done; there is no need, the disk has no room for it,
 * or not a whole block could be written. */
long mm_write_together(uint32_t slot, struct mm_pif *p, const char *from, size_t count, uint64_t at)
{
    uint64_t blocks = scattered(p, count, at);
    if (!blocks || mm_room_set_aside(mm_area, mm_self, (uint32_t)blocks) < 0)
        return 0;
    uint64_t to = mm_take_blocks(p, blocks);
    long r = mm_buffer_write(slot, p, from, blocks * MM_BLOCK, to * MM_BLOCK, MM_WRITTEN_NEW) / MM_BLOCK;
    int e = r > 0 ? mm_table_set(mm_area, p, at / MM_BLOCK, to, r) : 0;
    mm_room_set_back(mm_area, mm_self, (uint32_t)blocks, 0);
    return r <= 0 ? 0 : e ? e : r * MM_BLOCK;
}
