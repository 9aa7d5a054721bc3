/* slots.c - FITs and PIFs of the run area.
 *
 * Invariants: a slot is filled before it is published (bucket, descriptor map); lists change under the area lock.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mm_pif *mm_pif_at(struct mm_area *a, uint32_t slot)
{
    return mm_region(a, PIFS, (uint64_t)slot * sizeof(struct mm_pif));
}
struct mm_fit *mm_fit_at(struct mm_area *a, uint32_t fit)
{
    return mm_region(a, FITS, (uint64_t)fit * sizeof(struct mm_fit));
}

uint32_t mm_fit_new(struct mm_area *a)
{
    struct mm_header *h = a->head;
    uint32_t slot = 0;
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (h->free_fit) {
        slot = h->free_fit;
        h->free_fit = mm_fit_at(a, slot)->next_free;
    } else if (mm_reserve(a, FITS, ((uint64_t)h->fit_count + 1) * sizeof(struct mm_fit)) == 0) {
        slot = h->fit_count++;
    }
    if (slot) {
        struct mm_fit *f = mm_fit_at(a, slot);
        memset(f, 0, sizeof *f);
        f->created = h->epoch;
    }
    mm_unlock(&h->lock);
    return slot;
}

void mm_fit_ref(struct mm_area *a, uint32_t fit)
{
    __atomic_add_fetch(&mm_fit_at(a, fit)->refs, 1, __ATOMIC_RELAXED);
}

void mm_fit_unref(struct mm_area *a, uint32_t fit)
{
    struct mm_fit *f = mm_fit_at(a, fit);
    uint32_t refs = __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL);
    MM_ASSERT(refs != UINT32_MAX);     /* a slot that is referred to lives */
    if (refs)
        return;
    uint32_t slot = f->slot;
    mm_lock(&a->head->lock, MM_LOCK_AREA);
    f->slot = 0;
    f->next_free = a->head->free_fit;
    a->head->free_fit = fit;
    mm_unlock(&a->head->lock);
    if (slot && __atomic_sub_fetch(&mm_pif_at(a, slot)->refs, 1, __ATOMIC_ACQ_REL) == 0)
        mm_pif_drop(a, slot);
}

static uint32_t bucket_number(uint64_t dev, uint64_t ino)
{
    uint64_t x = (ino ^ dev * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    return x >> 48 & (MM_BUCKETS - 1);
}

static uint32_t *bucket_of(struct mm_area *a, uint64_t dev, uint64_t ino)
{
    return &a->head->bucket[bucket_number(dev, ino)];
}

/* A file that nobody follows is mapped: should the run write to it later, the mapping must see it. */
void mm_mapped_unfollowed(struct mm_area *a, uint64_t dev, uint64_t ino)
{
    uint32_t n = bucket_number(dev, ino);
    __atomic_fetch_or(&a->head->mapped_files[n / 8], 1 << n % 8, __ATOMIC_SEQ_CST);
}
int mm_was_mapped(struct mm_area *a, uint64_t dev, uint64_t ino)
{
    uint32_t n = bucket_number(dev, ino);
    return __atomic_load_n(&a->head->mapped_files[n / 8], __ATOMIC_SEQ_CST) >> n % 8 & 1;
}

/* A file of which the store has a copy, since it cannot have a link, or that left the scope: when nobody has it open either, its
 * number may be another's. */
static int left_its_number(const struct mm_pif *p)
{
    return p->flags & MM_NAMELESS && p->flags & (MM_COPIED | MM_LEFT) && !__atomic_load_n(&p->refs, __ATOMIC_RELAXED);
}

__attribute__((no_sanitize("thread")))
static uint32_t look(struct mm_area *a, uint64_t dev, uint64_t ino, uint64_t btime_ns)
{
    uint32_t slot = __atomic_load_n(bucket_of(a, dev, ino), __ATOMIC_ACQUIRE);
    for (uint32_t steps = 0; slot && steps < 1u << 20; steps++) {
        struct mm_pif *p = mm_pif_at(a, slot);
        if (p->ino == ino && p->dev == dev && (p->flags & MM_USED) && (btime_ns && p->btime_ns ? p->btime_ns == btime_ns : !left_its_number(p)))
            return slot;
        slot = __atomic_load_n(&p->next_hash, __ATOMIC_ACQUIRE);
    }
    return 0;
}

/* btime_ns 0: whatever its birth (a caller that has only struct stat).  Taken without the lock: a chain may lose and
 * change members meanwhile, which always moves the generation, and then "not there" means nothing. */
__attribute__((no_sanitize("thread")))
uint32_t mm_pif_find(struct mm_area *a, uint64_t dev, uint64_t ino, uint64_t btime_ns)
{
    for (;;) {
        uint32_t generation = __atomic_load_n(&a->head->pif_generation, __ATOMIC_ACQUIRE);
        uint32_t slot = look(a, dev, ino, btime_ns);
        if (slot || generation == __atomic_load_n(&a->head->pif_generation, __ATOMIC_ACQUIRE))
            return slot;
    }
}

/* Of two files that have had this number, the one that was just looked at: its birth says which. */
uint32_t mm_pif_born(struct mm_area *a, int dir, const char *path, int flags, uint64_t dev, uint64_t ino, uint32_t slot)
{
    struct statx now;
    if (mm_statx(dir, path, flags, &now) < 0 || now.stx_ino != ino
        || sys_dev(now.stx_dev_major, now.stx_dev_minor) != dev)
        return slot;
    return mm_pif_find(a, dev, ino, sys_birth(&now));
}

/* The file's path in the strings region: written over in place when it fits. */
int mm_set_path(struct mm_area *a, struct mm_pif *p, const char *path)
{
    struct mm_header *h = a->head;
    uint32_t need = (uint32_t)strlen(path) + 1;
    MM_ASSERT(mm_locked_by_me(&h->lock));
    if (need > p->path_capacity) {
        uint32_t room = (need + 63) & ~63u;
        uint64_t at = h->strings_tail;
        if ((at ^ (at + room)) >> MM_SEGMENT_BITS)
            at = ((at >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS;
        int e = mm_reserve(a, STRINGS, at + room);
        if (e)
            return e;
        h->strings_tail = at + room;
        p->path = at;
        p->path_capacity = room;
    }
    memcpy(mm_region(a, STRINGS, p->path), path, need);
    return 0;
}

/* Which PIFs there are changes, while the area is locked.  Odd as long as one is being made: whoever was killed meanwhile may have
 * made it, and nobody who looked before may rely on having found none. */
static void changing(struct mm_header *h) { __atomic_store_n(&h->pif_generation, h->pif_generation | 1, __ATOMIC_SEQ_CST); }
static void changed(struct mm_header *h) { __atomic_store_n(&h->pif_generation, (h->pif_generation | 1) + 1, __ATOMIC_RELEASE); }

/* All of a slot but the lock of its names: whoever waits for that, or has just dropped the slot, takes it and lets it go meanwhile. */
static void fill(struct mm_pif *p, const struct mm_pif *made)
{
    const size_t behind = offsetof(struct mm_pif, names_lock) + sizeof p->names_lock;
    memcpy(p, made, offsetof(struct mm_pif, names_lock));
    memcpy((char *)p + behind, (const char *)made + behind, sizeof *p - behind);
}

/* A PIF for a file that has none; another thread or process may have been first.  as: what it is from the first moment
 * on, since whoever finds it acts on that.  It says the file's birth where the filesystem knows it: a file with two PIFs
 * has its bytes in two places; so it is in use when all else is there.  0: no room (ENOSPC). */
uint32_t mm_pif_make(struct mm_area *a, const struct mm_pif *as, const char *path)
{
    struct mm_header *h = a->head;
    mm_lock(&h->lock, MM_LOCK_AREA);
    uint32_t slot = mm_pif_find(a, as->dev, as->ino, as->btime_ns);
    if (slot) {
        mm_unlock(&h->lock);
        return slot;
    }
    if (h->free_pif) {
        slot = h->free_pif;
        h->free_pif = mm_pif_at(a, slot)->next_hash;
    } else if (mm_reserve(a, PIFS, ((uint64_t)h->pif_count + 1) * sizeof(struct mm_pif)) == 0) {
        slot = __atomic_fetch_add(&h->pif_count, 1, __ATOMIC_ACQ_REL);
    }
    if (slot) {
        struct mm_pif *p = mm_pif_at(a, slot), made = *as;
        /* a slot that was freed in this epoch is still on the dirty list: its place there stays, at every instruction */
        made.path = p->path;
        made.path_capacity = p->path_capacity;
        made.epoch = p->epoch;
        made.next_dirty = p->next_dirty;
        made.next_mapped = p->next_mapped;
        made.listed = p->listed;
        made.reused = p->reused;
        made.flags = 0;
        fill(p, &made);
        if (mm_set_path(a, p, path) < 0) {
            p->next_hash = h->free_pif;
            h->free_pif = slot;
            slot = 0;
        } else {
            uint32_t *bucket = bucket_of(a, as->dev, as->ino);
            p->next_hash = *bucket;
            __atomic_store_n(bucket, slot, __ATOMIC_RELEASE);
            changing(h);
            __atomic_store_n(&p->flags, as->flags, __ATOMIC_RELEASE);
            MM_STOP("pif.made");
            changed(h);
        }
    }
    mm_unlock(&h->lock);
    return slot;
}

/* One of which no more is known (the caller says the rest, while the run is frozen). */
uint32_t mm_pif_new(struct mm_area *a, uint64_t dev, uint64_t ino, uint64_t btime_ns, const char *path)
{
    struct mm_pif as = { .dev = dev, .ino = ino, .btime_ns = btime_ns, .flags = MM_USED,
                         .home_limit = MM_NO_LIMIT, .cut = MM_NO_LIMIT, .cut_before = MM_NO_LIMIT };
    return mm_pif_make(a, &as, path);
}

static void unhash(struct mm_area *a, uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    uint32_t *link = bucket_of(a, p->dev, p->ino);
    MM_ASSERT(mm_locked_by_me(&a->head->lock));
    while (*link && *link != slot)
        link = &mm_pif_at(a, *link)->next_hash;
    if (*link)
        __atomic_store_n(link, p->next_hash, __ATOMIC_RELEASE);
}

/* A restore has made another file of it (a copy, where it could not be linked): it is found by what it is now. */
void mm_pif_identify(struct mm_area *a, uint32_t slot, uint64_t dev, uint64_t ino, uint64_t btime_ns)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    mm_lock(&a->head->lock, MM_LOCK_AREA);
    unhash(a, slot);
    p->dev = dev, p->ino = ino, p->btime_ns = btime_ns;
    uint32_t *bucket = bucket_of(a, dev, ino);
    p->next_hash = *bucket;
    __atomic_store_n(bucket, slot, __ATOMIC_RELEASE);
    changed(a->head);
    mm_unlock(&a->head->lock);
}

/* It is gone, and another file has its number.  It keeps what it was, by which indexes know it; nobody finds it by that. */
void mm_pif_hide(struct mm_area *a, uint32_t slot)
{
    mm_lock(&a->head->lock, MM_LOCK_AREA);
    unhash(a, slot);
    changed(a->head);
    mm_unlock(&a->head->lock);
}

/* Never that of another file which a record knows: head would take this one for both. */
void mm_kept_name(struct mm_area *a, uint32_t slot, char *out, size_t room)
{
    unsigned reused = mm_pif_at(a, slot)->reused;
    int n = snprintf(out, room, "%s/kept/r%llu.%u", a->store, (unsigned long long)a->head->run, slot);
    if (reused && n > 0 && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, ".%u", reused);
}

/* One more description of a file that was just found to have this slot.  0: the slot is another's by now, or nobody's. */
int mm_pif_ref(struct mm_area *a, uint32_t slot, uint64_t dev, uint64_t ino)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    int held = mm_pif_hold_names(p), is_it = (p->flags & MM_USED) && p->dev == dev && p->ino == ino;
    if (is_it)
        __atomic_add_fetch(&p->refs, 1, __ATOMIC_SEQ_CST);
    mm_pif_let_names_go(p, held);
    return is_it;
}

static int done_with(struct mm_area *a, const struct mm_pif *p)
{
    return (p->flags & MM_NAMELESS) && !(p->flags & (MM_INDEXED | MM_MAPPED)) && p->created == a->head->epoch;
}

/* Nobody finds the slot any more, and whoever has found it gets no reference: only then is what it had given back. */
static void drop(struct mm_area *a, uint32_t slot)
{
    struct mm_header *h = a->head;
    struct mm_pif *p = mm_pif_at(a, slot);
    uint32_t flags = 0;
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (done_with(a, p) && !__atomic_load_n(&p->refs, __ATOMIC_SEQ_CST) && (flags = p->flags) & MM_USED) {
        unhash(a, slot);
        p->flags = 0;
        changed(h);
    }
    mm_unlock(&h->lock);
    if (!(flags & MM_USED))
        return;
    MM_STOP("drop.forgotten");
    if (flags & MM_KEPT) {
        SCRATCH(name);
        mm_kept_name(a, slot, name, SCRATCH_BYTES);
        sys(SYS_unlinkat, AT_FDCWD, name, 0);
    }
    mm_table_free(a, p);
    mm_saved_free(a, p);
    mm_cache_drop(a, slot);
    if (p->object && ++p->reused == 0)     /* it has no more names to give: nobody gets it */
        return;
    mm_lock(&h->lock, MM_LOCK_AREA);
    p->next_hash = h->free_pif;
    h->free_pif = slot;
    mm_unlock(&h->lock);
}

/* The last descriptor and the last name are gone: what no index knows is forgotten. */
void mm_pif_drop(struct mm_area *a, uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    if (!done_with(a, p))
        return;
    int held = mm_pif_hold_names(p);
    drop(a, slot);
    mm_pif_let_names_go(p, held);
}

/* After a checkpoint or a restore in which its last descriptor went. */
void mm_drop_if_done(struct mm_area *a, uint32_t slot)
{
    if (mm_pif_at(a, slot)->refs == 0)
        mm_pif_drop(a, slot);
}

/* No index that is left leads to it: a file without name and descriptor, its backing file in the store with it. */
void mm_pif_forget(struct mm_area *a, uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    if (!(p->flags & MM_NAMELESS) || p->refs)
        return;
    __atomic_and_fetch(&p->flags, ~MM_INDEXED, __ATOMIC_ACQ_REL);
    p->created = a->head->epoch;
    mm_pif_drop(a, slot);
}

/* First touch in this epoch: onto the list that the next checkpoint walks.  The first one there bears its mark, unless whoever
 * put it there was killed before it set that: a list that has one twice would never end. */
void mm_pif_touched(struct mm_area *a, uint32_t slot)
{
    struct mm_header *h = a->head;
    struct mm_pif *p = mm_pif_at(a, slot);
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (h->dirty)
        __atomic_store_n(&mm_pif_at(a, h->dirty)->epoch, h->epoch, __ATOMIC_RELEASE);
    if (p->epoch != h->epoch) {
        p->next_dirty = h->dirty;
        __atomic_store_n(&h->dirty, slot, __ATOMIC_RELEASE);
        __atomic_store_n(&p->epoch, h->epoch, __ATOMIC_RELEASE);
    }
    mm_unlock(&h->lock);
}

static int on_mapped_list(struct mm_area *a, uint32_t slot)
{
    uint32_t each = a->head->mapped;
    while (each && each != slot)
        each = mm_pif_at(a, each)->next_mapped;
    return each != 0;
}

/* Its bytes may change unseen from now on: onto the list that every checkpoint walks, and flagged when it is there.  What was
 * killed in between, here or when a checkpoint lets go of it, leaves it there without its flag. */
void mm_pif_mapped(struct mm_area *a, uint32_t slot)
{
    struct mm_header *h = a->head;
    struct mm_pif *p = mm_pif_at(a, slot);
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (!(p->flags & MM_MAPPED)) {
        if (!p->listed || !on_mapped_list(a, slot)) {
            __atomic_store_n(&p->listed, 1, __ATOMIC_RELEASE);
            p->next_mapped = h->mapped;
            __atomic_store_n(&h->mapped, slot, __ATOMIC_RELEASE);
        }
        __atomic_fetch_or(&p->flags, MM_MAPPED | MM_HOME, __ATOMIC_RELEASE);
    }
    mm_unlock(&h->lock);
}
