/* descriptors.c - which descriptor is which open description (FIT) of which file (PIF).
 *
 * The process's own array answers in two loads; the same map stands in the run area, where a checkpoint from outside
 * and the program after exec find it.  Positions are the kernel's own: shared by dup, fork, exec and passing on.
 */
#include "descriptors/descriptors.h"

#include <stdlib.h>

/* this thread is in fork: what its handlers open gets a reference more */
__thread int mm_forking __attribute__((tls_model("initial-exec")));

/* Who gets a number that another thread has closed comes after it by the kernel's table: no sanitizer sees that. */
__attribute__((no_sanitize("thread")))
void mm_map(int fd, uint32_t fit, uint32_t slot, uint32_t generation)
{
    int mine = mm_table_begin();
    __atomic_store_n(&mm_fds[fd].slot, slot, __ATOMIC_RELAXED);
    __atomic_store_n(&mm_fds[fd].generation, generation, __ATOMIC_RELAXED);
    __atomic_store_n(&mm_fds[fd].fit, fit, __ATOMIC_RELEASE);
    if (fd > mm_top_fd)
        __atomic_store_n(&mm_top_fd, fd, __ATOMIC_RELEASE);
    if (UNLIKELY(mm_forking && !mine))
        mm_fit_ref(mm_area, fit);
    mm_table_end(mine);
}

/* slot: of the PIF, which has a reference more for it; or 0. */
static uint32_t new_fit(int fd, int flags, mode_t mode, const struct statx *st, uint32_t slot)
{
    uint32_t fit = mm_fit_new(mm_area);
    if (!fit) {
        if (slot && __atomic_sub_fetch(&mm_pif_at(mm_area, slot)->refs, 1, __ATOMIC_ACQ_REL) == 0)
            mm_pif_drop(mm_area, slot);
        return 0;
    }
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    f->refs = 1;
    f->dev = sys_dev(st->stx_dev_major, st->stx_dev_minor);
    f->ino = st->stx_ino;
    f->attributes = flags;
    f->mode = mode;
    f->process = mm_self_process;
    f->slot = slot;
    if (mm_fd_set(mm_area, mm_self_process, fd, fit) < 0) {
        mm_fit_unref(mm_area, fit);
        return 0;
    }
    return fit;
}

static int is_where_it_was(const struct mm_pif *p)
{
    struct stat there;
    return sys(SYS_newfstatat, AT_FDCWD, mm_path_at(mm_area, p->path), &there, AT_SYMLINK_NOFOLLOW) == 0
        && there.st_ino == p->ino && there.st_dev == p->dev;
}

/* Whether a checkpoint may know a file by another name than by what was opened: somebody outside of the run may have renamed it. */
static __attribute__((noinline)) int has_another_name(const struct mm_pif *p, const struct statx *st)
{
    return st->stx_nlink > 1 || p->flags & MM_COPIED || !is_where_it_was(p);
}

/* A name that is maybe not the one that the file is known by: a checkpoint has to know it too.  By one outside of the scope a file
 * is written in place that maybe has no other any more: at the end nobody would look for it there. */
static __attribute__((noinline)) long note_name(int fd, uint32_t slot)
{
    char name[4096];
    if (mm_path_of(fd, name, sizeof name) < 0)
        return 0;
    int tracked = mm_tracked(name);
    long e = tracked ? mm_touch(name) : 0;
    if (e == 0)
        mm_by_another_name(slot, name, tracked);
    if (!tracked && !is_where_it_was(mm_pif_at(mm_area, slot)))
        mm_home_by_name(slot, name, 0, MM_ENGINE);
    return e;
}

/* The path of an open file as the kernel knows it, into name.  0 or -errno. */
static long path_as_opened(int fd, char *name)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    long n = sys_readlink(link, name, 4096);
    if (n == -ENAMETOOLONG)            /* no call can name it, neither in a checkpoint nor in a restore */
        mm_said_too_long();
    if (n == -ENOENT && mm_elsewhere)  /* after chroot there may be no /proc */
        mm_said_elsewhere("/proc is not there");
    if (n == -ENAMETOOLONG || (n == -ENOENT && mm_elsewhere))
        n = 1, name[0] = '?';
    if (n <= 0)
        return n;
    name[n] = 0;
    return 0;
}

/* A descriptor that may change a file of which nobody knew until now: *slot, 0 where it is not tracked.  0 or -errno. */
static __attribute__((noinline)) long follow(int fd, const struct statx *st, int created, const char *path, uint32_t *slot)
{
    SCRATCH(name);
    long error = path ? 0 : path_as_opened(fd, name);
    if (error < 0)
        return error;
    path = path ? path : name;
    /* a memfd, opened by its descriptor's name in /proc, is memory and no file of any folder */
    if (st->stx_nlink == 0 && strncmp(path, "/memfd:", 7) == 0)
        return 0;
    if (!mm_tracked(path)) {
        if (!mm_below(path, mm_area->store))
            mm_wrote_outside(mm_area, sys_dev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino, path);
        return 0;
    }
    *slot = mm_pif_for(st, path, created, &error);
    if (*slot)
        touched(*slot, mm_pif_at(mm_area, *slot));
    if (*slot && st->stx_nlink == 0)
        mm_keep_nameless(*slot, fd);
    return error;
}

/* The PIF is of a file that is gone, of which the store has a copy: its number is that of the open one by now.  It still counts as
 * open: its last descriptor is just being let go here, or was a process's that was killed.  Nobody finds it by that any more. */
static __attribute__((noinline)) int was_another(int fd, uint32_t slot)
{
    const uint32_t gone = MM_COPIED | MM_NAMELESS;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct stat st;
    int held = mm_pif_hold_names(p);   /* nobody gives it a name just now */
    int another = (p->flags & (gone | MM_USED)) == (gone | MM_USED) && sys(SYS_fstat, fd, &st) == 0 && st.st_nlink > 0
        && p->dev == st.st_dev && p->ino == st.st_ino;
    if (another)
        mm_pif_hide(mm_area, slot);
    mm_pif_let_names_go(p, held);
    return another;
}

static int is_gone(int fd, uint32_t slot)
{
    return slot && UNLIKELY(mm_pif_at(mm_area, slot)->flags & MM_COPIED) && was_another(fd, slot);
}

/* The PIF of an open file, found by its birth.  Calls that have only its number must not find another one's. */
static uint32_t pif_of_opened(int fd, const struct statx *st)
{
    uint64_t dev = sys_dev(st->stx_dev_major, st->stx_dev_minor), birth = sys_birth(st);
    uint32_t slot;
    while (is_gone(fd, slot = mm_pif_find(mm_area, dev, st->stx_ino, 0))) {
    }
    if (!slot || mm_pif_at(mm_area, slot)->btime_ns != birth) {
        while (is_gone(fd, slot = mm_pif_find(mm_area, dev, st->stx_ino, birth))) {
        }
    }
    return slot;
}

/* The run made the file, and somebody has opened it before that was known: there was nothing that an index could need. */
static __attribute__((noinline, cold)) void made_here(uint32_t slot, struct mm_pif *p)
{
    uint64_t mask = hold(p);
    touched(slot, p);
    if (!(p->flags & MM_INDEXED)) {
        p->created = mm_area->head->epoch;
        p->fresh_from = ISOLATED(p) ? p->fresh_from : 0;
    }
    release(p, mask);
}

/* A descriptor has just been opened.  created: the run made the file.  path: canonical, or NULL to find out.
 * 0, or -errno when the run area has no room (the caller closes the descriptor). */
int mm_opened(int fd, int flags, mode_t mode, int created, const char *path)
{
    struct statx st;
    uint32_t generation, slot = 0;
    int changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
    MM_ASSERT(mm_depth > 0);
    if ((flags & O_PATH) || mm_stranger())
        return 0;
    if ((unsigned)fd >= MM_FDS) {
        if (mm_first_time(2))
            mm_say("descriptors from %d on are not tracked", MM_FDS);
        return 0;
    }
    do {                               /* again where its last name went meanwhile, and its PIF with it */
        MM_STOP("opened.looks");
        long looked = mm_statx(fd, "", AT_EMPTY_PATH, &st);
        if (looked < 0)
            return changes || looked == -EIO || looked == -ENOMEM ? (int)looked : 0;   /* a reader may need what is redirected */
        if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode))
            return 0;
        generation = mm_generation();
        /* a file without a name that a restore brought back is opened in the store: known by what it is */
        slot = pif_of_opened(fd, &st);
        long e = 0;
        struct mm_pif *p = slot ? mm_pif_at(mm_area, slot) : NULL;
        if (UNLIKELY(slot && created && !p->created))
            made_here(slot, p);
        if (slot && changes) {
            touched(slot, p);
            if (!created && UNLIKELY(has_another_name(p, &st)))
                e = note_name(fd, slot);
        } else if (!slot && (changes || created) && S_ISREG(st.stx_mode)) {
            e = follow(fd, &st, created, path, &slot);
        }
        if (e < 0)
            return (int)e;
        MM_STOP("opened.found");
    } while (slot && !mm_pif_ref(mm_area, slot, sys_dev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino));
    uint32_t fit = new_fit(fd, flags & ~O_TRUNC, mode, &st, slot);
    if (!fit)
        return slot ? -ENOSPC : 0;
    mm_map(fd, fit, slot, generation);
    if (slot && mm_is_shorter(mm_pif_at(mm_area, slot), st.stx_size))
        mm_seen_cut(slot, fd);
    /* the kernel takes these bits from a file that an ordinary user writes, but sees only what goes in place */
    if (UNLIKELY(slot && changes && st.stx_mode & (S_ISUID | S_ISGID)) && sys(SYS_geteuid) != 0) {
        long e = mm_stay_home(slot, fd, 0, MM_ENGINE);
        if (e < 0)
            return (int)e;
    }
    /* what chattr lets the kernel only append to could not be written back in the end */
    if (UNLIKELY(slot && changes && st.stx_attributes & STATX_ATTR_APPEND && is_native(mm_pif_at(mm_area, slot)))) {
        long e = mm_stay_home(slot, fd, 0, MM_ENGINE);
        if (e < 0)
            return (int)e;
    }
    if (UNLIKELY(mm_on_tracked != NULL))
        mm_on_tracked(fd);
    return 0;
}

/* F_SETFL: with the file's lock, for who writes to it decides by what its description says.  Not in a call. */
long mm_set_flags(int fd, int flags)
{
    const uint32_t ours = O_APPEND | O_NONBLOCK | O_DIRECT;
    uint32_t slot = pif_of(fd) ? enter_file(fd) : 0;
    struct mm_pif *p = slot ? mm_pif_at(mm_area, slot) : NULL;
    struct mm_fit *f = mm_fit_at(mm_area, mm_fds[fd].fit);
    uint64_t mask = p ? hold(p) : 0;
    long r = sys(SYS_fcntl, fd, F_SETFL, flags);
    MM_STOP("flags.set");
    if (r == 0)
        f->attributes = (f->attributes & ~ours) | ((uint32_t)flags & ours);
    if (p) {
        release(p, mask);
        leave();
    }
    return r;
}

/* Its number goes: this was maybe the last that leads to the file, whatever another run of the job, or somebody outside, has called
 * that since. */
static __attribute__((noinline)) void name_at_last(int fd, uint32_t slot)
{
    struct statx st;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (!(p->flags & (MM_NAMELESS | MM_LEFT)) && sys_statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) == 0
        && st.stx_nlink > 0 && has_another_name(p, &st)) {
        touched(slot, p);
        note_name(fd, slot);
    }
}

/* Bytes of it are elsewhere, and would not be found by its name. */
static int was_moved(const struct mm_pif *p) { return !is_native(p) && !(p->flags & MM_NAMELESS) && !is_where_it_was(p); }

/* The number is about to be given back, or to mean another file: from here on nobody decides by what it meant, and whoever looks
 * waits for mm_went.  0: it is not tracked.  there: the number still leads to the description. */
static int begin_going(int fd, struct mm_going *going, int there)
{
    if ((unsigned)fd >= MM_FDS || !mm_fds[fd].fit || mm_stranger())
        return 0;
    MM_ASSERT(mm_depth > 0);
    struct mm_descriptor *d = &mm_fds[fd];
    uint32_t slot = __atomic_load_n(&d->slot, __ATOMIC_RELAXED);
    if (there && slot && UNLIKELY(mm_area->head->flags & MM_JOB || was_moved(mm_pif_at(mm_area, slot))))
        name_at_last(fd, slot);
    if (__atomic_exchange_n(&d->generation, MM_CHANGING, __ATOMIC_SEQ_CST) == MM_CHANGING)
        return 0;                      /* another thread closes it */
    *going = (struct mm_going){ d->fit, __atomic_load_n(&d->slot, __ATOMIC_RELAXED) };
    if (UNLIKELY(!going->fit)) {       /* and did so just now */
        __atomic_store_n(&d->generation, 0, __ATOMIC_RELEASE);
        return 0;
    }
    mm_fd_set(mm_area, mm_self_process, fd, 0);
    struct mm_fit *f = mm_fit_at(mm_area, going->fit);
    if (there && f->owned && f->refs == 1)   /* whoever holds the description unseen finds the position where it belongs */
        sys_lseek(fd, f->position, SEEK_SET);
    return 1;
}

int mm_going(int fd, struct mm_going *going) { return begin_going(fd, going, 1); }

static void last_closed(uint32_t slot)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (p->refs != 1 || !p->frames || !mm_cache_is_full(mm_area))
        return;
    uint64_t mask = hold(p);
    mm_cache_leave(mm_area, slot, mm_buffer_fd);
    release(p, mask);
}

/* The kernel has done it, and may have given the number to another thread's file, of which there is note by now. */
void mm_went(int fd, const struct mm_going *going)
{
    MM_ASSERT(mm_depth > 0);
    int mine = mm_table_begin();
    struct mm_descriptor *d = &mm_fds[fd];
    if (d->fit == going->fit && __atomic_load_n(&d->generation, __ATOMIC_RELAXED) == MM_CHANGING) {
        __atomic_store_n(&d->fit, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&d->slot, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&d->generation, 0, __ATOMIC_RELEASE);
    }
    mm_table_end(mine);
    if (going->slot)
        mm_drop_reader(going->slot);
    if (going->slot && mm_fit_at(mm_area, going->fit)->refs == 1)
        last_closed(going->slot);
    mm_fit_unref(mm_area, going->fit);
}

/* A descriptor that no other thread knows is about to be closed. */
void mm_closing(int fd)
{
    struct mm_going going;
    if (mm_going(fd, &going))
        mm_went(fd, &going);
}

/* The C library has put something else at a number, or closed it, by calls of its own. */
void mm_replaced_unseen(int fd)
{
    struct stat st;
    uint32_t fit = (unsigned)fd < MM_FDS ? mm_fds[fd].fit : 0;
    if (!fit)
        return;
    const struct mm_fit *f = mm_fit_at(mm_area, fit);
    const struct mm_pif *p = f->slot ? mm_pif_at(mm_area, f->slot) : NULL;
    if (sys(SYS_fstat, fd, &st) == 0 && ((st.st_dev == f->dev && st.st_ino == f->ino)
                                         || (p && st.st_dev == p->dev && st.st_ino == p->ino)))
        return;
    struct mm_going going;
    if (begin_going(fd, &going, 0))
        mm_went(fd, &going);
}

void mm_standard_replaced(void)
{
    if (!mm_active)
        return;
    enter();
    for (int fd = 0; fd < 3; fd++)
        mm_replaced_unseen(fd);
    leave();
}

/* The process is no part of the run any more: no call looks at them. */
void mm_forget_descriptors(void)
{
    for (int fd = 0; fd <= mm_top_fd; fd++)
        mm_fds[fd] = (struct mm_descriptor){ 0, 0, 0 };
}

/* Between the kernel's open and our note of it the file lost its last name, and whoever took that knew of nobody who has it open: the
 * call is made once more, as if it had come now.  Not where the path leads to that file without being its name.  In isolation what it
 * held may have been in the buffer alone, and nobody knows that any more: it may have the store's link for a moment yet. */
int mm_too_late(int fd, int dir, const char *given)
{
    struct stat a, b;
    if (!given || (unsigned)fd >= MM_FDS || !mm_fds[fd].fit)
        return 0;
    uint32_t slot = __atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED);
    int maybe = slot ? mm_pif_at(mm_area, slot)->flags & MM_NAMELESS : mm_area->head->flags & MM_ISOLATE;
    return UNLIKELY(maybe) && sys(SYS_fstat, fd, &a) == 0 && (slot || !a.st_nlink || a.st_dev == mm_store_dev())
        && (sys(SYS_newfstatat, dir, given, &b, 0) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev);
}
