/* overwrite.c - bytes that an index needs, and that a program writes over in one long sequence.
 *
 * Redirected, each moves three times: into the buffer, and at the end of the run its pre-image out of its place and itself
 * into it.  In a long sequence the pre-images are saved ahead of the writer, in large steps, and the bytes go to their
 * place: it moves twice (docs/adr/0056).
 */
#include "engine/engine.h"

#ifdef MM_CHECKED                     /* so that small programs come here */
#define SEQUENCE_LONG 3
#define STEP_LEAST 3
#else
#define SEQUENCE_LONG 1024             /* blocks that were written over one after another: those that come next are saved ahead */
#define STEP_LEAST 256                 /* blocks */
#endif
#define STEP_MOST 16384
#define STEP_NS 50000000               /* a step may take so long: others wait for the file, a checkpoint for a piece of it */

/* Blocks from this one to before that one are about to be written over: how many were, one after another, with them. */
static uint32_t in_sequence(struct mm_pif *p, uint32_t block, uint32_t end)
{
    if (block > p->over_next + 1 || end < p->over_next)    /* one farther: the last write ended inside a block */
        p->over_blocks = 0, p->over_next = block;
    uint32_t more = end - (block > p->over_next ? block : p->over_next);   /* of a long write this is asked for each piece */
    p->over_blocks = more < (uint32_t)(UINT16_MAX - p->over_blocks) ? p->over_blocks + (uint16_t)more : UINT16_MAX;
    p->over_next = end;
    return p->over_blocks;
}

/* Pre-images from this block on, durable: no more than were written over in sequence, and where no block is redirected.
 * Without them, for want of room or for whatever reason, the write is redirected, and says what is wrong.  For want of time,
 * since a checkpoint waits, the next one tries again. */
static void save_step(uint32_t slot, struct mm_pif *p, int fd, uint64_t block)
{
    uint64_t most = p->over_step < STEP_LEAST ? STEP_LEAST : p->over_step, n = 0;
    if (most > p->over_blocks)
        most = p->over_blocks;
    while (n < most && (block + n) * MM_BLOCK < p->fresh_from && !mm_table_get(mm_area, p, block + n))
        n++;
    uint64_t start = sys_now_ns();
    long r = mm_save_around(slot, p, fd, block * MM_BLOCK, (block + n) * MM_BLOCK, MM_BLOCK, 1);
    if (r == -EAGAIN)
        return;
    if (r == 0)
        r = mm_ahead_sync();
    uint64_t took = sys_now_ns() - start;
    uint64_t next = took > STEP_NS ? most / 2 : took > STEP_NS / 2 ? most : most * 2;
    p->over_step = (uint16_t)(next < STEP_MOST ? next : STEP_MOST);
    if (r < 0)
        p->over_blocks = 0;
}

/* How many of these bytes, which an index needs and which are not redirected, may be written over in place. */
uint64_t mm_may_overwrite(uint32_t slot, struct mm_pif *p, int fd, uint64_t at, size_t count)
{
    uint64_t block = at / MM_BLOCK, end = (at + count) / MM_BLOCK, last = (at + count + MM_BLOCK - 1) / MM_BLOCK, n = 0;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    if (mm_area->head->flags & (MM_ISOLATE | MM_SINGLE) || p->flags & MM_VIRTUAL || p->home_limit != MM_NO_LIMIT)
        return 0;
    uint32_t blocks = end > block ? in_sequence(p, (uint32_t)block, (uint32_t)end) : 0;      /* small pieces gather in memory */
    if (blocks > SEQUENCE_LONG && !mm_saved(mm_area, p, block))
        save_step(slot, p, fd, block);
    while (block + n < last && !mm_table_get(mm_area, p, block + n)
           && (mm_saved(mm_area, p, block + n) || (block + n) * MM_BLOCK >= p->fresh_from))
        n++;
    if (!n || mm_ahead_sync() < 0)
        return 0;
    uint64_t there = (block + n) * MM_BLOCK - at;
    return there < count ? there : count;
}
