/* descriptors.c - which descriptor is which open description (FIT) of which file (PIF).
 *
 * The process's own array answers in two loads; the same map stands in the run area, where a checkpoint from outside
 * and the program after exec find it.  Positions are the kernel's own: shared by dup, fork, exec and passing on.
 */
#include "shim.h"
#include "names.h"

#include <stdlib.h>

struct mm_descriptor mm_fds[MM_FDS];
int mm_top_fd = -1;

/* One more descriptor per file, never closed while the program has one of its own: closing any descriptor of a file
 * drops the process's POSIX locks on it.  Used where the program's own cannot read (or write) the home. */
#define READERS 4096
#define CHANGING UINT32_MAX            /* a pif that no file has: the entry is being made or dropped by a thread */
static struct { uint32_t pif; int fd; } readers[READERS];
static int readers_used;               /* entries from here on were never used */

/* The descriptor in entry i, -1 when it holds none. */
static int reader(int i)
{
    uint32_t pif = __atomic_load_n(&readers[i].pif, __ATOMIC_ACQUIRE);
    return pif && pif != CHANGING ? __atomic_load_n(&readers[i].fd, __ATOMIC_RELAXED) : -1;
}

static int readers_end(void) { return __atomic_load_n(&readers_used, __ATOMIC_ACQUIRE); }

int mm_is_ours(int fd)
{
    if (fd < 0)
        return 0;
    if (fd == mm_buffer_fd || (mm_area && fd == mm_area->folder))
        return 1;
    for (int i = 0; i < readers_end(); i++)
        if (reader(i) == fd)
            return 1;
    return 0;
}

/* Move one of our descriptors out of the program's way. */
static int high(int fd)
{
    for (int floor = 60000; floor >= 100; floor /= 2) {
        long up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
        if (up >= 0) {
            sys_close(fd);
            return (int)up;
        }
    }
    return fd;
}

int mm_high_fd(int fd) { return high(fd); }

long mm_open_own(const char *path, int flags) { return mm_open_spare(AT_FDCWD, path, flags, 0); }

/* The lowest of our descriptors that is not below from, or -1. */
int mm_next_own(int from)
{
    int best = mm_buffer_fd >= from ? mm_buffer_fd : -1;
    for (int i = 0; i < readers_end(); i++) {
        int fd = reader(i);
        if (fd >= from && (best < 0 || fd < best))
            best = fd;
    }
    if (mm_area->folder >= from && mm_area->folder > 0 && (best < 0 || mm_area->folder < best))
        best = mm_area->folder;
    return best;
}

/* The program wants this number for itself. */
void mm_move_own(int fd)
{
    if (!mm_is_ours(fd))
        return;
    long up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd + 1);
    if (up < 0)
        up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    if (up < 0)
        return;
    if (fd == mm_buffer_fd)
        mm_buffer_fd = (int)up;
    if (fd == mm_area->folder)
        mm_area->folder = (int)up;
    for (int i = 0; i < readers_end(); i++)
        if (reader(i) == fd)
            __atomic_store_n(&readers[i].fd, (int)up, __ATOMIC_RELAXED);
}

/* Threads with other files' locks do this at the same time: an entry belongs to whoever takes it from 0. */
static int keep_reader(uint32_t slot, int fd)
{
    for (int i = 0; i < READERS; i++) {
        uint32_t none = 0;
        if (!__atomic_compare_exchange_n(&readers[i].pif, &none, CHANGING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        fd = high(fd);
        __atomic_store_n(&readers[i].fd, fd, __ATOMIC_RELAXED);
        __atomic_store_n(&readers[i].pif, slot, __ATOMIC_RELEASE);
        int used = readers_end();
        while (used <= i && !__atomic_compare_exchange_n(&readers_used, &used, i + 1, 0, __ATOMIC_ACQ_REL,
                                                         __ATOMIC_ACQUIRE))
            ;
        return fd;
    }
    sys_close(fd);
    return -EMFILE;
}

int mm_home_reader(uint32_t slot, int fd)
{
    for (int i = 0; i < readers_end(); i++)
        if (__atomic_load_n(&readers[i].pif, __ATOMIC_ACQUIRE) == slot)
            return __atomic_load_n(&readers[i].fd, __ATOMIC_RELAXED);
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    if (flags >= 0 && (flags & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR)   /* pwrite appends with O_APPEND */
        return fd;
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    long r = mm_open_own(path, O_RDWR);
    if (r < 0)
        r = mm_open_own(path, O_RDONLY);
    if (r < 0)
        return (int)r;
    return keep_reader(slot, (int)r);
}

static void drop_reader(uint32_t slot)
{
    for (int i = 0; i < readers_end(); i++) {
        uint32_t mine = slot;
        if (__atomic_compare_exchange_n(&readers[i].pif, &mine, CHANGING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            sys_close(readers[i].fd);
            __atomic_store_n(&readers[i].pif, 0, __ATOMIC_RELEASE);
        }
    }
}

static void map(int fd, uint32_t fit, uint32_t pif, uint32_t generation)
{
    mm_fds[fd] = (struct mm_descriptor){ fit, pif, generation };
    int top = __atomic_load_n(&mm_top_fd, __ATOMIC_RELAXED);
    while (fd > top && !__atomic_compare_exchange_n(&mm_top_fd, &top, fd, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* The PIF of a descriptor after PIFs have appeared: a reader's file may be written by now. */
uint32_t mm_pif_again(int fd)
{
    struct mm_descriptor *d = &mm_fds[fd];
    struct mm_fit *f = mm_fit_at(mm_area, d->fit);
    uint32_t generation = __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE);
    uint32_t known = __atomic_load_n(&f->pif, __ATOMIC_ACQUIRE), pif = known;
    if (!known && (pif = mm_pif_find(mm_area, f->dev, f->ino, 0))) {
        /* one description counts once, whichever of its threads and processes comes first */
        if (__atomic_compare_exchange_n(&f->pif, &known, pif, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            __atomic_add_fetch(&mm_pif_at(mm_area, pif)->refs, 1, __ATOMIC_RELAXED);
        else
            pif = known;
    }
    int appeared = !d->pif && pif;
    /* pif_of reads them in the other order: who sees the generation sees its pif */
    __atomic_store_n(&d->pif, pif, __ATOMIC_RELAXED);
    __atomic_store_n(&d->generation, generation, __ATOMIC_RELEASE);
    if (UNLIKELY(mm_ring) && appeared)
        mm_ring_may_use(fd);
    return pif;
}

static void describe_old(struct mm_pif *p, const struct statx *st)
{
    p->old_size = st->stx_size;
    p->old_mtime_ns = sys_ns(st->stx_mtime);
    p->old_mode = st->stx_mode;
    p->old_uid = st->stx_uid;
    p->old_gid = st->stx_gid;
}

/* A file that the user may write but not read: what it holds must not come into a store that he may read. */
static int unreadable(const struct statx *st, const char *path)
{
    static int said;
    if ((st->stx_mode & 0444) == 0444 || sys(SYS_faccessat2, AT_FDCWD, path, R_OK, AT_EACCESS) != -EACCES)
        return 0;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        mm_say("not followed: %s may be written here but not read, and so what it holds cannot be kept", path);
    return 1;
}

/* The PIF of an existing file that is about to change; it is noted as it is now.  0 and *error on failure. */
uint32_t mm_pif_for(const struct statx *st, const char *canonical, int created, long *error)
{
    uint64_t dev = sys_dev(st->stx_dev_major, st->stx_dev_minor);
    uint64_t btime = st->stx_mask & STATX_BTIME ? sys_ns(st->stx_btime) : 0;
    uint32_t slot = mm_pif_find(mm_area, dev, st->stx_ino, btime);
    *error = 0;
    if (slot || (!created && unreadable(st, canonical)))
        return slot;
    if (!created && (*error = mm_touch(canonical)) < 0)
        return 0;
    slot = mm_pif_new(mm_area, dev, st->stx_ino, btime, canonical);
    if (!slot) {
        *error = -ENOSPC;
        return 0;
    }
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    describe_old(p, st);
    p->created = created ? mm_area->head->epoch : 0;
    p->fresh_from = created ? 0 : st->stx_size;
    if (mm_area->head->flags & MM_ISOLATE) {
        p->fresh_from = MM_NO_LIMIT;   /* nothing goes home, and past its end the home has nothing */
        p->home_limit = st->stx_size;
    }
    if (!created && mm_was_mapped(mm_area, dev, st->stx_ino)) {
        if (ISOLATED(p))
            p->fresh_from = st->stx_size, p->home_limit = MM_NO_LIMIT, p->flags |= MM_SETTLED;
        p->flags |= MM_HOME;
    }
    return slot;
}

static uint32_t new_fit(int fd, int flags, mode_t mode, const struct statx *st, uint32_t pif)
{
    uint32_t slot = mm_fit_new(mm_area);
    if (!slot)
        return 0;
    struct mm_fit *f = mm_fit_at(mm_area, slot);
    f->refs = 1;
    f->dev = sys_dev(st->stx_dev_major, st->stx_dev_minor);
    f->ino = st->stx_ino;
    f->attributes = flags;
    f->mode = mode;
    f->process = mm_self_slot;
    f->pif = pif;
    if (pif)
        __atomic_add_fetch(&mm_pif_at(mm_area, pif)->refs, 1, __ATOMIC_RELAXED);
    if (mm_fd_set(mm_area, mm_self_slot, fd, slot) < 0) {
        mm_fit_unref(mm_area, slot);
        return 0;
    }
    return slot;
}

/* One of several names that a file has, maybe not the one that it is known by: a checkpoint has to know it too. */
static long note_name(int fd)
{
    char name[4096];
    return mm_path_of(fd, name, sizeof name) == 0 && mm_tracked(name) ? mm_touch(name) : 0;
}

/* A descriptor has just been opened.  created: the run made the file.  path: canonical, or NULL to find out.
 * 0, or -errno when the run area has no room (the caller closes the descriptor). */
int mm_opened(int fd, int flags, mode_t mode, int created, const char *path)
{
    struct statx st;
    char link[40], name[4096 + 16];
    if ((unsigned)fd >= MM_FDS || (flags & O_PATH))
        return 0;
    long looked = sys_statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st);
    if (looked < 0)
        return (flags & O_ACCMODE) == O_RDONLY ? 0 : (int)looked;
    if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode))
        return 0;
    uint32_t generation = __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE), pif = 0;
    uint64_t dev = sys_dev(st.stx_dev_major, st.stx_dev_minor);
    /* a file without a name that a restore brought back is opened in the store: known by what it is */
    pif = mm_pif_find(mm_area, dev, st.stx_ino, st.stx_mask & STATX_BTIME ? sys_ns(st.stx_btime) : 0);
    if (pif) {
        if ((flags & O_ACCMODE) != O_RDONLY) {
            touched(pif, mm_pif_at(mm_area, pif));
            long e = st.stx_nlink > 1 && !created ? note_name(fd) : 0;
            if (e < 0)
                return (int)e;
        }
    } else if (((flags & O_ACCMODE) != O_RDONLY || created) && S_ISREG(st.stx_mode)) {
        if (!path) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            long n = sys_readlink(link, name, 4096);
            if (n <= 0)
                return (int)n;
            name[n] = 0;
            path = name;
        }
        long error = 0;
        if (mm_tracked(path) && !(pif = mm_pif_for(&st, path, created, &error)))
            return (int)error;
        if (pif)
            touched(pif, mm_pif_at(mm_area, pif));
        if (pif && st.stx_nlink == 0)
            mm_keep_nameless(pif, fd);
    }
    uint32_t fit = new_fit(fd, flags, mode, &st, pif);
    if (!fit)
        return pif ? -ENOSPC : 0;
    map(fd, fit, pif, generation);
    if (UNLIKELY(mm_ring))
        mm_ring_may_use(fd);
    return 0;
}

/* A descriptor is about to be closed. */
void mm_closing(int fd)
{
    if ((unsigned)fd >= MM_FDS || !mm_fds[fd].fit)
        return;
    uint32_t fit = mm_fds[fd].fit, pif = mm_fds[fd].pif;
    mm_fds[fd] = (struct mm_descriptor){ 0, 0, 0 };
    mm_fd_set(mm_area, mm_self_slot, fd, 0);
    if (pif)
        drop_reader(pif);
    mm_fit_unref(mm_area, fit);
}

void mm_duplicated(int fd, int to)
{
    if ((unsigned)fd >= MM_FDS || (unsigned)to >= MM_FDS || !mm_fds[fd].fit)
        return;
    mm_fit_ref(mm_area, mm_fds[fd].fit);
    if (mm_fd_set(mm_area, mm_self_slot, to, mm_fds[fd].fit) < 0) {
        mm_fit_unref(mm_area, mm_fds[fd].fit);
        return;
    }
    map(to, mm_fds[fd].fit, mm_fds[fd].pif, mm_fds[fd].generation);
}

static int same_file(int fd, const struct mm_fit *f)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* After exec: the descriptors that stayed open.  After posix_spawn: the parent's, as far as they are the same files. */
void mm_adopt(void)
{
    uint32_t from = mm_self_slot;
    int own_slot = mm_self->fd_root != 0;
    if (!own_slot && !(from = mm_process_of(mm_area, (uint32_t)sys(SYS_getppid))))
        return;
    struct mm_process *process = mm_proc(mm_area, from);
    if (!process->fd_root)
        return;
    uint32_t *root = mm_page(mm_area, process->fd_root);
    for (int page = 0; page < MM_FDS / 1024; page++) {
        if (!root[page])
            continue;
        uint32_t *fits = mm_page(mm_area, root[page]);
        for (int i = 0; i < 1024; i++) {
            uint32_t fit = fits[i];
            int fd = page * 1024 + i;
            if (!fit)
                continue;
            if (same_file(fd, mm_fit_at(mm_area, fit))) {
                if (!own_slot) {
                    mm_fit_ref(mm_area, fit);
                    mm_fd_set(mm_area, mm_self_slot, fd, fit);
                }
                map(fd, fit, 0, 0);
            } else if (own_slot) {
                mm_fd_set(mm_area, mm_self_slot, fd, 0);
                mm_fit_unref(mm_area, fit);
            }
            for (int standard = 0; !own_slot && standard < 3; standard++)   /* dup2 in the actions of a posix_spawn */
                if (!mm_fds[standard].fit && same_file(standard, mm_fit_at(mm_area, fit))) {
                    mm_fit_ref(mm_area, fit);
                    mm_fd_set(mm_area, mm_self_slot, standard, fit);
                    map(standard, fit, 0, 0);
                }
        }
    }
}

/* Before a fork the parent takes the child's reference on every description: it may close its own before the child runs.
 * The child corrects what another thread changed in between.  One fork at a time; a fork out of a signal handler that
 * came upon another goes without. */
static uint32_t forked[MM_FDS], forker;
static int forked_top;

void mm_before_fork(void)
{
    uint32_t none = 0, self = mm_tid = (uint32_t)sys_gettid();
    while (!__atomic_compare_exchange_n(&forker, &none, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (none == self)
            return;
        none = 0;
        sys_pause_us(20);
    }
    forked_top = mm_top_fd;
    for (int fd = 0; fd <= forked_top; fd++)
        if ((forked[fd] = mm_fds[fd].fit))
            mm_fit_ref(mm_area, forked[fd]);
}

/* In the parent.  A fork that failed leaves references behind: such a file is followed a little longer, no more. */
void mm_forked(void)
{
    if (forker == mm_tid)
        __atomic_store_n(&forker, 0, __ATOMIC_RELEASE);
}

/* In the child: a slot of its own, one reference more on every description. */
void mm_after_fork(uint32_t parent_tid)
{
    uint32_t pid = (uint32_t)sys_getpid();
    uint32_t slot = mm_process_join(mm_area, pid, mm_start_time(pid));
    int top = forker == parent_tid ? forked_top : -1;
    forker = 0;
    if (!slot) {
        mm_say("not followed: a run has at most %d processes", MM_PROCESSES - 1);
        mm_area = NULL;
        return;
    }
    mm_self_slot = slot;
    mm_self = mm_proc(mm_area, slot);
    mm_self->calls = mm_depth > 0;
    for (int fd = 0; fd <= mm_top_fd || fd <= top; fd++) {
        uint32_t fit = mm_fds[fd].fit, held = fd <= top ? forked[fd] : 0;
        if (fit && fit != held)
            mm_fit_ref(mm_area, fit);
        if (held && fit != held)
            mm_fit_unref(mm_area, held);
        if (fit)
            mm_fd_set(mm_area, slot, fd, fit);
    }
}
