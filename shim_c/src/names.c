/* names.c - names change in the user's folders at once; what they were is noted first, and what would be destroyed is
 * first linked into the store.
 *
 * A path is noted ("touched") once per epoch, before the call that changes it.  A checkpoint then looks at every noted
 * path as it is: so a call that failed, or a process killed between note and call, does no harm.
 */
#include "shim.h"
#include "names.h"

#include <fnmatch.h>
#include <stdlib.h>

static const char *const outside[] = { "/proc/", "/sys/", "/dev/", "/run/", NULL };
static const char *track_globs, *ignore_globs;

void mm_names_config(const char *track, const char *ignore)
{
    track_globs = track;
    ignore_globs = ignore;
}

/* Globs are separated by newlines. */
static int matches(const char *globs, const char *path)
{
    SCRATCH(glob);
    for (const char *g = globs; g && *g;) {
        size_t n = strcspn(g, "\n");
        if (n && n < 4096) {
            memcpy(glob, g, n);
            glob[n] = 0;
            if (fnmatch(glob, path, 0) == 0)
                return 1;
        }
        g += n + (g[n] == '\n');
    }
    return 0;
}

int mm_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0 || folder[n - 1] == '/');
}

/* Paths added while the program runs; never removed, so that a reader needs no lock. */
static struct ignored {
    struct ignored *next;
    char path[];
} *ignored;

int mm_ignore(const char *path)
{
    size_t n = strlen(path) + 1;
    struct ignored *one = malloc(sizeof *one + n);
    if (!one)
        return -ENOMEM;
    memcpy(one->path, path, n);
    one->next = __atomic_load_n(&ignored, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&ignored, &one->next, one, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return 0;
}

/* The session folders of MPI libraries (Open MPI, PRRTE, PMIx), which lie in the temporary folder. */
static int mpi_session(const char *path)
{
    static const char *const names[] = { "ompi.", "prte.", "pmix", "openmpi-sessions-", NULL };
    const char *tmp = getenv("TMPDIR");
    size_t n;
    if (!tmp || tmp[0] != '/' || !mm_below(path, tmp))
        tmp = "/tmp";
    if (!mm_below(path, tmp))
        return 0;
    for (n = strlen(tmp); path[n] == '/'; n++)
        ;
    for (int i = 0; names[i]; i++)
        if (strncmp(path + n, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

int mm_tracked(const char *path)
{
    if (path[0] != '/' || mm_below(path, mm_area->store) || (UNLIKELY(mm_elsewhere) && mm_leads_elsewhere(path)))
        return 0;
    if (UNLIKELY(mm_area->head->flags & MM_GONE))
        return 0;
    for (struct ignored *i = __atomic_load_n(&ignored, __ATOMIC_ACQUIRE); UNLIKELY(i != NULL); i = i->next)
        if (mm_below(path, i->path))
            return 0;
    if (UNLIKELY(track_globs || ignore_globs)) {
        if (matches(track_globs, path))
            return 1;
        if (matches(ignore_globs, path))
            return 0;
    }
    for (int i = 0; outside[i]; i++)
        if (mm_below(path, outside[i]))
            return 0;
    return !mpi_session(path);
}

static int path_of_fd(int fd, char *out, size_t room)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    long n = sys_readlink(link, out, room - 1);
    if (n <= 0)
        return n < 0 ? (int)n : -ENOENT;
    out[n] = 0;
    return 0;
}

/* The path of an open file, if it still has that name. */
int mm_path_of(int fd, char *out, size_t room)
{
    struct stat a, b;
    int e = path_of_fd(fd, out, room);
    if (e == 0 && sys(SYS_fstat, fd, &a) == 0 && sys(SYS_newfstatat, AT_FDCWD, out, &b, AT_SYMLINK_NOFOLLOW) == 0
        && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    return -ENOENT;
}

static int canonical_whole(int dir, const char *path, char *out, size_t room)
{
    long fd = mm_open_spare(dir, path, O_PATH, 0);
    if (fd < 0)
        return (int)fd;
    int e = path_of_fd((int)fd, out, room);
    mm_close_spare((int)fd);
    return e;
}

/* A name's length; 0 when it is too long, or the memory that it lies in cannot be read (the kernel then says so). */
static size_t length_of(const char *path, size_t room)
{
    size_t n = 0;
    while (path && n < room) {
        size_t piece = 4096 - ((uintptr_t)(path + n) & 4095);
        if (!mm_usable(path + n, 1, 2))
            return 0;
        size_t found = strnlen(path + n, piece < room - n ? piece : room - n);
        n += found;
        if (found < piece)
            break;
    }
    return n >= room ? 0 : n;
}

/* Can a file be made by this path?  Not where it ends in a slash, "." or "..". */
int mm_names_a_file(const char *path)
{
    size_t n = length_of(path, 4096), base = n;
    while (base > 0 && path[base - 1] != '/')
        base--;
    return n - base > 2 || (n > base && path[base] != '.') || (n - base == 2 && path[base + 1] != '.');
}

/* Absolute, the folder part without symbolic links; the last component as it is, existing or not. */
int mm_canonical(int dir, const char *path, char *out, size_t room)
{
    SCRATCH(folder);
    size_t n = length_of(path, 4096 - 1);
    if (n == 0)
        return -ENOENT;
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t base = n;
    while (base > 0 && path[base - 1] != '/')
        base--;
    size_t length = n - base;
    if (length == 0 || (path[base] == '.' && (length == 1 || (length == 2 && path[base + 1] == '.'))))
        return canonical_whole(dir, path, out, room);
    memcpy(folder, path, base);
    folder[base] = 0;
    int e = base == 0 && dir == AT_FDCWD ? canonical_whole(AT_FDCWD, ".", out, room)
          : base == 0 ? path_of_fd(dir, out, room) : canonical_whole(dir, folder, out, room);
    if (e)
        return e;
    size_t at = strlen(out);
    if (at == 1)
        at = 0;
    if (at + length + 2 > room)
        return -ENAMETOOLONG;
    out[at] = '/';
    memcpy(out + at + 1, path + base, length);
    out[at + 1 + length] = 0;
    return 0;
}

/* As mm_canonical, but through a symbolic link at the end too. */
int mm_canonical_follow(int dir, const char *path, char *out, size_t room)
{
    return canonical_whole(dir, path, out, room);
}

static uint64_t hash_of(const char *path, uint64_t epoch)
{
    uint64_t x = 0xcbf29ce484222325ull ^ epoch * 0x9e3779b97f4a7c15ull;
    for (; *path; path++)
        x = (x ^ (unsigned char)*path) * 0x100000001b3ull;
    x ^= x >> 32;
    return (x * 0xd6e8feb86659fd93ull) | 1;
}

static uint64_t mixed(uint64_t x, const void *bytes, size_t n)
{
    for (const char *p = bytes; n; ) {
        uint64_t word = 0;
        size_t step = n < 8 ? n : 8;
        memcpy(&word, p, step);
        x = (x ^ word) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29;
        p += step, n -= step;
    }
    return x;
}

/* metamori/runtime/notes.py does the same. */
static uint32_t checked(struct mm_touch *r, const char *text)
{
    r->length = r->check = 0;
    return (uint32_t)mixed(mixed(1, r, sizeof *r), text, r->path_length + r->target_length + r->xattrs_length);
}

#define XATTRS_ROOM (128 * 1024)

/* Extended attributes of what stands at a path, POSIX ACLs among them, behind what is in text already: their bytes.
 * What does not fit, or may not be read, is left out. */
static size_t xattrs_of(const char *path, char *text, size_t at)
{
    char *list = text + XATTRS_ROOM / 2;       /* the names, until each is in its place */
    long n = sys(SYS_llistxattr, path, list, XATTRS_ROOM / 2);
    size_t start = at;
    for (long i = 0; i < n; i += strlen(list + i) + 1) {
        uint32_t name = strlen(list + i);
        if (at + 8 + name >= XATTRS_ROOM / 2)
            break;
        long value = sys(SYS_lgetxattr, path, list + i, text + at + 8 + name, XATTRS_ROOM / 2 - at - 8 - name);
        if (value < 0)
            continue;
        memcpy(text + at, &name, 4);
        memcpy(text + at + 4, &(uint32_t){ value }, 4);
        memcpy(text + at + 8, list + i, name);
        at += 8 + name + value;
    }
    return at - start;
}

/* Note a path as it is now, unless this epoch has noted it.  0 or -errno (no room). */
long mm_touch(const char *path)
{
    struct mm_header *h = mm_area->head;
    MM_ASSERT(mm_depth > 0);           /* no checkpoint comes between the note and the call */
    uint64_t hash = hash_of(path, h->epoch), *seen = &h->seen[hash >> 20 & (MM_SEEN - 1)];
    if (__atomic_load_n(seen, __ATOMIC_ACQUIRE) == hash)
        return 0;
    struct statx st;
    struct mm_touch record = { .type = MM_TOUCH, .epoch = h->epoch, .path_length = (uint16_t)strlen(path) };
    SCRATCH(brief);
    char *text = brief;
    memcpy(text, path, record.path_length);
    long looked = sys_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st);
    if (looked == -ENAMETOOLONG)
        return 0;                      /* no such path can ever be; the kernel says so */
    if (looked < 0 && looked != -ENOENT && looked != -ENOTDIR)
        return looked;             /* nobody can say what stands there: the call gets the same answer */
    if (looked == 0) {
        record.dev = sys_dev(st.stx_dev_major, st.stx_dev_minor);
        record.ino = st.stx_ino;
        record.btime_ns = st.stx_mask & STATX_BTIME ? sys_ns(st.stx_btime) : 0;
        record.size = S_ISCHR(st.stx_mode) || S_ISBLK(st.stx_mode) ? sys_dev(st.stx_rdev_major, st.stx_rdev_minor)
                                                                   : st.stx_size;
        record.mtime_ns = sys_ns(st.stx_mtime);
        record.mode = st.stx_mode, record.uid = st.stx_uid, record.gid = st.stx_gid;
        if (S_ISLNK(st.stx_mode)) {
            long n = sys_readlink(path, text + record.path_length, 4096);
            if (n < 0)
                return n;
            record.target_length = (uint16_t)n;
        } else if (sys(SYS_llistxattr, path, 0, 0) > 0) {
            long room = sys(SYS_mmap, 0, XATTRS_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (room > 0) {
                text = (char *)room;
                memcpy(text, path, record.path_length);
                record.xattrs_length = xattrs_of(path, text, record.path_length);
            }
        }
    }
    record.check = checked(&record, text);
    uint64_t mask = defer_handlers();
    mm_lock(&h->lock);
    int e = mm_journal_append(mm_area, &record, sizeof record, text,
                              record.path_length + record.target_length + record.xattrs_length);
    uint64_t at = h->journal_tail;
    if (e == 0)
        __atomic_store_n(seen, hash, __ATOMIC_RELEASE);
    mm_unlock(&h->lock);
    if (e == 0)
        e = (int)mm_note_as_names(&record, text, at);
    deliver_handlers(mask);
    if (text != brief)
        sys(SYS_munmap, text, XATTRS_ROOM);
    return e;
}

static long keep_copy(const char *path, int follow, const char *kept)
{
    long from = mm_open_shut(path, O_RDONLY | (follow ? 0 : O_NOFOLLOW));
    if (from < 0)
        return from;
    struct stat st;
    long r = sys(SYS_fstat, from, &st);
    long to = r < 0 ? r : mm_open_spare(AT_FDCWD, kept, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (to >= 0) {
        sys(SYS_fchmod, to, 0600);     /* whatever the umask */
        r = mm_copy((int)from, 0, (int)to, 0, st.st_size);
        struct timespec times[2] = { st.st_atim, st.st_mtim };
        sys(SYS_utimensat, to, NULL, times, 0);    /* it stands for the file: an index knows its time */
        if (r == 0 && mm_area->head->flags & MM_POWER)     /* on another file system nothing orders it before what follows */
            r = sys(SYS_fsync, to);
        mm_close_spare((int)to);
        if (r < 0)
            sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_close_spare((int)from);
    return to < 0 ? to : r;
}

/* A copy in the store is the home from now on: what is written later goes to the buffer.  Not of a file that somebody may
 * have mapped: it stays what it is, the copy is what older indexes know of it, and checkpoints store all of it, until one
 * finds that nobody maps it any more (metamori/runtime/mapped.py). */
static void is_kept(struct mm_pif *p, uint32_t copied, uint64_t size)
{
    if (copied && p->flags & MM_HOME) {
        __atomic_or_fetch(&p->flags, MM_KEPT | copied, __ATOMIC_ACQ_REL);
        return;
    }
    if (copied) {
        if (!(p->flags & MM_VIRTUAL)) {
            p->size = size;
            p->home_limit = size;
        }
        p->fresh_from = MM_NO_LIMIT;
        copied |= MM_VIRTUAL;
    }
    __atomic_or_fetch(&p->flags, MM_KEPT | copied, __ATOMIC_ACQ_REL);
    __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);
}

/* A file opened without a name (O_TMPFILE): as one whose name has gone. */
void mm_keep_nameless(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    SCRATCH(kept);
    char path[40];
    int held = mm_pif_hold_names(p);
    __atomic_or_fetch(&p->flags, MM_NAMELESS, __ATOMIC_ACQ_REL);
    p->deleted = mm_area->head->epoch;
    if (!(p->flags & MM_KEPT)) {
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
        if (sys(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, AT_SYMLINK_FOLLOW) == 0) {
            is_kept(p, 0, 0);
        } else if (keep_copy(path, 1, kept) == 0) {
            struct stat st;
            is_kept(p, MM_COPIED, sys(SYS_fstat, fd, &st) == 0 ? st.st_size : 0);
        }
    }
    mm_pif_let_names_go(p, held);
}

/* The store has a copy of a file that has lost a name, and cannot say what happens to it by the names that are left: its bytes
 * are at home, and stay there while somebody has it open. */
static void stays_by_others(uint32_t slot, struct mm_pif *p, const char *path, struct statx *st)
{
    if (p->refs || p->flags & MM_HOME) {
        mm_home_by_name(slot, path, MM_UNSEEN, MM_ENGINE);
        return;
    }
    mm_home_by_name(slot, path, 0, 0);
    __atomic_and_fetch(&p->flags, ~MM_HOME, __ATOMIC_ACQ_REL);
    sys_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, st);
}

/* It is used again, by such a name, which is noted: this is the file, and the copy goes. */
void mm_by_another_name(uint32_t slot, const char *path)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (LIKELY(!(p->flags & MM_COPIED)))
        return;
    SCRATCH(kept);
    int held = mm_pif_hold_names(p);   /* nobody is about to take the file's last name, for which the copy was made */
    uint64_t mask = hold(p);
    int copy = (p->flags & (MM_COPIED | MM_VIRTUAL | MM_NAMELESS)) == (MM_COPIED | MM_VIRTUAL) && !p->root;
    if (copy) {
        p->fresh_from = ISOLATED(p) ? MM_NO_LIMIT : p->size;
        p->home_limit = MM_NO_LIMIT;
        __atomic_and_fetch(&p->flags, ~(MM_COPIED | MM_VIRTUAL | MM_KEPT), __ATOMIC_ACQ_REL);
    }
    release(p, mask);
    if (copy) {
        mm_named(path);
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_pif_let_names_go(p, held);
}

/* A link in the store, or a copy where there can be none.  With names_lock held. */
static long keep(uint32_t slot, struct mm_pif *p, const char *path, struct statx *st)
{
    SCRATCH(kept);
    struct stat there;
    mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
    long r = sys(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
    MM_STOP("keep.linked");
    if (r == -EEXIST && sys(SYS_newfstatat, AT_FDCWD, kept, &there, AT_SYMLINK_NOFOLLOW) == 0
        && there.st_dev == p->dev && there.st_ino == p->ino)
        r = 0;                         /* whoever linked it was killed before it said so */
    if (r == -EEXIST) {
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
        r = sys(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
    }
    if (r == 0) {
        is_kept(p, 0, 0);
        return 0;
    }
    if (r == -ENOENT && sys(SYS_faccessat, AT_FDCWD, path, F_OK) == 0) {   /* the store was removed: it goes as natively */
        __atomic_or_fetch(&mm_area->head->flags, MM_GONE, __ATOMIC_ACQ_REL);
        return 0;
    }
    if (r != -EXDEV && r != -EPERM && r != -EMLINK)
        return r;
    /* What was and is written must appear by the other names, and to whoever has it open: writes to a file that no index
     * knows take no lock, and a copy would not have all of them.  In isolation nothing is written to it anyway. */
    if (st->stx_nlink > 1 || (p->refs && !ISOLATED(p)))
        stays_by_others(slot, p, path, st);
    uint64_t mask = hold(p);
    r = keep_copy(path, 0, kept);
    if (r == 0)
        r = mm_ahead_moved(slot, kept);
    if (r == 0)
        is_kept(p, MM_COPIED, st->stx_size);
    release(p, mask);
    return r;
}

/* Before a regular file loses a name, which is held: what an index or an open descriptor needs of it goes into the store.
 * Where doomed->pif is not 0 its names_lock is held from then on, until mm_gone or mm_spared: nobody else gives or takes a
 * name of it, or a descriptor, meanwhile. */
long mm_keep(const char *path, struct mm_doomed *doomed)
{
    struct statx st;
    struct mm_pif *p;
    uint32_t slot;
    MM_ASSERT(mm_name_is_held(path));
    *doomed = (struct mm_doomed){ 0 };
    for (;;) {
        long error = sys_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st);
        if (error < 0)
            return error == -ENOENT || error == -ENOTDIR ? 0 : error;
        doomed->mode = st.stx_mode;
        if (!S_ISREG(st.stx_mode))
            return 0;
        slot = mm_pif_for(&st, path, 0, &error);
        if (!slot)
            return error;
        p = mm_pif_at(mm_area, slot);
        mm_lock(&p->names_lock);
        if ((p->flags & MM_USED) && p->ino == st.stx_ino && p->dev == sys_dev(st.stx_dev_major, st.stx_dev_minor))
            break;
        mm_unlock(&p->names_lock);
    }
    /* other names of it may have come or gone until now */
    long error = sys_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st);
    if (error == 0) {
        doomed->names = st.stx_nlink - ((p->flags & (MM_KEPT | MM_COPIED)) == MM_KEPT);
        int needed = p->created != mm_area->head->epoch || (p->flags & MM_INDEXED) || p->refs;
        if (needed && !(p->flags & MM_KEPT)) {
            error = keep(slot, p, path, &st);
            doomed->linked = error == 0;
        }
    }
    if (error < 0) {
        mm_unlock(&p->names_lock);
        return error;
    }
    doomed->pif = slot;
    if (doomed->linked)
        touched(slot, p);              /* now: a kill that comes while the kernel takes the name lets nothing else happen */
    return 0;
}

/* The call that took the name has failed: nothing needs keeping. */
void mm_spared(struct mm_doomed *doomed)
{
    if (!doomed->pif)
        return;
    struct mm_pif *p = mm_pif_at(mm_area, doomed->pif);
    if (doomed->linked && !(p->flags & MM_COPIED && !(p->flags & MM_HOME))) {
        SCRATCH(kept);
        mm_kept_name(mm_area, doomed->pif, kept, SCRATCH_BYTES);
        __atomic_and_fetch(&p->flags, ~(MM_KEPT | MM_COPIED), __ATOMIC_ACQ_REL);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_unlock(&p->names_lock);
}

/* The name is gone. */
void mm_gone(struct mm_doomed *doomed)
{
    if (!doomed->pif)
        return;
    struct mm_pif *p = mm_pif_at(mm_area, doomed->pif);
    touched(doomed->pif, p);
    if (doomed->names <= 1) {
        p->deleted = mm_area->head->epoch;
        __atomic_or_fetch(&p->flags, MM_NAMELESS, __ATOMIC_ACQ_REL);
        if (p->refs == 0)
            mm_pif_drop(mm_area, doomed->pif);
    }
    mm_unlock(&p->names_lock);
}

/* A file has a (new) name.  1: a folder has. */
int mm_named(const char *path)
{
    struct stat st = { .st_mode = 0 };
    if (sys(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode);
    uint32_t slot = mm_pif_find(mm_area, st.st_dev, st.st_ino, 0);
    if (!slot)
        return 0;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    touched(slot, p);
    mm_lock(&mm_area->head->lock);
    p->deleted = 0;
    __atomic_and_fetch(&p->flags, ~MM_NAMELESS, __ATOMIC_ACQ_REL);
    mm_set_path(mm_area, p, path);
    mm_unlock(&mm_area->head->lock);
    return 0;
}
