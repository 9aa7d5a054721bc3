/* descriptor_table.c - the process's array of descriptors: what a number leads to, looked up again when a file more is tracked.
 *
 * Invariant: an entry's slot is of the file that its description leads to.  It changes under the table's lock, and who closes a
 * descriptor lets the description go under it.
 */
#include "area/area.h"

uint32_t mm_table_lock;

/* The FIT of a descriptor whose number means the same file as a moment ago, or 0: also of what can be no descriptor. */
uint32_t mm_stable(int fd)
{
    if (UNLIKELY((unsigned)fd >= MM_FDS))
        return 0;
    while (UNLIKELY(__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE) == MM_CHANGING))
        sys_pause_us(50);
    return __atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE);
}

int mm_table_begin(void)
{
    mm_holding++;
    uint32_t holder = __atomic_load_n(&mm_table_lock, __ATOMIC_RELAXED) & 0x7fffffff;
    if (holder && holder == mm_tid)    /* in fork, or in a handler that interrupted this */
        return 0;
    mm_lock(&mm_table_lock, MM_LOCK_TABLE);
    return 1;
}

void mm_table_end(int locked_here)
{
    if (locked_here)
        mm_unlock(&mm_table_lock);
    mm_holding--;
    mm_deliver_if_free();
}

/* The PIF of what a descriptor leads to, noted for it and for the description.  0: it leads to something else by now. */
static int look_again(int fd, uint32_t *slot, int *appeared)
{
    struct mm_descriptor *d = &mm_fds[fd];
    uint32_t fit = __atomic_load_n(&d->fit, __ATOMIC_ACQUIRE);
    if (!fit)
        return 1;
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    uint32_t generation = mm_generation(), found = 0, known = 0;
    uint64_t dev = f->dev, ino = f->ino;
    if (!__atomic_load_n(&f->slot, __ATOMIC_ACQUIRE) && (found = mm_pif_find(mm_area, dev, ino, 0)))
        found = mm_pif_born(mm_area, fd, "", AT_EMPTY_PATH, dev, ino, found);  /* who removed another was killed before it said so */
    if (found && !mm_pif_ref(mm_area, found, dev, ino))
        found = 0;
    MM_STOP("again.found");
    int mine = mm_table_begin();       /* who closes it lets the description go under this lock */
    uint32_t looked = __atomic_load_n(&d->generation, __ATOMIC_RELAXED);
    int same = looked != MM_CHANGING && d->fit == fit && f->dev == dev && f->ino == ino;
    if (same) {
        /* one description counts once, whichever of its threads and processes comes first */
        if (!found)
            known = __atomic_load_n(&f->slot, __ATOMIC_ACQUIRE);
        else if (__atomic_compare_exchange_n(&f->slot, &known, found, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            known = found, found = 0;
        *slot = known;
        *appeared = !__atomic_load_n(&d->slot, __ATOMIC_RELAXED) && known;
        /* pif_of reads them in the other order: who sees the generation sees its slot */
        __atomic_store_n(&d->slot, known, __ATOMIC_RELAXED);
        __atomic_compare_exchange_n(&d->generation, &looked, generation, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);   /* not MM_CHANGING */
    }
    mm_table_end(mine);
    if (found && __atomic_sub_fetch(&mm_pif_at(mm_area, found)->refs, 1, __ATOMIC_ACQ_REL) == 0)
        mm_pif_drop(mm_area, found);
    return same;
}

/* The PIF of a descriptor after PIFs have appeared: a reader's file may be written by now. */
uint32_t mm_pif_again(int fd)
{
    uint32_t slot = 0;
    int appeared = 0;
    mm_holding++;                      /* a handler might want what is locked here, or close it */
    while (mm_stable(fd) && !look_again(fd, &slot, &appeared)) {
    }
    mm_holding--;
    mm_deliver_if_free();
    if (UNLIKELY(mm_on_tracked != NULL) && appeared)
        mm_on_tracked(fd);
    return slot;
}
