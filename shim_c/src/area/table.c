/* table.c - the block table: which buffer block holds a block of a file; 0: it is in place.
 *
 * Three levels of 512 entries, like a processor's page table: 2^27 blocks of 4 KB, 512 GB.
 * A leaf entry is a buffer block number.  An upper entry is (epoch << 32 | page): the epoch is the last one that set an
 * entry below it, so that a checkpoint visits only what changed.
 * Invariants
 *  1. Entries are changed under the PIF's lock.  A reader may look without it, since every entry is one aligned word and
 *     buffer blocks are never handed out twice.
 *  2. So an entry is cleared last: before it, whatever says what is in place there (read_write.c, settle.c) is true.
 *  3. Pages belong to their file until it is gone: whoever still walks in them finds its entries, old or new.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#define FAN MM_FAN
#define INDEX MM_INDEX
#define LIMIT MM_TABLE_LIMIT

static uint64_t *level_at(struct mm_area *a, uint64_t entry) { return mm_page(a, (uint32_t)entry); }
static uint64_t get(struct mm_area *a, const uint32_t *from, uint64_t block) { return mm_table_walk(a, from, block); }

static uint64_t *step_down(struct mm_area *a, uint64_t *entry)
{
    uint32_t page = (uint32_t)*entry;
    if (!page && !(page = mm_page_take(a)))
        return NULL;
    __atomic_store_n(entry, a->head->epoch << 32 | page, __ATOMIC_RELEASE);
    return mm_page(a, page);
}

/* The header counts the blocks that are redirected: room is held for them (space_reserve.c). The PIF counts its own: they are
 * blocks that the file has (wrap_stat.c).  More are counted before they are there, fewer when they are gone: whoever is killed
 * in between leaves too many, and none that would be taken away uncounted. */
static void owes(struct mm_area *a, struct mm_pif *p, long more)
{
    if (more) {
        __atomic_add_fetch(&a->head->owed, more, __ATOMIC_RELAXED);
        __atomic_store_n(&p->redirected, p->redirected + more, __ATOMIC_RELAXED);
    }
}

/* p: whose entries are counted, or NULL. */
static int set(struct mm_area *a, struct mm_pif *p, const uint32_t *at, uint64_t block, uint64_t buffer, uint64_t count)
{
    uint64_t *root = mm_page(a, *at);
    while (count) {
        uint64_t *mid = step_down(a, &root[INDEX(block, 2)]);
        uint64_t *leaf = mid ? step_down(a, &mid[INDEX(block, 1)]) : NULL;
        if (!leaf)
            return -ENOSPC;
        uint64_t *entry = &leaf[INDEX(block, 0)], n = FAN - INDEX(block, 0) < count ? FAN - INDEX(block, 0) : count;
        long more = 0;
        for (uint64_t i = 0; i < n && p; i++)
            more += !!buffer - !!entry[i];
        if (more > 0)
            owes(a, p, more);
        for (uint64_t i = 0; i < n; i++)
            __atomic_store_n(&entry[i], buffer ? buffer + i : 0, __ATOMIC_RELEASE);
        MM_STOP("table.set");
        if (more < 0)
            owes(a, p, more);
        block += n, count -= n;
        buffer += buffer ? n : 0;
    }
    return 0;
}

uint64_t mm_table_get(struct mm_area *a, struct mm_pif *p, uint64_t block) { return get(a, &p->root, block); }

/* The page of the upper level. */
static int make_root(struct mm_area *a, uint32_t *at)
{
    uint32_t page = *at ? *at : mm_page_take(a);
    if (!page)
        return -ENOSPC;
    __atomic_store_n(at, page, __ATOMIC_RELEASE);
    return 0;
}

/* Entries [block, block + count) become buffer, buffer + 1, ...; 0, or -ENOSPC, or -EFBIG.  size: where the file ends in the last of them
 * (mm_has_tail), or 0: all are whole. */
int mm_table_set_to(struct mm_area *a, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count, uint64_t size)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    MM_ALWAYS(!buffer || buffer + count <= a->head->next_block);    /* only blocks that were handed out */
    int r = block + count > LIMIT ? -EFBIG : make_root(a, &p->pages);
    if (r < 0)
        return r;
    MM_ASSERT(!p->root || p->root == p->pages);
    __atomic_store_n(&p->root, p->pages, __ATOMIC_RELEASE);
    /* Not before there is one: who has found the old one needs what is behind it (mm_tail).  In one step: somebody outside of the run may
       append at any moment, and whoever is killed here says nothing more */
    int says = !(p->flags & MM_VIRTUAL) && (size || p->size / MM_BLOCK - block < count);
    if (says && !get(a, &p->root, p->size / MM_BLOCK))
        __atomic_store_n(&p->size, size, __ATOMIC_RELEASE);
    r = set(a, p, &p->root, block, buffer, count);
    if (says && r == 0)
        __atomic_store_n(&p->size, size, __ATOMIC_RELEASE);
    MM_STOP("table.said");
    return r;
}

int mm_table_set(struct mm_area *a, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count)
{
    return mm_table_set_to(a, p, block, buffer, count, 0);
}

/* The same kind of table for a file whose bytes stay in place: where the pre-image of a block lies.  One of an earlier
 * epoch (below epoch_block) says nothing any more.  In a job, above that number: which bytes of the block this run has
 * written over since, or was about to; from the first, 13 bits, to before the last, 13 bits. */
#define NUMBER ((1ull << 38) - 1)
#define FIRST(entry) ((uint16_t)((entry) >> 38 & 8191))
#define END(entry) ((uint16_t)((entry) >> 51))

int mm_saved(struct mm_area *a, struct mm_pif *p, uint64_t block)
{
    return p->saved && (get(a, &p->saved, block) & NUMBER) >= a->head->epoch_block;
}

/* These bytes are about to be written over, as far as they were saved. */
int mm_wrote(struct mm_area *a, struct mm_pif *p, uint64_t start, uint64_t end)
{
    int r = 0;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    for (uint64_t block = start / MM_BLOCK; block * MM_BLOCK < end && r == 0; block++) {
        uint64_t at = block * MM_BLOCK, entry = get(a, &p->saved, block);
        uint64_t first = start > at ? start - at : 0, last = end - at < MM_BLOCK ? end - at : MM_BLOCK;
        if (!mm_saved(a, p, block))
            continue;
        if (END(entry) && FIRST(entry) < first)
            first = FIRST(entry);
        if (END(entry) > last)
            last = END(entry);
        r = set(a, NULL, &p->saved, block, (entry & NUMBER) | first << 38 | last << 51, 1);
    }
    return r;
}

/* Of a block whose pre-image lies at `buffer`: where what was written over since begins, and ends.  All of it where nobody can tell. */
struct mm_written mm_written(struct mm_area *a, struct mm_pif *p, uint64_t block, uint64_t buffer)
{
    uint64_t entry = p->flags & (MM_MAPPED | MM_ENGINE) ? 0 : get(a, &p->saved, block);
    if ((entry & NUMBER) != buffer)
        return (struct mm_written){ buffer, 0, MM_BLOCK };
    return (struct mm_written){ buffer, FIRST(entry), END(entry) };
}

int mm_saved_set(struct mm_area *a, struct mm_pif *p, uint64_t block, uint64_t buffer, uint64_t count)
{
    MM_ASSERT(mm_locked_by_me(&p->lock));
    int r = block + count > LIMIT ? -EFBIG : make_root(a, &p->saved);
    return r < 0 ? r : set(a, NULL, &p->saved, block, buffer, count);
}

/* The next run of neighbouring blocks from a block on, neighbours in the buffer too; 0: there is none. */
int mm_table_next(struct mm_area *a, struct mm_pif *p, uint64_t from, struct mm_range *run)
{
    uint64_t *root = p->root ? mm_page(a, p->root) : NULL, step;
    MM_ASSERT(mm_locked_by_me(&p->lock));
    for (uint64_t block = from; root && block < LIMIT; block = (block / step + 1) * step) {
        uint64_t mid = root[INDEX(block, 2)], leaf = mid ? level_at(a, mid)[INDEX(block, 1)] : 0;
        uint64_t entry = leaf ? level_at(a, leaf)[INDEX(block, 0)] : 0;
        step = !mid ? FAN * FAN : !leaf ? FAN : 1;
        if (!entry)
            continue;
        *run = (struct mm_range){ block, entry, 1 };
        while (get(a, &p->root, block + run->count) == entry + run->count)
            run->count++;
        return 1;
    }
    return 0;
}

/* How many blocks of [from, end) are redirected. */
uint64_t mm_table_count(struct mm_area *a, struct mm_pif *p, uint64_t from, uint64_t end)
{
    struct mm_range run;
    uint64_t count = 0;
    for (; from < end && mm_table_next(a, p, from, &run) && run.block < end; from = run.block + run.count)
        count += (run.block + run.count < end ? run.block + run.count : end) - run.block;
    return count;
}

/* Forget every entry from a block on. */
void mm_table_clear(struct mm_area *a, struct mm_pif *p, uint64_t from)
{
    MM_ASSERT(mm_locked_by_me(&p->lock) || !(p->flags & MM_USED));
    if (!p->root || from >= LIMIT)
        return;
    uint64_t *root = mm_page(a, p->root);
    for (uint64_t i = INDEX(from, 2); i < FAN; i++) {
        if (!root[i])
            continue;
        uint64_t *mid = level_at(a, root[i]);
        for (uint64_t j = i == INDEX(from, 2) ? INDEX(from, 1) : 0; j < FAN; j++) {
            if (!mid[j])
                continue;
            int edge = i == INDEX(from, 2) && j == INDEX(from, 1);
            uint64_t *leaf = level_at(a, mid[j]);
            long owed = 0;
            for (uint64_t k = edge ? INDEX(from, 0) : 0; k < FAN; k++) {
                if (leaf[k]) {
                    __atomic_store_n(&leaf[k], 0, __ATOMIC_RELEASE);
                    owed--;
                }
            }
            owes(a, p, owed);
        }
    }
}

static void release(struct mm_area *a, uint32_t *from)
{
    uint32_t page = *from;
    if (!page)
        return;
    __atomic_store_n(from, 0, __ATOMIC_RELEASE);   /* first: killed in here, nothing leads to pages that are given back */
    uint64_t *root = mm_page(a, page);
    for (int i = 0; i < FAN; i++) {
        if (!root[i])
            continue;
        uint64_t *mid = level_at(a, root[i]);
        for (int j = 0; j < FAN; j++)
            if (mid[j])
                mm_page_give(a, (uint32_t)mid[j]);
        mm_page_give(a, (uint32_t)root[i]);
    }
    mm_page_give(a, page);
}

/* No block is redirected any more. */
void mm_table_empty(struct mm_area *a, struct mm_pif *p)
{
    mm_table_clear(a, p, 0);
    __atomic_store_n(&p->root, 0, __ATOMIC_RELEASE);
}

/* Give back all pages: nobody can be looking, the file is gone. */
void mm_table_free(struct mm_area *a, struct mm_pif *p)
{
    MM_ASSERT(!(p->flags & MM_USED));
    mm_table_empty(a, p);            /* so that its entries are counted */
    release(a, &p->pages);
}
void mm_saved_free(struct mm_area *a, struct mm_pif *p) { release(a, &p->saved); }

struct collected { struct mm_range last, *out; long count, room; };

static void collect_last(struct collected *c)
{
    if (c->last.count && c->count++ < c->room)
        c->out[c->count - 1] = c->last;
}

static void collect(struct collected *c, uint64_t block, uint64_t entry)
{
    if (c->last.count && c->last.block + c->last.count == block && c->last.buffer + c->last.count == entry) {
        c->last.count++;
        return;
    }
    collect_last(c);
    c->last = (struct mm_range){ block, entry, 1 };
}

/* Runs of neighbouring blocks, neighbours in the buffer too, whose entries were set in since_epoch or later and are
 * at since_block or above, without those that the other table has.  Returns their number; more than room: only the first room
 * are in out. */
static long collect_entries(struct mm_area *a, const uint32_t *from, const uint32_t *without, uint64_t since_epoch,
                            uint64_t since_block, struct mm_range *out, long room)
{
    struct collected c = { .out = out, .room = room };
    if (!*from)
        return 0;
    uint64_t *root = mm_page(a, *from);
    for (uint64_t i = 0; i < FAN; i++) {
        if (!root[i] || root[i] >> 32 < since_epoch)
            continue;
        uint64_t *mid = level_at(a, root[i]);
        for (uint64_t j = 0; j < FAN; j++) {
            if (!mid[j] || mid[j] >> 32 < since_epoch)
                continue;
            uint64_t *leaf = level_at(a, mid[j]), block = (i * FAN + j) * FAN;
            for (uint64_t k = 0; k < FAN; k++, block++) {
                uint64_t e = leaf[k];
                if (e && e >= since_block && !(without && get(a, without, block)))
                    collect(&c, block, e);
            }
        }
    }
    collect_last(&c);
    return c.count;
}

long mm_collect(struct mm_area *a, struct mm_pif *p, uint64_t since_epoch, uint64_t since_block,
                struct mm_range *out, long room)
{
    return collect_entries(a, &p->root, NULL, since_epoch, since_block, out, room);
}

/* in_place: only those that are not redirected now. */
long mm_collect_saved(struct mm_area *a, struct mm_pif *p, int in_place, uint64_t since_epoch, uint64_t since_block,
                      struct mm_range *out, long room)
{
    return collect_entries(a, &p->saved, in_place ? &p->root : NULL, since_epoch, since_block, out, room);
}
