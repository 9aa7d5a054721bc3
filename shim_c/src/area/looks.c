/* looks.c - what a checkpoint must know of every name noted and every file touched since the last one, in one pass while the
 * run is frozen: a name may stand for what is simple (nothing, or a regular file without extended attributes), and a file may be
 * simple too.  Of the rest only that it is there is said: Python looks at it before the run goes on (checkpoint/looks.py).
 *
 * Nothing is allocated but one mapping, whose size is counted first.
 */
#define _GNU_SOURCE
#include "area/area.h"
#include "area/area_internal.h"
#include "area/looks.h"

#include <sys/stat.h>

#define PLAIN_FLAGS (MM_VIRTUAL | MM_INDEXED | MM_USED | MM_SETTLED | MM_LINKED | MM_SECONDS)
#define NO_SYMLINKS 0x04                 /* RESOLVE_NO_SYMLINKS */

struct folder {                          /* around names that were looked at */
    const char *path;
    uint32_t length, present;            /* present: names in it that stand for something */
    uint32_t real;                       /* 0: nobody can tell; 1: it is where its path says; 2: a link is on the way */
};

struct places {                          /* a name's row, and its folder, by the path */
    uint32_t *row, *folder;
    uint64_t mask;
};

static uint64_t hash_path(const char *path, uint64_t length)
{
    uint64_t h = 14695981039346656037u;
    for (uint64_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)path[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static const char *path_of(const struct mm_looks *l, const struct mm_looked *row)
{
    return l->text + row->path;
}

/* The place of a folder in the table: its own, or the free one where it belongs. */
static uint32_t *folder_place(const struct mm_looks *l, const char *path, uint32_t length)
{
    const struct places *t = l->places;
    const struct folder *all = l->folder;
    uint64_t at = hash_path(path, length) & t->mask;
    for (; t->folder[at]; at = (at + 1) & t->mask)
        if (all[t->folder[at] - 1].length == length && memcmp(all[t->folder[at] - 1].path, path, length) == 0)
            break;
    return &t->folder[at];
}

/* The folder that a path is in. */
static struct folder *folder_around(struct mm_looks *l, const char *path, uint32_t length)
{
    struct folder *all = l->folder;
    while (length && path[length - 1] != '/')
        length--;
    if (length > 1)
        length--;
    uint32_t *place = folder_place(l, path, length);
    if (!*place) {
        all[l->folders] = (struct folder){ .path = path, .length = length };
        *place = ++l->folders;
    }
    return &all[*place - 1];
}

/* Whether a folder is where its path says: what is reached through a link has names of its own.  0: nobody can tell; 1: it is, or
 * nothing is there; 2: a link is on the way. */
int mm_is_real(const char *folder, uint32_t length)
{
    char path[4096];
    struct { uint64_t flags, mode, resolve; } how = { O_PATH | O_DIRECTORY | O_CLOEXEC, 0, NO_SYMLINKS };
    if (length >= sizeof path)
        return 0;
    memcpy(path, folder, length);
    path[length] = 0;
    long fd = sys(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd >= 0)
        sys(SYS_close, fd);
    return fd >= 0 || fd == -ENOENT || fd == -ENOTDIR ? 1 : fd == -ELOOP ? 2 : 0;
}

static void see(struct mm_area *a, struct mm_looks *l, struct mm_looked *row)
{
    const char *path = path_of(l, row);
    struct folder *folder = folder_around(l, path, row->path_length);
    struct stat st;
    folder->real = folder->real ? folder->real : (uint32_t)mm_is_real(folder->path, folder->length);
    row->known = folder->real != 0;
    if (folder->real != 1)
        return;
    long r = sys(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW);
    row->known = r == -ENOENT || r == -ENOTDIR;
    if (r < 0)
        return;
    folder->present++;
    row->mode = st.st_mode, row->uid = st.st_uid, row->gid = st.st_gid, row->nlink = st.st_nlink;
    row->dev = st.st_dev, row->ino = st.st_ino, row->size = st.st_size;
    row->mtime_ns = sys_time_ns(st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    row->ctime_ns = sys_time_ns(st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    row->known = S_ISREG(st.st_mode) && sys(SYS_llistxattr, path, NULL, 0) <= 0;
    row->slot = row->known ? mm_pif_there(a, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, st.st_dev, st.st_ino) : 0;
    if (row->slot && mm_pif_at(a, row->slot)->flags & MM_LEFT)
        row->known = 0;
}

/* The row of a path: looked at once, nothing moves. */
static uint32_t row_of(struct mm_area *a, struct mm_looks *l, const char *path, uint32_t length, uint64_t note)
{
    const struct places *t = l->places;
    uint64_t at = hash_path(path, length) & t->mask;
    for (; t->row[at]; at = (at + 1) & t->mask) {
        const struct mm_looked *known = &l->looked[t->row[at] - 1];
        if (known->path_length == length && memcmp(path_of(l, known), path, length) == 0)
            return t->row[at] - 1;
    }
    struct mm_looked *row = &l->looked[l->names++];
    *row = (struct mm_looked){ .note = note, .path = l->text_used, .path_length = length };
    memcpy(l->text + l->text_used, path, length);     /* a file's own path is written over when it moves */
    l->text[l->text_used + length] = 0;
    l->text_used += length + 1;
    t->row[at] = l->names;
    if (l->look)
        see(a, l, row);
    return l->names - 1;
}

static int is_unseen(const struct mm_header *h, const struct mm_pif *p)
{
    return p->flags & MM_MAPPED || p->let_go > h->committed_epoch;
}

/* The next file after `slot` that was touched since the last checkpoint that was written to its end; 0: none.  In a job others
 * change our files, too. */
uint32_t mm_pif_due(struct mm_area *a, uint32_t slot)
{
    const struct mm_header *h = a->head;
    int all = h->flags & MM_JOB || h->cut_pending;
    if (!all) {
        slot = slot ? mm_pif_at(a, slot)->next_dirty : h->dirty;
        while (slot && !(mm_pif_at(a, slot)->flags & MM_USED))
            slot = mm_pif_at(a, slot)->next_dirty;
        return slot;
    }
    while (++slot < h->pif_count) {
        const struct mm_pif *p = mm_pif_at(a, slot);
        if (p->flags & MM_USED && (h->flags & MM_JOB || p->epoch > h->committed_epoch || is_unseen(h, p)))
            return slot;
    }
    return 0;
}

static void take_file(struct mm_area *a, struct mm_looks *l, uint32_t slot)
{
    const struct mm_header *h = a->head;
    struct mm_pif *p = mm_pif_at(a, slot);
    struct mm_cut_file *f = &l->file[l->files++];
    const char *path = mm_path_at(a, p->path);
    *f = (struct mm_cut_file){ .slot = slot, .looked = MM_NOT_LOOKED };
    if (!l->look || h->flags & MM_JOB || p->flags & ~PLAIN_FLAGS || is_unseen(h, p) || p->root)
        return;
    f->looked = row_of(a, l, path, (uint32_t)strlen(path), 0);
    const struct mm_looked *row = &l->looked[f->looked];
    f->plain = row->known && row->mode && row->dev == p->dev && row->ino == p->ino;
    f->object = p->object, f->dev = p->dev, f->ino = p->ino, f->btime_ns = p->btime_ns;
    f->created = p->created, f->flags = p->flags, f->refs = p->refs;
    f->size = p->flags & MM_VIRTUAL ? p->size : row->size;
    f->home_limit = p->home_limit, f->mtime_ns = p->mtime_ns;
    f->cut = p->cut < p->cut_before ? p->cut : p->cut_before;
    f->old_size = p->old_size, f->old_mtime_ns = p->old_mtime_ns;
    f->old_mode = p->old_mode, f->old_uid = p->old_uid, f->old_gid = p->old_gid;
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 63) & ~63ull; }

/* Frozen.  What the checkpoint that is being made is about; NULL: no memory.  look: as far as it is simple. */
struct mm_looks *mm_looks_take(struct mm_area *a, int look)
{
    const struct mm_header *h = a->head;
    uint64_t mask = 1;
    uint64_t names = 0, files = 0, preimages = 0, text = 0;
    for (uint64_t at = h->committed_journal; at < h->journal_tail;) {
        const struct mm_touch *r = mm_record_at(a, at);
        if (r->length < 8)
            break;
        names += r->type == MM_TOUCH, preimages += r->type == MM_PREIMAGE;
        text += r->type == MM_TOUCH ? r->path_length + 1u : 0;
        at += r->length;
    }
    for (uint32_t slot = 0; (slot = mm_pif_due(a, slot)) != 0; files++)
        text += strlen(mm_path_at(a, mm_pif_at(a, slot)->path)) + 1;
    names += files;
    while (mask < 2 * names)
        mask = 2 * mask + 1;
    uint64_t part[] = { rounded(sizeof(struct mm_looks) + sizeof(struct places)), rounded(names * sizeof(struct mm_looked)),
                        rounded(files * sizeof(struct mm_cut_file)), rounded(preimages * 16),
                        rounded(names * sizeof(struct folder)), rounded((mask + 1) * 4), rounded((mask + 1) * 4), text };
    uint64_t bytes = 0;
    for (int i = 0; i < 8; i++)
        bytes += part[i];
    long r = sys(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096)
        return NULL;
    char *at = (char *)r;
    struct mm_looks *l = (void *)at;
    struct places *t = l->places = l + 1;
    l->bytes = bytes;
    l->look = look;
    t->mask = mask;
    l->looked = (void *)(at += part[0]);
    l->file = (void *)(at += part[1]);
    l->preimage = (void *)(at += part[2]);
    l->folder = (void *)(at += part[3]);
    t->row = (void *)(at += part[4]);
    t->folder = (void *)(at += part[5]);
    l->text = at + part[6];
    for (uint64_t place = h->committed_journal; place < h->journal_tail;) {
        const struct mm_touch *note = mm_record_at(a, place);
        if (note->length < 8) {
            l->broken = place;
            break;
        }
        if (note->type == MM_PREIMAGE) {
            uint64_t *next = l->preimage + 2ul * l->preimages++;
            next[0] = place;
            next[1] = ((const struct mm_preimage *)note)->slot;
        } else if (note->type == MM_TOUCH) {
            uint32_t row = row_of(a, l, (const char *)(note + 1), note->path_length, place);
            if (S_ISDIR(note->mode))
                l->looked[row].known = 0;
        }
        place += note->length;
    }
    for (uint32_t slot = 0; (slot = mm_pif_due(a, slot)) != 0;)
        take_file(a, l, slot);
    return l;
}

void mm_looks_free(struct mm_looks *looks) { sys(SYS_munmap, looks, looks->bytes); }

/* Blocks of the buffer with pre-images of which this run has not written over all since; how many they are.  What a truncation has
 * cut off is not of whole blocks, and not asked. */
uint64_t mm_looks_written(struct mm_area *a, const struct mm_looks *l, struct mm_written *out, uint64_t room)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < l->preimages; i++) {
        const struct mm_preimage *saved = mm_record_at(a, l->preimage[2ul * i]);
        struct mm_pif *p = mm_pif_at(a, saved->slot);
        uint64_t buffer = saved->buffer_start / MM_BLOCK, block = saved->start / MM_BLOCK;
        for (; saved->start % MM_BLOCK == 0 && block * MM_BLOCK < saved->end; block++, buffer++) {
            struct mm_written row = mm_written(a, p, block, buffer);
            if (row.first == 0 && row.end == MM_BLOCK)
                continue;
            if (rows < room)
                out[rows] = row;
            rows++;
        }
    }
    return rows;
}

/* How many of the names in a folder stand for something. */
uint32_t mm_looks_present(const struct mm_looks *looks, const char *folder)
{
    uint32_t place = *folder_place(looks, folder, (uint32_t)strlen(folder));
    return place ? ((const struct folder *)looks->folder)[place - 1].present : 0;
}

/* A file has been cut: what it has now, `size` bytes, an index knows. */
void mm_pif_cut(struct mm_area *a, uint32_t slot, uint64_t size)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    p->cut_before = p->cut < p->cut_before ? p->cut : p->cut_before;
    p->cut = MM_NO_LIMIT;
    p->flags |= MM_INDEXED;
    if (p->fresh_from != MM_NO_LIMIT)
        p->fresh_from = p->flags & (MM_MAPPED | MM_LEFT) ? 0 : size;
}

/* So have all that are plain.  Whether one of them has a table of saved pre-images. */
int mm_looks_cut(struct mm_area *a, const struct mm_looks *looks)
{
    int saved = 0;
    for (uint32_t i = 0; i < looks->files; i++) {
        if (!looks->file[i].plain)
            continue;
        mm_pif_cut(a, looks->file[i].slot, looks->file[i].size);
        saved |= mm_pif_at(a, looks->file[i].slot)->saved != 0;
    }
    return saved;
}
