/* keep.c - names change in the user's folders at once; what would be destroyed is first linked into the store, or copied. */
#include "names/names.h"

#include <linux/capability.h>

/* The data of a file into a new one, whose holes are where its own are. */
static long copy_data(int from, int to, uint64_t size)
{
    long r = sys(SYS_ftruncate, to, size);
    for (uint64_t at = 0; r == 0 && at < size;) {
        long data = sys_lseek(from, at, SEEK_DATA);
        if (data == -ENXIO)
            break;
        long hole = data < 0 ? data : sys_lseek(from, data, SEEK_HOLE);
        if (hole < 0)                  /* a filesystem that cannot say */
            data = at, hole = size;
        at = (uint64_t)hole < size ? (uint64_t)hole : size;
        if ((uint64_t)data < at)
            r = mm_copy(from, data, to, data, at - data);
    }
    return r;
}

/* *size: of the file that was copied, as it is now.  own: a descriptor of ours, of a file that the program has locked: to open another
 * one, and close it, would drop the locks.  Else -1. */
static long keep_copy(const char *path, int follow, int own, const char *kept, uint64_t *size)
{
    long from = own >= 0 ? own : mm_open_shut_way(path, O_RDONLY | (follow ? 0 : O_NOFOLLOW));
    if (from < 0)
        return from;
    struct stat st;
    long r = sys(SYS_fstat, from, &st);
    *size = r < 0 ? 0 : (uint64_t)st.st_size;
    long to = r < 0 ? r : mm_open_spare(AT_FDCWD, kept, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (to >= 0) {
        sys(SYS_fchmod, to, 0600);     /* whatever the umask */
        r = copy_data((int)from, (int)to, st.st_size);
        struct timespec times[2] = { st.st_atim, st.st_mtim };
        sys(SYS_utimensat, to, NULL, times, 0);    /* it stands for the file: an index knows its time */
        if (r == 0 && mm_area->head->flags & MM_POWER)     /* on another file system nothing orders it before what follows */
            r = sys(SYS_fsync, to);
        mm_close_spare((int)to);
        if (r < 0)
            sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    if (own < 0)
        mm_close_spare((int)from);
    return to < 0 ? to : r;
}

/* Ours, of a file that the program has locked, or -1. */
static int locked_reader(uint32_t slot, const char *path)
{
    int own = mm_locked_reader(slot), theirs = own >= 0 ? -1 : mm_locked_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
    if (theirs >= 0)
        own = mm_own_reader(slot, theirs);
    return own == theirs ? -1 : own;   /* it has a position of its own: holes are looked for by that */
}

/* What was in place behind the bytes that the buffer has of its last block is in the copy, which nothing comes to from now on.  Where
 * somebody outside of the run has cut the file, what was redirected behind that is forgotten before it grows. */
static long take_tail(uint32_t slot, struct mm_pif *p, const char *kept, uint64_t size)
{
    if (UNLIKELY(mm_is_shorter(p, size)))
        p->broken_off = 1;
    long r = mm_is_cut(p, size) ? mm_note_loss(slot, size) : 0;
    if (r < 0 || LIKELY(!mm_is_longer(p, size)))
        return r;
    int copy = (int)mm_open_spare(AT_FDCWD, kept, O_RDONLY, 0);
    r = mm_take_tail(slot, p, copy, size);
    if (copy >= 0)
        mm_close_spare(copy);
    return r;
}

/* A copy in the store is the backing file from now on: what is written later goes to the buffer.  Not of a file that somebody may
 * have mapped: it stays what it is, the copy is what older indexes know of it, and checkpoints store all of it, until one
 * finds that nobody maps it any more (metamori/runtime/checkpoint/shared_mappings.py). */
static void is_kept(struct mm_pif *p, uint32_t copied, uint64_t size)
{
    MM_ASSERT(mm_locked_by_me(&p->names_lock));
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
    uint64_t size;
    int held = mm_pif_hold_names(p);
    __atomic_or_fetch(&p->flags, MM_NAMELESS, __ATOMIC_ACQ_REL);
    p->deleted = mm_area->head->epoch;
    if (!(p->flags & MM_KEPT)) {
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
        if (sys(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, AT_SYMLINK_FOLLOW) == 0) {
            is_kept(p, 0, 0);
        } else if (keep_copy(path, 1, -1, kept, &size) == 0) {
            is_kept(p, MM_COPIED, size);
        }
    }
    mm_pif_let_names_go(p, held);
}

static long link_as(const char *path, void *kept) { return sys(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0); }

/* A file that leaves the scope by one name, or has, and may have others in it that no run has used; path: where it is.  It may be
 * written to out there: until one of them is used the store's link says what checkpoints have of it. */
void mm_keep_left(uint32_t slot, const char *path)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    SCRATCH(kept);
    struct stat st;
    int held = mm_pif_hold_names(p);
    if (!p->created && !(p->flags & (MM_KEPT | MM_NAMELESS))) {
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
        int linked = mm_way_opened(path, link_as, kept) == 0;
        if (linked && sys(SYS_newfstatat, AT_FDCWD, kept, &st, AT_SYMLINK_NOFOLLOW) == 0
            && st.st_dev == p->dev && st.st_ino == p->ino)
            is_kept(p, 0, 0);
        else if (linked)               /* another file by now */
            sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_pif_let_names_go(p, held);
}

/* The store has a copy of a file that has lost a name, and cannot say what happens to it by the names that are left: its bytes
 * are in place, and stay there while somebody has it open. */
static void stays_by_others(uint32_t slot, struct mm_pif *p, const char *path, struct statx *st)
{
    if (p->refs || p->flags & MM_HOME) {
        mm_home_by_name(slot, path, MM_UNSEEN, MM_ENGINE);
        return;
    }
    mm_home_by_name(slot, path, 0, 0);
    __atomic_and_fetch(&p->flags, ~MM_HOME, __ATOMIC_ACQ_REL);
    mm_look_at(path, st);
}

/* The copy was not needed: the file itself is what backs it, as before.  The caller holds p->names_lock and has written nothing. */
static void is_itself_again(struct mm_pif *p)
{
    /* is_kept put it away; settled in isolation it is as by default, some bytes in place and some in the buffer */
    int isolated = (mm_area->head->flags & MM_ISOLATE) && !(p->flags & MM_SETTLED);
    p->fresh_from = isolated ? MM_NO_LIMIT : p->size;
    p->home_limit = MM_NO_LIMIT;
    __atomic_and_fetch(&p->flags, ~(MM_COPIED | MM_VIRTUAL | MM_KEPT), __ATOMIC_ACQ_REL);
}

/* It is used again, by such a name: this is the file, and the copy goes.  tracked: the name is in the scope, and noted. */
void mm_by_another_name(uint32_t slot, const char *path, int tracked)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (LIKELY(!(p->flags & MM_COPIED)))
        return;
    SCRATCH(kept);
    int held = mm_pif_hold_names(p);   /* nobody is about to take the file's last name, for which the copy was made */
    uint64_t mask = hold(p);
    struct statx st;
    int copy = (p->flags & (MM_COPIED | MM_VIRTUAL | MM_NAMELESS)) == (MM_COPIED | MM_VIRTUAL) && !p->root
        && mm_look_at(path, &st) == 0 && p->size == st.stx_size;
    if (copy)
        is_itself_again(p);
    release(p, mask);
    if (copy) {
        if (tracked)
            mm_named(path);
        mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_pif_let_names_go(p, held);
}

static int is_theirs(const struct statx *st) { return st->stx_uid != (uint32_t)sys(SYS_geteuid); }

/* A link in the store, or a copy where there can be none.  1: somebody else's, which the kernel lets nobody link; what was
 * to take its name moves it into the store (take.c). */
static long keep(uint32_t slot, struct mm_pif *p, const char *path, struct statx *st)
{
    SCRATCH(kept);
    struct stat there;
    MM_ASSERT(mm_locked_by_me(&p->names_lock));
    mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
    long r = mm_way_opened(path, link_as, kept);
    MM_STOP("keep.linked");
    if (r == -EEXIST && sys(SYS_newfstatat, AT_FDCWD, kept, &there, AT_SYMLINK_NOFOLLOW) == 0
        && there.st_dev == p->dev && there.st_ino == p->ino)
        r = 0;                         /* whoever linked it was killed before it said so */
    if (r == -EEXIST) {
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
        r = mm_way_opened(path, link_as, kept);
    }
    int moves = r == -EPERM && is_theirs(st);
    if (r == 0 || moves) {
        is_kept(p, 0, 0);
        return moves;
    }
    if (r == -ENOENT && sys(SYS_faccessat, AT_FDCWD, path, F_OK) == 0)     /* the store was removed, or somebody has just replaced it */
        return 0;
    if (r != -EXDEV && r != -EPERM && r != -EMLINK)
        return r;
    /* What was and is written must appear by the other names, and to whoever has it open: writes to a file that no index
     * knows take no lock, and a copy would not have all of them.  In isolation nothing is written to it anyway. */
    if (st->stx_nlink > 1 || (p->refs && !ISOLATED(p)))
        stays_by_others(slot, p, path, st);
    MM_STOP("keep.copies");
    uint64_t size, mask = hold(p);     /* by its other names it may have been truncated since it was looked at */
    r = keep_copy(path, 0, locked_reader(slot, path), kept, &size);
    if (r == 0)
        r = take_tail(slot, p, kept, size);
    if (r == 0)
        r = mm_ahead_moved(slot, kept);
    if (r == 0)
        is_kept(p, MM_COPIED, size);
    release(p, mask);
    return r == -EACCES && mm_unreadable(st, path) ? 0 : r;
}

static int is_stored(uint32_t slot, const struct mm_pif *p, const struct statx *st)
{
    if (!(p->flags & MM_KEPT) || p->flags & MM_COPIED || !is_theirs(st))
        return (p->flags & MM_KEPT) != 0;
    SCRATCH(kept);
    mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
    return sys(SYS_faccessat, AT_FDCWD, kept, F_OK) == 0;  /* whoever was about to move it may have been killed */
}

static long may_change(const char *folder, void *nothing)
{
    (void)nothing;
    return sys(SYS_faccessat2, AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS);
}

static int has_flags(const struct statx *st) { return (st->stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0; }

/* A sticky folder, and neither that nor what is in it is the user's. */
static int is_held_by_others(const char *folder, const struct statx *st)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct caps[2] = { { 0 } };
    struct statx dir;
    if (!is_theirs(st) || sys(SYS_geteuid) == 0 || mm_look_at(folder, &dir) < 0 || !(dir.stx_mode & S_ISVTX) || !is_theirs(&dir))
        return 0;
    long as = sys(SYS_setfsuid, -1);   /* which sets nothing */
    return as == sys(SYS_geteuid) && sys(SYS_capget, &head, caps) == 0 && !(caps[0].effective >> CAP_FOWNER & 1);
}

/* Does its folder let the name go, and do the flags of chattr?  A link in the store moves the file's ctime, and a copy takes room, also
 * where the kernel then refuses the call.  st: of what stands there, or NULL.  0, -EACCES, -EPERM or -EROFS. */
long mm_may_go(const char *path, const struct statx *st)
{
    struct statx dir;
    SCRATCH(folder);
    size_t at = strrchr(path, '/') - path;
    memcpy(folder, path, at);
    folder[at] = 0;
    long r = mm_way_opened(at ? folder : "/", may_change, NULL);
    if (r == -EACCES || r == -EROFS)
        return r;
    /* a filter of calls that does not know this one may say anything else */
    int fixed = (r == -EPERM || st) && mm_look_at(at ? folder : "/", &dir) == 0
        && (r == -EPERM ? has_flags(&dir) : (dir.stx_attributes & STATX_ATTR_APPEND) != 0);    /* names only come there */
    return fixed || (st && (has_flags(st) || is_held_by_others(at ? folder : "/", st))) ? -EPERM : 0;
}

/* Before a regular file loses a name, which is held: what an index or an open descriptor needs of it goes into the store.
 * looked, seen: what statx answered of it since it is held.  by: the name of what replaces it, or NULL.
 * Where doomed->slot is not 0 its names_lock is held from then on, until mm_gone or mm_spared: nobody else gives or takes a
 * name of it, or a descriptor, meanwhile. */
long mm_keep(const char *path, long looked, const struct statx *seen, const char *by, struct mm_doomed *doomed)
{
    struct statx st = looked < 0 ? (struct statx){ 0 } : *seen;
    struct mm_pif *p;
    uint32_t slot;
    MM_ASSERT(mm_name_is_held(path));
    MM_STOP("keep.looked");
    *doomed = (struct mm_doomed){ 0 };
    for (;; looked = mm_look_at(path, &st)) {
        long error;
        if (looked < 0)
            return looked == -ENOENT || looked == -ENOTDIR ? 0 : looked;
        doomed->mode = st.stx_mode;
        if (!S_ISREG(st.stx_mode))
            return 0;
        slot = mm_pif_to_keep(&st, path, &error);
        if (!slot)
            return error;
        p = mm_pif_at(mm_area, slot);
        mm_lock(&p->names_lock, MM_LOCK_FILE_NAMES);
        if ((p->flags & MM_USED) && p->ino == st.stx_ino && p->dev == sys_dev(st.stx_dev_major, st.stx_dev_minor))
            break;
        mm_unlock(&p->names_lock);
    }
    /* Other names of it may have come or gone until now; not where it had this one only: whoever gives it another one holds that,
     * or all. */
    long error = st.stx_nlink == 1 ? 0 : mm_look_at(path, &st);
    if (error == 0) {
        doomed->names = st.stx_nlink - ((p->flags & (MM_KEPT | MM_COPIED)) == MM_KEPT);
        int needed = p->created != mm_area->head->epoch || (p->flags & MM_INDEXED) || p->refs;
        if (needed && !is_stored(slot, p, &st) && (!by || (error = mm_may_go(by, NULL)) == 0)
            && (error = mm_may_go(path, &st)) == 0) {
            error = keep(slot, p, path, &st);
            doomed->linked = error >= 0 && p->flags & MM_KEPT;
            doomed->moves = error > 0;
        }
    }
    if (error < 0) {
        mm_unlock(&p->names_lock);
        return error;
    }
    doomed->slot = slot;
    if (doomed->linked)
        touched(slot, p);              /* now: a kill that comes while the kernel takes the name lets nothing else happen */
    return 0;
}

/* The call that took the name has failed: nothing needs keeping. */
void mm_spared(struct mm_doomed *doomed)
{
    if (!doomed->slot)
        return;
    struct mm_pif *p = mm_pif_at(mm_area, doomed->slot);
    if (doomed->linked && mm_area->head->flags & MM_JOB && p->flags & MM_VIRTUAL) {    /* other runs know of no copy */
        uint64_t mask = hold(p);
        if (!p->root && p->size == p->home_limit)
            is_itself_again(p);
        release(p, mask);
    }
    if (doomed->linked && !(p->flags & MM_COPIED && !(p->flags & MM_HOME))) {
        SCRATCH(kept);
        mm_kept_name(mm_area, doomed->slot, kept, SCRATCH_BYTES);
        __atomic_and_fetch(&p->flags, ~(MM_KEPT | MM_COPIED), __ATOMIC_ACQ_REL);
        sys(SYS_unlinkat, AT_FDCWD, kept, 0);
    }
    mm_unlock(&p->names_lock);
}

/* The name is gone. */
void mm_gone(struct mm_doomed *doomed)
{
    if (!doomed->slot)
        return;
    struct mm_pif *p = mm_pif_at(mm_area, doomed->slot);
    touched(doomed->slot, p);
    if (doomed->names <= 1) {
        p->deleted = mm_area->head->epoch;
        __atomic_or_fetch(&p->flags, MM_NAMELESS, __ATOMIC_ACQ_REL);
        if (p->refs == 0)
            mm_pif_drop(mm_area, doomed->slot);
    }
    mm_unlock(&p->names_lock);
}

/* A regular file has a (new) name. */
void mm_file_named(const char *path, uint64_t dev, uint64_t ino)
{
    MM_ASSERT(mm_locks_held(MM_LOCK_NAME, MM_LOCK_FILE_NAMES));        /* nobody else takes the name just now */
    uint32_t slot = mm_pif_there(mm_area, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, dev, ino);
    if (!slot)
        return;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    touched(slot, p);
    mm_lock(&mm_area->head->lock, MM_LOCK_AREA);
    p->deleted = 0;
    __atomic_and_fetch(&p->flags, ~MM_NAMELESS, __ATOMIC_ACQ_REL);
    mm_set_path(mm_area, p, path);
    mm_unlock(&mm_area->head->lock);
}

/* Whatever stands there has a (new) name.  1: it is a folder. */
int mm_named(const char *path)
{
    struct statx st = { .stx_mode = 0 };
    if (mm_look_at(path, &st) < 0 || !S_ISREG(st.stx_mode))
        return S_ISDIR(st.stx_mode);
    mm_file_named(path, sys_dev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino);
    return 0;
}

/* Has the file no name but the store's, and nobody in the run has it open?  Without the store it would be gone. */
int mm_only_kept(int fd)
{
    struct stat st;
    SCRATCH(path);
    if (sys(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1
        || mm_path_of(fd, path, SCRATCH_BYTES) < 0 || !mm_below(path, mm_area->store))
        return 0;
    for (uint32_t i = 1; i < mm_area->head->fit_count; i++) {
        const struct mm_fit *f = mm_fit_at(mm_area, i);
        if (f->refs && f->dev == st.st_dev && f->ino == st.st_ino)
            return 0;
    }
    return 1;
}
