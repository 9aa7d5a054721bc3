/* space_reserve.c - room on the disk for the end of the run, held from the moment that bytes are buffered.
 *
 * A block that a block table redirects is written back at the end.  That takes as much room again: for the pre-image of what
 * is in place there, or (isolated) for the file itself.  Before, the last checkpoint takes some: for what is in the cache, and
 * records, of names too.  So a file of the run area is kept as large as that, and is given back when the end begins.  A disk that fills up says so
 * to the write, or to the call that makes a name, that would need the room, never to the end.
 * Where the file system cannot allocate ahead nothing is held.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <stdio.h>
#include <sys/resource.h>

#define LEAST 128                      /* blocks, for the records of a small run */

/* What a checkpoint takes for the cache, which is not in the disk buffer yet, and for names. */
static uint64_t for_checkpoint(const struct mm_header *h)
{
    uint64_t cached = __atomic_load_n(&h->frames_used, __ATOMIC_RELAXED) * (uint64_t)(MM_CHUNK / MM_BLOCK);
    uint64_t noted = __atomic_load_n(&h->journal_tail, __ATOMIC_RELAXED) - __atomic_load_n(&h->committed_journal, __ATOMIC_RELAXED);
    /* a checkpoint has a name in its records and in `head`: so does the journal, and a folder with less beside it */
    return cached + noted * 3 / MM_BLOCK;
}

static uint64_t wanted(const struct mm_header *h, uint64_t more)
{
    uint64_t owed = __atomic_load_n(&h->owed, __ATOMIC_RELAXED) + more;
    return owed + owed / 16 + for_checkpoint(h) + __atomic_load_n(&h->pif_count, __ATOMIC_RELAXED) / 8 + LEAST;
}

/* No file of the program may be longer than its limit says, so neither may this one: a signal would come. */
static int too_long(uint64_t blocks)
{
    struct rlimit limit;
    sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit);
    return limit.rlim_cur != RLIM_INFINITY && blocks * MM_BLOCK > limit.rlim_cur;
}

static int room_open(struct mm_area *a)
{
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/run/room", a->store);
    return (int)mm_open_spare(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

static int grow(struct mm_area *a, uint64_t need)
{
    struct mm_header *h = a->head;
    MM_ASSERT(mm_locked_by_me(&h->lock));
    uint64_t step = need / 16 > 2 * LEAST ? need / 16 : 2 * LEAST, have = h->room * MM_BLOCK;
    if (too_long(need + step))
        return 0;
    int fd = room_open(a);
    if (fd < 0)
        return fd == -ENOSPC || fd == -EDQUOT ? fd : 0;
    sys(SYS_fchmod, fd, 0600);         /* whatever the umask */
    long r = sys(SYS_fallocate, fd, 0, have, (need + step) * MM_BLOCK - have);
    if (r == -ENOSPC || r == -EDQUOT) {
        step = 0;
        r = sys(SYS_fallocate, fd, 0, have, need * MM_BLOCK - have);
    }
    if (r < 0)                         /* what was allocated of it */
        sys(SYS_ftruncate, fd, have);
    mm_close_spare(fd);
    if (r == -ENOSPC || r == -EDQUOT)
        return (int)r;
    __atomic_store_n(&h->room, need + step, __ATOMIC_RELAXED);
    return 0;
}

static void shrink(struct mm_area *a, uint64_t keep)
{
    struct mm_header *h = a->head;
    MM_ASSERT(mm_locked_by_me(&h->lock));
    int fd = keep < h->room ? room_open(a) : -1;
    if (fd >= 0) {
        if (sys(SYS_ftruncate, fd, keep * MM_BLOCK) == 0)
            h->room = keep;
        mm_close_spare(fd);
    }
}

/* The same as mm_room, for whoever has the area's lock. */
int mm_room_held(struct mm_area *a, uint64_t more)
{
    uint64_t need = wanted(a->head, more);
    return need > a->head->room ? grow(a, need) : 0;
}

/* Room for `more` further redirected blocks; 0, -ENOSPC or -EDQUOT. */
int mm_room(struct mm_area *a, uint64_t more)
{
    struct mm_header *h = a->head;
    if (__builtin_expect(wanted(h, more) <= __atomic_load_n(&h->room, __ATOMIC_RELAXED), 1))
        return 0;
    mm_lock(&h->lock, MM_LOCK_AREA);
    int e = mm_room_held(a, more);
    mm_unlock(&h->lock);
    return e;
}

/* Killed in between, a process leaves too many owed, never too few. */
static void take_from_aside(struct mm_area *a, struct mm_process *p, uint32_t blocks)
{
    __atomic_sub_fetch(&p->aside, blocks, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&a->head->owed, blocks, __ATOMIC_RELAXED);
}

/* Room for something that follows a write of this process: counted like blocks that are owed, until it is set back. */
int mm_room_set_aside(struct mm_area *a, struct mm_process *p, uint32_t blocks)
{
    __atomic_add_fetch(&a->head->owed, blocks, __ATOMIC_RELAXED);
    __atomic_add_fetch(&p->aside, blocks, __ATOMIC_RELAXED);
    int e = mm_room(a, 0);
    if (e)
        take_from_aside(a, p, blocks);
    return e;
}

/* What a process that was killed, or became another program, had set aside. */
void mm_room_of_dead(struct mm_area *a, struct mm_process *p)
{
    __atomic_sub_fetch(&a->head->owed, __atomic_exchange_n(&p->aside, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* needed: the disk was full for what it was set aside for, which gets it now. */
void mm_room_set_back(struct mm_area *a, struct mm_process *p, uint32_t blocks, int needed)
{
    struct mm_header *h = a->head;
    take_from_aside(a, p, blocks);
    if (!needed)
        return;
    mm_lock(&h->lock, MM_LOCK_AREA);
    shrink(a, wanted(h, 0));
    mm_unlock(&h->lock);
}

/* Room that is needed now: all but what is held for redirected blocks, for a checkpoint, and for one of little. */
void mm_room_give(struct mm_area *a, int redirected, int checkpoint, int least)
{
    struct mm_header *h = a->head;
    uint64_t keep = (redirected ? h->owed : 0) + (checkpoint ? for_checkpoint(h) : 0) + (least ? LEAST : 0);
    mm_lock(&h->lock, MM_LOCK_AREA);
    shrink(a, keep);
    mm_unlock(&h->lock);
}
