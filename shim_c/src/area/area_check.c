/* area_check.c - whether what a killed run left in its area leads outside of it.
 *
 * A run area has no checksums: it changes with every call.  So whoever completes a run looks first at everything in it
 * that says where something else lies.  Only what would be a fault, an endless walk or somebody else's slot counts: a
 * kill at any instruction leaves an area that is sound.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const name[REGIONS] = { "header", "processes", "fits", "pifs", "pages", "journal", "strings",
                                           "chunks", "frames", "cache" };

struct look {
    struct mm_area *a;
    uint64_t size[REGIONS];
    unsigned char *used;       /* bits: pages that a table has */
    char *why;
    long room;
    long trouble;              /* -errno: the machine's, which says nothing of the area */
};

__attribute__((format(printf, 2, 3))) static int bad(struct look *l, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(l->why, l->room, format, list);
    va_end(list);
    return 0;
}

static int sizes(struct look *l)
{
    struct stat st;
    SCRATCH(path);
    for (int i = 0; i < REGIONS; i++) {
        snprintf(path, SCRATCH_BYTES, "%s/run/%s", l->a->store, name[i]);
        long r = sys(SYS_newfstatat, AT_FDCWD, path, &st, 0);
        if (r < 0) {
            l->trouble = r == -ENOENT ? 0 : r;
            return bad(l, "%s is missing", name[i]);
        }
        l->size[i] = st.st_size;
        uint64_t said = i == HEADER ? sizeof(struct mm_header) : l->a->head->reserved[i];
        if (said > l->size[i] || said > (uint64_t)MM_SEGMENTS << MM_SEGMENT_BITS)
            return bad(l, "%s has %lu bytes, and should have %lu", name[i], l->size[i], said);
        if (i != HEADER)
            l->size[i] = said;
    }
    return 1;
}

static int counts(struct look *l)
{
    const struct mm_header *h = l->a->head;
    const struct { int region; uint64_t bytes; } said[] = {
        { PROCESSES, h->process_high * sizeof(struct mm_process) }, { FITS, h->fit_count * sizeof(struct mm_fit) },
        { PIFS, h->pif_count * sizeof(struct mm_pif) }, { FRAMES, h->frame_count * sizeof(struct mm_frame) },
        { CACHE, h->frame_count > 1 ? h->frame_count * (uint64_t)MM_CHUNK : 0 },
        { PAGES, h->next_page > 1 ? h->next_page * (uint64_t)MM_BLOCK : 0 }, { JOURNAL, h->journal_tail },
        { STRINGS, h->strings_tail },
    };
    for (unsigned i = 0; i < sizeof said / sizeof *said; i++)
        if (said[i].bytes > l->size[said[i].region])
            return bad(l, "the header counts more than %s holds", name[said[i].region]);
    return 1;
}

/* All of it, at once: what is not there when it is looked at would be a fault, or count as damage. */
static int all_mapped(struct look *l)
{
    for (int i = PROCESSES; i < REGIONS; i++)
        for (uint64_t at = 0; at < l->size[i]; at += 1ul << MM_SEGMENT_BITS)
            if (!mm_region(l->a, i, at)) {
                l->trouble = -ENOMEM;
                return 0;
            }
    return 1;
}

/* A table's page: inside, and no other table's.  An entry's upper half is no page number. */
static void *page(struct look *l, uint64_t entry)
{
    uint32_t n = (uint32_t)entry;
    if (n >= l->a->head->next_page || l->used[n / 8] >> n % 8 & 1)
        return NULL;
    l->used[n / 8] |= 1 << n % 8;
    return mm_page(l->a, n);
}

static int table(struct look *l, uint64_t entry, int depth)
{
    const uint64_t *entries = page(l, entry);
    for (int i = 0; entries && depth && i < 512; i++)
        if (entries[i] && !table(l, entries[i], depth - 1))
            return 0;
    return entries != NULL;
}

static int path_ends(struct look *l, uint64_t at)
{
    uint64_t end = ((at >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS;
    if (at >= l->size[STRINGS])
        return !at;
    return !at || memchr(mm_path_at(l->a, at), 0, (end < l->size[STRINGS] ? end : l->size[STRINGS]) - at) != NULL;
}

/* The room of a path, which is written over in place when a file is renamed, or its slot is another file's. */
static int path_has_room(struct look *l, const struct mm_pif *p)
{
    uint64_t end = ((p->path >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS, size = l->size[STRINGS];
    return !p->path_capacity || (p->path < size && p->path_capacity <= (end < size ? end : size) - p->path);
}

/* The rules of the scope end, and with them each text. */
static int scope(struct look *l)
{
    uint64_t at = l->a->head->scope, end = ((at >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS;
    end = end < l->size[STRINGS] ? end : l->size[STRINGS];
    if (!at)
        return 1;
    for (const struct mm_rule *r; at % 8 == 0 && at < end && end - at >= sizeof *r; at += r->next) {
        r = mm_region(l->a, STRINGS, at);
        if (!r->kind)
            return 1;
        const char *text = (const char *)(r + 1);
        if (r->next > end - at || sizeof *r + r->folder + r->pattern + 2 > r->next || r->next % 8 || text[r->folder]
            || text[r->folder + 1 + r->pattern])
            break;
    }
    return bad(l, "the rules of the scope lead outside");
}

static int pifs(struct look *l)
{
    uint32_t count = l->a->head->pif_count;
    for (uint32_t slot = 1; slot < count; slot++) {
        const struct mm_pif *p = mm_pif_at(l->a, slot);
        if (!path_has_room(l, p))
            return bad(l, "the path of file %u has no room", slot);
        if (p->next_hash >= count || p->next_dirty >= count || p->next_mapped >= count)
            return bad(l, "file %u is in a list that leads nowhere", slot);
        if (!(p->flags & MM_USED))
            continue;
        if (!path_ends(l, p->path))
            return bad(l, "the path of file %u lies outside", slot);
        if ((p->root && !table(l, p->root, 2)) || (p->saved && !table(l, p->saved, 2)))
            return bad(l, "the block table of file %u leads outside", slot);
    }
    return 1;
}

/* A list of slots ends before it comes round.  at: the byte of a slot that holds the next one. */
static int list_ends(struct look *l, uint32_t first, uint32_t count, void *(*slot)(struct mm_area *, uint32_t), size_t at)
{
    uint32_t steps = 0;
    for (; first && first < count && steps <= count; steps++)
        first = *(uint32_t *)((char *)slot(l->a, first) + at);
    return !first;
}

static void *pif_at(struct mm_area *a, uint32_t slot) { return mm_pif_at(a, slot); }
static void *fit_at(struct mm_area *a, uint32_t slot) { return mm_fit_at(a, slot); }
static void *frame_at(struct mm_area *a, uint32_t slot) { return mm_frame_at(a, slot); }

static int lists(struct look *l)
{
    const struct mm_header *h = l->a->head;
    int ends = list_ends(l, h->dirty, h->pif_count, pif_at, offsetof(struct mm_pif, next_dirty))
            && list_ends(l, h->mapped, h->pif_count, pif_at, offsetof(struct mm_pif, next_mapped))
            && list_ends(l, h->free_pif, h->pif_count, pif_at, offsetof(struct mm_pif, next_hash))
            && list_ends(l, h->free_fit, h->fit_count, fit_at, offsetof(struct mm_fit, next_free))
            && list_ends(l, h->free_frame, h->frame_count, frame_at, offsetof(struct mm_frame, next_free));
    for (uint32_t i = 0; ends && i < MM_BUCKETS; i++)
        ends = list_ends(l, h->bucket[i], h->pif_count, pif_at, offsetof(struct mm_pif, next_hash));
    return ends ? 1 : bad(l, "a list of the header has no end");
}

static int check_processes(struct look *l)
{
    for (uint32_t process = 1; process < l->a->head->process_high; process++) {
        uint32_t root = mm_proc(l->a, process)->fd_root;
        uint32_t held = mm_proc(l->a, process)->held, memory = mm_proc(l->a, process)->memory;
        const uint32_t *maps = root ? page(l, root) : NULL;
        if ((root && !maps) || (held && !page(l, held)) || (memory && !page(l, memory)))
            return bad(l, "the descriptors of process %u lie outside", process);
        for (int i = 0; maps && i < 1024; i++) {
            const uint32_t *fits = maps[i] ? page(l, maps[i]) : NULL;
            if (maps[i] && !fits)
                return bad(l, "the descriptors of process %u lie outside", process);
            for (int j = 0; fits && j < 1024; j++)
                if (fits[j] >= l->a->head->fit_count)
                    return bad(l, "a descriptor of process %u leads nowhere", process);
        }
    }
    for (uint32_t fit = 1; fit < l->a->head->fit_count; fit++)
        if (mm_fit_at(l->a, fit)->slot >= l->a->head->pif_count)
            return bad(l, "open file %u leads nowhere", fit);
    return 1;
}

static int frames(struct look *l)
{
    const struct mm_header *h = l->a->head;
    for (uint32_t i = 1; i < h->frame_count; i++) {
        const struct mm_frame *f = mm_frame_at(l->a, i);
        if (f->slot >= h->pif_count || f->low > MM_CHUNK || f->high > MM_CHUNK)
            return bad(l, "frame %u lies outside", i);
    }
    for (uint64_t at = 0; at < h->reserved[CHUNKS]; at += 4)
        if (*(uint32_t *)mm_region(l->a, CHUNKS, at) >= h->frame_count)
            return bad(l, "a chunk leads to no frame");
    return 1;
}

static const char zeros[MM_BLOCK];

/* Whoever takes one makes a table of it: it is nobody's, and holds nothing but the number of the next.  After the tables. */
static int free_pages(struct look *l)
{
    for (uint32_t n = l->a->head->free_page; n;) {
        const uint32_t *p = page(l, n);
        if (!p || memcmp(p + 1, zeros, MM_BLOCK - sizeof *p) != 0)
            return bad(l, "page %u is free and in use", n);
        n = *p;
    }
    return 1;
}

/* Behind the last slot or page ever handed out is what the file's space was: zeros, and no more of them than one step. */
static int untouched(struct look *l, int region, uint64_t from)
{
    uint64_t end = l->a->head->reserved[region];
    if (end - from > 1 << 20)
        return bad(l, "%s is larger than it was made", name[region]);
    for (uint64_t piece; from < end; from += piece) {
        piece = MM_BLOCK - from % MM_BLOCK;
        piece = piece < end - from ? piece : end - from;
        if (memcmp(mm_region(l->a, region, from), zeros, piece) != 0)
            return bad(l, "%s holds something behind its end", name[region]);
    }
    return 1;
}

static int untaken(struct look *l)
{
    return untouched(l, PIFS, l->a->head->pif_count * sizeof(struct mm_pif))
        && untouched(l, PAGES, l->a->head->next_page * (uint64_t)MM_BLOCK);
}

/* What no checkpoint has read yet. */
static int journal(struct look *l)
{
    const struct mm_header *h = l->a->head;
    uint64_t at = h->committed_journal > 8 ? h->committed_journal : 8;
    while (at < h->journal_tail) {
        const struct mm_touch *t = at % 8 || h->journal_tail - at < 8 ? NULL : mm_record_at(l->a, at);
        const struct mm_preimage *p = (const void *)t;
        uint64_t inside = ((at >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS;
        if (!t || t->length < 8 || t->length % 8 || t->length > (inside < h->journal_tail ? inside : h->journal_tail) - at
            || (t->type == MM_TOUCH && (t->length < sizeof *t || t->length - sizeof *t
                                        < (uint64_t)t->path_length + t->target_length + t->xattrs_length))
            || (t->type == MM_PREIMAGE && (t->length < sizeof *p || p->slot >= h->pif_count)))
            return bad(l, "the journal is broken at byte %lu", at);
        at += t->length;
    }
    return 1;
}

/* Nobody is alive in the run.  1, or 0 and what is wrong; -errno where the machine has no means to look. */
int mm_sound(struct mm_area *area, char *why, long room)
{
    struct look l = { .a = area, .why = why, .room = room };
    if (!sizes(&l) || !counts(&l) || !all_mapped(&l))
        return (int)l.trouble;
    uint64_t bits = area->head->next_page / 8 + 1;
    long r = sys(SYS_mmap, 0, bits, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096)
        return (int)r;
    l.used = (unsigned char *)r;
    int sound = scope(&l) && pifs(&l) && lists(&l) && check_processes(&l) && free_pages(&l) && untaken(&l) && frames(&l)
             && journal(&l);
    sys(SYS_munmap, r, bits);
    return sound;
}
