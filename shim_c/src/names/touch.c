/* touch.c - what stands at a path, noted before it changes.
 *
 * A path is noted ("touched") once per epoch, before the call that changes it.  A checkpoint then looks at every noted
 * path as it is: so a call that failed, or a process killed between note and call, does no harm.
 */
#include "names/names.h"

static uint64_t hash_of(const char *path, size_t length) { return mm_mixed(1, path, length) * 0xd6e8feb86659fd93ull; }

static uint32_t checked(struct mm_touch *r, const char *text)
{
    r->length = r->check = 0;          /* `previous` and `below` are 0 still */
    return (uint32_t)mm_mixed(mm_mixed(1, r, sizeof *r), text, r->path_length + r->target_length + r->xattrs_length);
}

#define XATTRS_ROOM (128 * 1024)

/* It says nothing of whether there are any. */
static int is_trouble(long r) { return r == -EIO || r == -ENOMEM; }

/* Extended attributes of what stands at a path, POSIX ACLs among them, behind what is in text already: their bytes.
 * What does not fit, or may not be read, is left out.  -EIO, -ENOMEM. */
static long xattrs_of(const char *path, char *text, size_t at)
{
    char *list = text + XATTRS_ROOM / 2;       /* the names, until each is in its place */
    long n = sys(SYS_llistxattr, path, list, XATTRS_ROOM / 2);
    size_t start = at;
    if (is_trouble(n))
        return n;
    for (long i = 0; i < n; i += strlen(list + i) + 1) {
        uint32_t name = strlen(list + i);
        if (at + 8 + name >= XATTRS_ROOM / 2)
            break;
        long value = mm_getxattr_shut(path, list + i, text + at + 8 + name, XATTRS_ROOM / 2 - at - 8 - name);
        if (is_trouble(value))
            return value;
        if (value < 0)
            continue;
        memcpy(text + at, &name, 4);
        memcpy(text + at + 4, &(uint32_t){ value }, 4);
        memcpy(text + at + 8, list + i, name);
        at += 8 + name + value;
    }
    return at - start;
}

/* A file that the run made in this epoch stood nowhere when it began. */
static int made_since(const struct statx *st)
{
    uint32_t slot = S_ISREG(st->stx_mode) ? mm_pif_of(st) : 0;
    return slot && mm_pif_at(mm_area, slot)->created == mm_area->head->epoch;
}

/* Notes of an epoch that share a place are a tree, by the other bits of their hashes: a million of them are looked through in a few
 * steps.  `previous` of its top is the top of an epoch before. */
#define PLACE(hash) ((hash) >> 20 & (MM_SEEN - 1))
#define OTHER_BITS(hash) (((hash) >> 20) / MM_SEEN)
#define BELOW(note, bits) (&(note)->below[(bits) & 3])

/* Others may pass only now: a note is in the tree of its place as soon as it is in names, and before the call that it is made
 * for.  One that was broken off on the way says what it saw, and nothing came of it. */
static int enlist(uint64_t *place, uint64_t hash, uint64_t at)
{
    struct mm_touch *note = (struct mm_touch *)mm_record_at(mm_area, at);
    uint64_t *link = &place[1], bits = OTHER_BITS(hash), next = __atomic_load_n(link, __ATOMIC_ACQUIRE);
    for (;;) {
        struct mm_touch *there = next ? (struct mm_touch *)mm_record_at(mm_area, next) : NULL;
        if (!note || (next && !there))
            return -ENOMEM;
        if (there && there->epoch == note->epoch) {
            link = BELOW(there, bits), bits >>= 2;
            next = __atomic_load_n(link, __ATOMIC_ACQUIRE);
            continue;
        }
        note->previous = next;
        if (__atomic_compare_exchange_n(link, &next, at, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 0;
    }
}

/* *last: the last note of a path that is in no checkpoint; NULL: there is none.  What is given back meanwhile reads as zeros. */
static int find_last(const uint64_t *place, uint64_t hash, const char *path, size_t length, const struct mm_touch **last)
{
    uint64_t from = __atomic_load_n(&mm_area->head->committed_journal, __ATOMIC_ACQUIRE);
    for (uint64_t top = __atomic_load_n(&place[1], __ATOMIC_ACQUIRE), before = 0; top && top >= from; top = before) {
        uint64_t bits = OTHER_BITS(hash);
        for (uint64_t at = top; at; at = __atomic_load_n(BELOW(*last, bits), __ATOMIC_ACQUIRE), bits >>= 2) {
            *last = mm_record_at(mm_area, at);
            if (!*last)
                return -ENOMEM;
            if ((*last)->path_length == length && memcmp(*last + 1, path, length) == 0)
                return 0;
            before = at == top ? (*last)->previous : before;
        }
    }
    *last = NULL;
    return 0;
}

static long look_in(const char *path, void *st) { return mm_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, st); }

long mm_look_in(const char *path, struct statx *st) { return mm_way_opened(path, look_in, st); }

struct note {
    const struct statx *st;
    struct mm_touch *record;
    char **text;
};

/* What stands there, into the note and behind its path in *text: that becomes a mapping of its own where attributes need room. */
static long fill_note(const char *path, void *with)
{
    const struct statx *st = ((struct note *)with)->st;
    struct mm_touch *record = ((struct note *)with)->record;
    char **text = ((struct note *)with)->text;
    long n;
    record->dev = sys_dev(st->stx_dev_major, st->stx_dev_minor);
    record->ino = st->stx_ino;
    record->btime_ns = sys_birth(st);
    record->size = S_ISCHR(st->stx_mode) || S_ISBLK(st->stx_mode) ? sys_dev(st->stx_rdev_major, st->stx_rdev_minor)
                                                                : st->stx_size;
    record->mtime_ns = sys_ns(st->stx_mtime);
    record->mode = st->stx_mode, record->uid = st->stx_uid, record->gid = st->stx_gid;
    if (S_ISLNK(st->stx_mode)) {
        n = sys_readlink(path, *text + record->path_length, 4096);
        if (n < 0)
            return n;
        record->target_length = (uint16_t)n;
    } else if ((n = sys(SYS_llistxattr, path, 0, 0)) == -EACCES || is_trouble(n)) {
        return n;
    } else if (n > 0) {
        long room = sys(SYS_mmap, 0, XATTRS_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room < 0 && room > -4096)
            return room;
        memcpy((char *)room, path, record->path_length);
        n = xattrs_of(path, (char *)room, record->path_length);
        if (n < 0) {
            sys(SYS_munmap, room, XATTRS_ROOM);
            return n;
        }
        *text = (char *)room;
        record->xattrs_length = (uint32_t)n;
    }
    return 0;
}

/* looked: statx's result; st: its buffer; NULL: not asked yet. */
static long touch(const char *path, long looked, const struct statx *st)
{
    struct mm_header *h = mm_area->head;
    MM_ASSERT(mm_depth > 0);           /* no checkpoint comes between the note and the call */
    size_t length = strlen(path);
    uint64_t hash = hash_of(path, length), *place = h->seen[PLACE(hash)], noted = (hash ^ h->epoch * 0x9e3779b97f4a7c15ull) | 1;
    if (__atomic_load_n(&place[0], __ATOMIC_ACQUIRE) == noted)
        return 0;
    struct statx now;
    if (!st) {
        looked = mm_look_at(path, &now);
        st = &now;
    }
    /* after the look: what a note that is not in the tree yet was made for has not happened when that saw what is there */
    const struct mm_touch *last;
    int e = find_last(place, hash, path, length, &last);
    if (e < 0)
        return e;
    if (last && last->epoch == h->epoch) {
        __atomic_store_n(&place[0], noted, __ATOMIC_RELEASE);
        return 0;
    }
    struct mm_touch record = { .type = MM_TOUCH, .epoch = h->epoch, .path_length = (uint16_t)length };
    if (last)
        record.before = last->epoch << 1 | (last->mode || last->before & 1);
    SCRATCH(brief);
    char *text = brief;
    memcpy(text, path, record.path_length);
    if (looked == -ENAMETOOLONG)
        return 0;                      /* no such path can ever be; the kernel says so */
    if (looked < 0 && looked != -ENOENT && looked != -ENOTDIR)
        return looked;             /* nobody can say what stands there: the call gets the same answer */
    if (looked == 0 && !made_since(st)) {
        long r = mm_way_opened(path, fill_note, &(struct note){ st, &record, &text });
        if (r < 0)
            return r;
    }
    record.stamp_ns = mm_stamp_of_job();
    record.check = checked(&record, text);
    uint64_t mask = defer_handlers();
    mm_lock(&h->lock, MM_LOCK_AREA);
    uint32_t more = record.path_length + record.target_length + record.xattrs_length;
    e = mm_journal_append(mm_area, &record, sizeof record, text, more);
    uint64_t end = h->journal_tail, at = end - ((sizeof record + more + 7) & ~7ul);
    mm_unlock(&h->lock);
    MM_STOP("touch.appended");
    if (e == 0)
        e = (int)mm_note_as_names(&record, text, end);
    if (e == 0)
        e = enlist(place, hash, at);
    if (e == 0)
        __atomic_store_n(&place[0], noted, __ATOMIC_RELEASE);
    deliver_handlers(mask);
    if (text != brief)
        sys(SYS_munmap, text, XATTRS_ROOM);
    return e;
}

/* Note a path as it is now, unless this epoch has noted it.  0 or -errno (no room). */
long mm_touch(const char *path) { return touch(path, 0, NULL); }

/* The same of a path that is held, by whoever has looked since. */
long mm_touch_looked(const char *path, long looked, const struct statx *st) { return touch(path, looked, st); }

/* -ENOSPC where a call would make the name, and there is no room to record it: what takes names away goes on, which may make some. */
long mm_room_for_name(const char *path)
{
    struct statx st;
    long e = mm_room(mm_area, 0);
    return e < 0 && mm_look_at(path, &st) == -ENOENT ? e : 0;
}

#define LINKS 40                       /* the kernel follows no more */

/* Where the dangling link at name leads, that path, noted, into name; in_root: as openat2 looks up whose RESOLVE_IN_ROOT is among
 * these flags, so that no link leads out of dir.  0, or -errno. */
long mm_touch_where_it_leads(char *name, int dir, uint64_t in_root)
{
    SCRATCH(target);
    struct stat st;
    size_t root = 0;
    if (in_root) {
        int c = mm_canonical(dir, ".", target, 4096);
        if (c != 0)
            return c;
        root = target[1] ? strlen(target) : 0;
    }
    for (int links = 0; links < LINKS; links++) {
        if (sys(SYS_newfstatat, AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return mm_tracked(name) ? mm_touch_new(name) : 0;
        size_t at = strrchr(name, '/') - name + 1;
        long n = S_ISLNK(st.st_mode) ? sys_readlink(name, target + at, 4095) : -EEXIST;
        if (n < 0)
            return n;
        target[at + n] = 0;
        memcpy(target, name, at);
        const char *leads = target[at] == '/' ? target + at : target + root;
        int c = in_root ? mm_canonical_in_root(dir, leads, in_root, name, 4096) : mm_canonical(AT_FDCWD, leads, name, 4096);
        if (c != 0)
            return c;
    }
    return -ELOOP;
}
