/* looks_ahead.c - the looks of looks.c, frozen, or before that while the run goes on, where they are many (adr/0063).
 *
 * An epoch begins first, so that whatever happens to a name or a file from then on is noted, or touches it, once more: before it
 * happens, and a freeze waits for both.  Frozen, those are looked at again, and the others are as they were found.
 */
#include "area/area.h"
#include "area/area_internal.h"
#include "area/looks.h"

/* The run goes on; since `until`, when no call was under way, it is in another epoch.  NULL: no memory. */
struct mm_looks *mm_looks_ahead(struct mm_area *a, uint64_t until)
{
    struct mm_header *h = a->head;
    char path[4096];
    struct mm_looks *l = mm_looks_room(a, until, 1);
    if (!l)
        return NULL;
    struct places *t = l->places;
    l->look = 1;
    t->epoch = h->epoch;
    mm_looks_notes(a, l, until, 0);
    for (uint32_t slot = 0; !t->full && !l->broken && (slot = mm_pif_due(a, slot)) != 0;) {
        struct mm_pif *p = mm_pif_at(a, slot);
        __atomic_fetch_or(&p->flags, 0, __ATOMIC_RELAXED);     /* its page is there to be written to: mm_looks_cut will */
        mm_lock(&h->lock, MM_LOCK_AREA);   /* its path is not written over meanwhile */
        size_t length = strnlen(mm_path_at(a, p->path), sizeof path - 1);
        memcpy(path, mm_path_at(a, p->path), length);
        mm_unlock(&h->lock);
        path[length] = 0;
        if (l->files == t->file_room && mm_looks_full(l))
            break;
        int may_be_plain = !(p->flags & ~PLAIN_FLAGS) && !p->root;
        uint32_t looked = may_be_plain ? mm_looks_row(a, l, path, (uint32_t)length, 0) : MM_NOT_LOOKED;
        struct mm_cut_file *f = &l->file[l->files++];
        *f = (struct mm_cut_file){ .slot = slot, .looked = looked };
        if (looked == MM_NOT_LOOKED || t->full || mm_pif_unseen(h, p) || p->flags & ~SEEN_FLAGS)
            continue;
        const struct mm_looked *row = &l->looked[looked];
        mm_looks_tell(f, p, row);          /* half of it is another's, maybe: who changes it has touched the file before */
        f->plain = row->known && row->mode && row->nlink == 1 && row->slot == slot && row->dev == f->dev && row->ino == f->ino;
    }
    for (uint32_t i = 0; !t->full && i < l->names; i++)            /* new folders: which of them have other names, too? */
        mm_looks_list(l, l->text + l->looked[i].path, l->looked[i].path_length);
    return l;
}

/* Plain files that are as they were seen, and their rows with them; those that are not are listed. */
static uint32_t skip_same(struct mm_area *a, struct mm_looks *l, uint32_t *others)
{
    struct places *t = l->places;
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->files; i++) {
        struct mm_cut_file *f = &l->file[i];
        const struct mm_pif *p = mm_pif_at(a, f->slot);
        if (i + NEAR < l->files) {
            const struct mm_pif *soon = mm_pif_at(a, l->file[i + NEAR].slot);
            __builtin_prefetch(soon);
            __builtin_prefetch(&soon->refs);
        }
        if (f->plain && p->flags == f->flags && p->epoch != a->head->epoch && p->ino == f->ino && p->dev == f->dev
            && !(t->mark[f->looked] & AGAIN)) {
            t->mark[f->looked] |= AS_SEEN;
            f->refs = p->refs;             /* who reads it does not touch it */
        } else {
            others[count++] = i;
        }
    }
    return count;
}

/* Is a row as it was seen ahead?  Its file may have been changed by a descriptor, or by another of its names. */
static int is_as_seen(struct mm_area *a, const struct mm_looks *l, uint32_t i)
{
    const struct mm_looked *row = &l->looked[i];
    if (places_of(l)->mark[i] & (AGAIN | AS_SEEN))
        return places_of(l)->mark[i] & AS_SEEN;
    if (!row->known || !row->mode)
        return 1;
    if (!row->slot || row->nlink != 1)
        return 0;
    const struct mm_pif *p = mm_pif_at(a, row->slot);
    return p->flags & MM_USED && !(p->flags & ~SEEN_FLAGS) && !mm_pif_unseen(a->head, p) && p->epoch != a->head->epoch
        && p->ino == row->ino && p->dev == row->dev;
}

/* Frozen: what has happened since the look ahead.  0: there is no room for it, or nobody is told what happened: programs were there
 * that are not tracked. */
static int caught_up(struct mm_area *a, struct mm_looks *l)
{
    struct mm_header *h = a->head;
    struct places *t = l->places;
    struct folder *folder = l->folder;
    uint32_t names = l->names;
    if (t->full || t->epoch != h->epoch || h->untracked)
        return 0;
    if (h->dirty)                          /* as mm_pif_touched: whoever put it there was killed before it set the mark, maybe */
        __atomic_store_n(&mm_pif_at(a, h->dirty)->epoch, h->epoch, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < l->folders; i++)
        folder[i].real = 0;
    mm_looks_notes(a, l, h->journal_tail, names);
    uint32_t *others = l->other_file, count = skip_same(a, l, others);     /* free until the end */
    for (uint32_t i = 0; i < names && !t->full; i++) {
        struct mm_looked *row = &l->looked[i];
        if (is_as_seen(a, l, i))
            continue;
        mm_looks_folder(l, l->text + row->path, row->path_length)->present -= row->mode != 0;
        *row = (struct mm_looked){ .note = row->note, .path = row->path, .path_length = row->path_length };
        mm_looks_see(a, l, row);
    }
    while (count && !t->full) {
        struct mm_cut_file *f = &l->file[others[--count]];
        const struct mm_pif *p = mm_pif_at(a, f->slot);
        if (p->flags & MM_USED && p->epoch != h->epoch && mm_pif_since(h, p))
            mm_looks_file(a, l, f, f->slot, f->looked);
        else
            *f = l->file[--l->files];      /* it is on the list, or another file's by now */
    }
    for (uint32_t slot = h->dirty; slot && !t->full; slot = mm_pif_at(a, slot)->next_dirty)
        if (mm_pif_at(a, slot)->flags & MM_USED)
            mm_looks_more(a, l, slot);
    return !t->full;
}

/* What Python has to look at, in two lists. */
static void list_others(struct mm_looks *l)
{
    const unsigned char *mark = places_of(l)->mark;
    for (uint32_t i = 0; i < l->names; i++)
        if (!(mark[i] & AS_SEEN) && l->looked[i].note && !l->looked[i].known)
            l->other_note[l->other_notes++] = l->looked[i].note;
    for (uint32_t i = 0; i < l->files; i++)
        if (!l->file[i].plain)
            l->other_file[l->other_files++] = l->file[i].slot;
}

/* Frozen.  What the checkpoint that is being made is about; NULL: no memory.  look: as far as it is simple.  ahead: what was
 * looked at before, or NULL; it may be what is returned. */
struct mm_looks *mm_looks_take(struct mm_area *a, int look, struct mm_looks *ahead)
{
    struct mm_looks *l = look && ahead && caught_up(a, ahead) ? ahead : mm_looks_room(a, a->head->journal_tail, 0);
    if (!l)
        return NULL;
    if (l != ahead) {
        l->look = look;
        mm_looks_notes(a, l, a->head->journal_tail, 0);
        for (uint32_t slot = 0; (slot = mm_pif_due(a, slot)) != 0;)
            mm_looks_more(a, l, slot);
        MM_ALWAYS(!places_of(l)->full);    /* it was counted, and nothing moves */
    }
    list_others(l);
    return l;
}
