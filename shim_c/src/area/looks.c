/* looks.c - what a checkpoint must know of every name noted and every file touched since the last one, in one pass while the
 * run is frozen: a name may stand for what is simple (nothing, or a regular file without extended attributes), and a file may be
 * simple too.  Of the rest only that it is there is said: Python looks at it before the run goes on (checkpoint/snapshot.py).
 *
 * Where they are many the pass is made ahead (looks_ahead.c).
 *
 * Nothing is allocated but one mapping, whose size is counted first.
 */
#include "area/area.h"
#include "area/area_internal.h"
#include "area/looks.h"

#include <dirent.h>
#include <sys/stat.h>

#define NO_SYMLINKS 0x04                 /* RESOLVE_NO_SYMLINKS */

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
struct folder *mm_looks_folder(struct mm_looks *l, const char *path, uint32_t length)
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

static void look_at_row(struct mm_area *a, struct mm_looks *l, struct mm_looked *row)
{
    const char *path = path_of(l, row);
    struct folder *folder = mm_looks_folder(l, path, row->path_length);
    struct statx st;
    folder->real = folder->real ? folder->real : (uint32_t)mm_is_real(folder->path, folder->length);
    folder->listed = 0;
    row->known = folder->real != 0;
    if (folder->real != 1)
        return;
    long r = sys_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st);
    row->known = r == -ENOENT || r == -ENOTDIR;
    if (r < 0)
        return;
    folder->present++;
    row->mode = st.stx_mode, row->uid = st.stx_uid, row->gid = st.stx_gid, row->nlink = st.stx_nlink;
    row->dev = sys_dev(st.stx_dev_major, st.stx_dev_minor), row->ino = st.stx_ino, row->size = st.stx_size;
    row->mtime_ns = sys_ns(st.stx_mtime);
    row->ctime_ns = sys_ns(st.stx_ctime);
    r = S_ISREG(st.stx_mode) ? sys(SYS_llistxattr, path, NULL, 0) : 1;
    row->known = r == 0 || r == -EOPNOTSUPP || r == -ENOSYS;
    /* somebody outside of the run may have removed a file, and made one that has got its number */
    row->slot = row->known ? mm_pif_find(a, row->dev, row->ino, sys_birth(&st)) : 0;
    if (row->slot && mm_pif_at(a, row->slot)->flags & MM_LEFT)
        row->known = 0;
}

/* Python asks what became of a folder, whatever stands there now. */
void mm_looks_see(struct mm_area *a, struct mm_looks *l, struct mm_looked *row)
{
    look_at_row(a, l, row);
    if (places_of(l)->mark[row - l->looked] & WAS_FOLDER)
        row->known = 0;
}

/* The row of a path: looked at once, nothing moves.  Without room for it: some row. */
uint32_t mm_looks_row(struct mm_area *a, struct mm_looks *l, const char *path, uint32_t length, uint64_t note)
{
    const struct places *t = l->places;
    uint64_t at = hash_path(path, length) & t->mask;
    for (; t->row[at]; at = (at + 1) & t->mask) {
        const struct mm_looked *known = &l->looked[t->row[at] - 1];
        if (known->path_length == length && memcmp(path_of(l, known), path, length) == 0)
            return t->row[at] - 1;
    }
    if ((l->names == t->name_room || l->text_used + length >= t->text_room) && mm_looks_full(l))
        return 0;
    struct mm_looked *row = &l->looked[l->names++];
    *row = (struct mm_looked){ .note = note, .path = l->text_used, .path_length = length };
    memcpy(l->text + l->text_used, path, length);     /* a file's own path is written over when it moves */
    l->text[l->text_used + length] = 0;
    l->text_used += length + 1;
    t->row[at] = l->names;
    if (l->look)
        mm_looks_see(a, l, row);
    return l->names - 1;
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
        if (p->flags & MM_USED && (h->flags & MM_JOB || mm_pif_since(h, p)))
            return slot;
    }
    return 0;
}

/* Of a plain file, whose row this is. */
void mm_looks_tell(struct mm_cut_file *f, const struct mm_pif *p, const struct mm_looked *row)
{
    f->object = p->object, f->dev = p->dev, f->ino = p->ino, f->btime_ns = p->btime_ns;
    f->created = p->created, f->flags = p->flags, f->refs = p->refs;
    f->size = p->flags & MM_VIRTUAL ? p->size : row->size;
    f->home_limit = p->home_limit, f->mtime_ns = p->mtime_ns;
    f->cut = p->cut < p->cut_before ? p->cut : p->cut_before;
    f->old_size = p->old_size, f->old_mtime_ns = p->old_mtime_ns;
    f->old_mode = p->old_mode, f->old_uid = p->old_uid, f->old_gid = p->old_gid;
}

/* looked: its row, where that is known already. */
void mm_looks_file(struct mm_area *a, struct mm_looks *l, struct mm_cut_file *f, uint32_t slot, uint32_t looked)
{
    const struct mm_header *h = a->head;
    const struct mm_pif *p = mm_pif_at(a, slot);
    const char *path = mm_path_at(a, p->path);
    *f = (struct mm_cut_file){ .slot = slot, .looked = MM_NOT_LOOKED };
    if (!l->look || h->flags & MM_JOB || p->flags & ~PLAIN_FLAGS || mm_pif_unseen(h, p) || p->root)
        return;
    if (looked == MM_NOT_LOOKED || strcmp(path, path_of(l, &l->looked[looked])) != 0)
        looked = mm_looks_row(a, l, path, (uint32_t)strlen(path), 0);
    if (places_of(l)->full)
        return;
    const struct mm_looked *row = &l->looked[f->looked = looked];
    f->plain = row->known && row->mode && row->slot == slot && row->dev == p->dev && row->ino == p->ino;
    mm_looks_tell(f, p, row);
}

void mm_looks_more(struct mm_area *a, struct mm_looks *l, uint32_t slot)
{
    if (l->files != places_of(l)->file_room || !mm_looks_full(l))
        mm_looks_file(a, l, &l->file[l->files++], slot, MM_NOT_LOOKED);
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 63) & ~63ull; }

/* Room for all that was noted up to `until`, and touched.  goes_on: and for what comes while it is taken: whoever makes a name takes
 * longer than a look at one.  NULL: no memory. */
struct mm_looks *mm_looks_room(struct mm_area *a, uint64_t until, int goes_on)
{
    const struct mm_header *h = a->head;
    uint64_t mask = 1;
    uint64_t names = 0, files = 0, preimages = 0, text = 0;
    for (uint64_t at = h->committed_journal; at < until;) {
        const struct mm_touch *r = mm_record_at(a, at);
        if (r->length < 8)
            break;
        names += r->type == MM_TOUCH, preimages += r->type == MM_PREIMAGE;
        text += r->type == MM_TOUCH ? r->path_length + 1u : 0;
        at += r->length;
    }
    for (uint32_t slot = 0; (slot = mm_pif_due(a, slot)) != 0; files++)
        text += mm_pif_at(a, slot)->path_capacity;         /* the path itself may be written over just now */
    if (goes_on) {
        uint64_t more = 1024 + (names > files ? names : files) / 2;
        names += more, files += more, preimages += more, text += 128 * more;
    }
    names += files;
    while (mask < 2 * names)
        mask = 2 * mask + 1;
    uint64_t part[] = { rounded(sizeof(struct mm_looks) + sizeof(struct places)), rounded(names * sizeof(struct mm_looked)),
                        rounded(files * sizeof(struct mm_cut_file)), rounded(preimages * 16),
                        rounded(names * sizeof(struct folder)), rounded((mask + 1) * 4), rounded((mask + 1) * 4),
                        rounded(names), rounded(names * 8), rounded(files * 4), text };
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        bytes += part[i];
    long r = sys(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096)
        return NULL;
    char *at = (char *)r;
    struct mm_looks *l = (void *)at;
    struct places *t = l->places = l + 1;
    l->bytes = bytes;
    t->mask = mask, t->journal = h->committed_journal;
    t->name_room = (uint32_t)names, t->file_room = (uint32_t)files, t->preimage_room = (uint32_t)preimages;
    t->text_room = text;
    l->looked = (void *)(at += part[0]);
    l->file = (void *)(at += part[1]);
    l->preimage = (void *)(at += part[2]);
    l->folder = (void *)(at += part[3]);
    t->row = (void *)(at += part[4]);
    t->folder = (void *)(at += part[5]);
    t->mark = (void *)(at += part[6]);
    l->other_note = (void *)(at += part[7]);
    l->other_file = (void *)(at += part[8]);
    l->text = at + part[9];
    return l;
}

/* The notes from where it was read on.  ahead: the rows before that one were seen ahead. */
void mm_looks_notes(struct mm_area *a, struct mm_looks *l, uint64_t until, uint32_t ahead)
{
    struct places *t = l->places;
    while (t->journal < until && !t->full) {
        const struct mm_touch *note = mm_record_at(a, t->journal);
        if (note->length < 8) {
            l->broken = t->journal;
            return;
        }
        if (note->type == MM_PREIMAGE && (l->preimages < t->preimage_room || !mm_looks_full(l))) {
            uint64_t *next = l->preimage + 2ul * l->preimages++;
            next[0] = t->journal;
            next[1] = ((const struct mm_preimage *)note)->slot;
        } else if (note->type == MM_TOUCH) {
            uint32_t row = mm_looks_row(a, l, (const char *)(note + 1), note->path_length, t->journal);
            l->looked[row].note = l->looked[row].note ? l->looked[row].note : t->journal;
            t->mark[row] |= (unsigned char)((row < ahead ? AGAIN : 0) | (S_ISDIR(note->mode) ? WAS_FOLDER : 0));
            if (S_ISDIR(note->mode))
                l->looked[row].known = 0;
        }
        t->journal += note->length;
    }
}

/* How many names are in a folder, and whether none of them is a folder's.  Not 0: they are not to be had. */
static int list_folder(struct folder *folder, const char *path)
{
    char list[8192] __attribute__((aligned(8)));
    long got, dir = sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (dir < 0)
        return -1;
    folder->entries = 0, folder->leaf = 1;
    while ((got = sys(SYS_getdents64, dir, list, sizeof list)) > 0)
        for (long at = 0; at < got; at += ((struct dirent64 *)(list + at))->d_reclen) {
            const struct dirent64 *d = (struct dirent64 *)(list + at);
            if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
                continue;
            folder->entries++;
            folder->leaf &= d->d_type != DT_DIR && d->d_type != DT_UNKNOWN;
        }
    sys(SYS_close, dir);
    folder->listed = got == 0;
    return got < 0;
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

/* The same of one in which names were looked at, if any was. */
void mm_looks_list(const struct mm_looks *l, const char *path, uint32_t length)
{
    struct folder *all = l->folder;
    uint32_t place = *folder_place(l, path, length);
    if (place)
        list_folder(&all[place - 1], path);
}

/* How many of the names in a folder stand for something. */
uint32_t mm_looks_present(const struct mm_looks *looks, const char *folder)
{
    uint32_t place = *folder_place(looks, folder, (uint32_t)strlen(folder));
    return place ? ((const struct folder *)looks->folder)[place - 1].present : 0;
}

/* Are all names in a folder known, and none of them is a folder's?  -1: somebody has to list it in another way. */
int mm_looks_all_in(const struct mm_looks *looks, const char *folder)
{
    struct folder *all = looks->folder, alone = { .present = 0 };
    uint32_t place = *folder_place(looks, folder, (uint32_t)strlen(folder));
    struct folder *here = place ? &all[place - 1] : &alone;
    if (!here->listed && list_folder(here, folder) != 0)
        return -1;
    return here->leaf ? here->entries == here->present : -1;
}

/* A file has been cut: what it has now, `size` bytes, an index knows.  Where it has less in place than it had, somebody outside of the
 * run has cut it: what was redirected behind that is gone (the rest of the last block before it grows, as mm_cut_by_others has it). */
void mm_pif_cut(struct mm_area *a, uint32_t slot, uint64_t size)
{
    struct mm_pif *p = mm_pif_at(a, slot);
    if (UNLIKELY(p->root) && !(p->flags & MM_VIRTUAL) && size < mm_known_size(p)) {
        mm_table_clear(a, p, (size + MM_BLOCK - 1) / MM_BLOCK);
        mm_pif_shorter(p, size);
        p->size = size, p->broken_off = 1;
    } else if (UNLIKELY(p->root) && size < MM_ANY_SIZE && mm_more_than(a, p, size)) {
        p->size = size, p->broken_off = 1;
    }
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
        if (i + NEAR < looks->files)
            __builtin_prefetch(&mm_pif_at(a, looks->file[i + NEAR].slot)->fresh_from, 1);
        if (!looks->file[i].plain)
            continue;
        mm_pif_cut(a, looks->file[i].slot, looks->file[i].size);
        saved |= mm_pif_at(a, looks->file[i].slot)->saved != 0;
    }
    return saved;
}
