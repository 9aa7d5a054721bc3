/* inherited_fds.c - descriptors that come without a call of ours: over a fork, an exec, a posix_spawn, a socket. */
#include "process/process.h"

#include <linux/kcmp.h>
#include <stdlib.h>

/* The description behind one of our descriptors, if a process of the run has it too: its FIT, or 0.  The kernel says
 * which descriptions are the same. */
static uint32_t shared_fit(int fd, const struct statx *st)
{
    uint64_t dev = sys_dev(st->stx_dev_major, st->stx_dev_minor);
    uint32_t known = 0, me = (uint32_t)sys_getpid();
    for (uint32_t fit = 1; fit < mm_area->head->fit_count && !known; fit++) {
        struct mm_fit *f = mm_fit_at(mm_area, fit);
        known = f->refs && f->ino == st->stx_ino && f->dev == dev;
    }
    for (uint32_t process = 1; known && process < mm_area->head->process_high; process++) {
        struct mm_process *p = mm_proc(mm_area, process);
        uint32_t pid = p->pid, *root = pid && p->fd_root ? mm_page(mm_area, p->fd_root) : NULL;
        /* of one that is dead another may take both pages away meanwhile, and they may become anything: kcmp finds nobody */
        for (int i = 0; root && i < 1024 * 1024; i++) {
            uint32_t number = root[i >> 10], *page = number && number < mm_area->head->next_page ? mm_page(mm_area, number) : NULL;
            if (!page) {
                i |= 1023;
                continue;
            }
            uint32_t fit = page[i & 1023];
            struct mm_fit *f = fit && fit < mm_area->head->fit_count ? mm_fit_at(mm_area, fit) : NULL;
            if (f && f->ino == st->stx_ino && f->dev == dev && !(process == mm_self_process && i == fd)
                && sys(SYS_kcmp, me, pid, KCMP_FILE, fd, i) == 0)
                return fit;
        }
    }
    return 0;
}

static int shared_or_opened(int fd, const struct statx *st, long flags, int opened)
{
    uint32_t fit = shared_fit(fd, st);
    if (!fit)
        return opened ? mm_opened(fd, (int)flags, 0, 0, NULL) : 0;
    mm_fit_ref(mm_area, fit);
    int e = mm_fd_set(mm_area, mm_self_process, fd, fit);
    if (e == 0)
        mm_map(fd, fit, 0, 0);
    return e;
}

/* Of a process that comes back: it is the run's, and another may have it, too. */
int mm_came_back(int fd)
{
    struct statx st;
    long r = mm_statx(fd, "", AT_EMPTY_PATH, &st);
    return r < 0 ? (int)r : shared_or_opened(fd, &st, sys(SYS_fcntl, fd, F_GETFL), 1);
}

/* What the run itself was given, its standard output, say: nobody's of the run, whichever way it comes. */
static int is_given(int fd)
{
    uint32_t supervisor = mm_area->head->supervisor, me = (uint32_t)sys_getpid();
    for (int i = 0; supervisor && i < 3; i++)
        if (sys(SYS_kcmp, me, supervisor, KCMP_FILE, fd, i) == 0)
            return 1;
    return 0;
}

/* A descriptor that came without a call of ours: inherited, or received.  received: it is the run's from now on;
 * an inherited one is left alone unless the run knows its file. */
void mm_came(int fd, int received)
{
    struct statx st;
    if ((unsigned)fd >= MM_FDS || mm_fds[fd].fit || mm_is_ours(fd) || mm_stranger()
        || mm_statx(fd, "", AT_EMPTY_PATH, &st) < 0
        || (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode)))
        return;
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    if (flags >= 0 && (flags & O_PATH))
        mm_inodes_stay(fd, "", AT_EMPTY_PATH);
    if (flags < 0 || (flags & O_PATH))
        return;
    enter();
    shared_or_opened(fd, &st, flags, (received && !is_given(fd))
                     || mm_pif_find(mm_area, sys_dev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino, 0));
    leave();
}

static int same_file(int fd, const struct mm_fit *f)
{
    struct stat st;
    return sys(SYS_fstat, fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* After exec: the descriptors of this process that stayed open.  The thread that was the first one may have been reading at the
 * kernel's position when it was ended: the lock that it held names this thread now, and whoever shares the description waits. */
static void adopt_own(void)
{
    uint32_t *root = mm_page(mm_area, mm_self->fd_root), me = (uint32_t)sys_gettid();
    for (int fd = 0; fd < MM_FDS; fd++) {
        if (!root[fd >> 10]) {
            fd |= 1023;
            continue;
        }
        uint32_t fit = ((uint32_t *)mm_page(mm_area, root[fd >> 10]))[fd & 1023];
        if (!fit)
            continue;
        mm_release_if(&mm_fit_at(mm_area, fit)->lock, me);
        if (same_file(fd, mm_fit_at(mm_area, fit))) {
            mm_map(fd, fit, 0, 0);
        } else {                       /* closed; or another thread was ended between its dup2 and the note of it */
            mm_fd_set(mm_area, mm_self_process, fd, 0);
            mm_fit_unref(mm_area, fit);
            mm_came(fd, 0);
        }
    }
}

/* After posix_spawn and everything else that makes a process unseen: what the kernel says is open.  Of which of them is
 * what each says true?  2: the kernel says nothing. */
static uint32_t unseen(int (*each)(int fd))
{
    struct { uint64_t ino; int64_t off; unsigned short length; unsigned char type; char name[]; } *entry;
    char list[1024] __attribute__((aligned(8)));
    uint32_t any = 0;
    /* the shorter way where there is one: the kernel makes what is on the way for each new process */
    long folder = sys_openat(AT_FDCWD, sys_getpid() == sys_gettid() ? "/proc/self/fd" : "/proc/thread-self/fd",
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0)
        return 2;
    MM_STOP("inherited.opened");
    for (long n; (n = sys(SYS_getdents64, folder, list, sizeof list)) > 0;)
        for (long at = 0; at < n; at += entry->length) {
            entry = (void *)(list + at);
            if (entry->name[0] != '.' && atoi(entry->name) != folder && each(atoi(entry->name)))
                any = 1;
        }
    sys_close((int)folder);
    return any;
}

static int left_alone(int fd)
{
    struct stat st;
    return ((unsigned)fd >= MM_FDS || !mm_fds[fd].fit) && !mm_is_ours(fd) && sys(SYS_fstat, fd, &st) == 0
        && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

static int came_along(int fd)
{
    mm_came(fd, 0);
    return left_alone(fd);
}

/* Inherited files that nobody follows (as in area/layout.h): what a fork's child executes looks at its descriptors again only with
 * such.  As long as nobody has opened a file there is none that they could be. */
static uint32_t unfollowed;

static void look_at_inherited(int (*each)(int fd))
{
    if (!unfollowed || mm_area->head->fit_count <= 1)
        return;
    enter();                           /* no image is made while the folder is open: it would be the program's */
    mm_self->unfollowed = unfollowed = unseen(each);
    leave();
}

static int is_path(int fd)
{
    long flags = sys(SYS_fcntl, fd, F_GETFL);
    if (flags >= 0 && (flags & O_PATH))
        mm_inodes_stay(fd, "", AT_EMPTY_PATH);
    return 0;
}

/* What the run's first process was given holds files from the start on (by hand nobody says which one that is). */
static void look_for_paths(void)
{
    uint32_t first = mm_area->head->first_pid;
    if (first && first != (uint32_t)sys_getpid())
        return;
    enter();
    unseen(is_path);
    leave();
}

void mm_adopt(void)
{
    unfollowed = mm_self->unfollowed;
    if (mm_self->fd_root)
        adopt_own();
    else if (mm_area->head->fit_count <= 1)
        look_for_paths();
    else
        look_at_inherited(came_along);
}

/* A program that glibc has started is one of the run before it says so: whoever started it may end before.  known: its number as the
 * program knows it, for a freeze may be waited for here, and an image made that has it. */
void mm_started(pid_t known, char *const envp[])
{
    if (!mm_active || known <= 0 || mm_stranger() || mm_says_leave(envp))
        return;
    enter();
    uint32_t child = mm_real_number(mm_area, (uint32_t)known);
    uint64_t began = mm_start_time(child);
    if (began)
        mm_process_join(mm_area, child, began, 1);
    leave();
}

/* -- fork: the child's references are taken before it exists, so that no close of the parent comes first ---------- */

static __thread int forking_errno __attribute__((tls_model("initial-exec")));
static __thread int runtime_held __attribute__((tls_model("initial-exec")));

/* The call begins, and no other thread of ours is in the runtime.  With memory none is inside: an image of a thread that waits
 * here for the end of a freeze would have the lock, of a thread that is not there any more. */
static void begin_with_runtime(void)
{
    runtime_held = 0;
    if (UNLIKELY(mm_memory_head)) {
        enter();
        if (mm_memory_run())
            return;
        leave();
    }
    runtime_held = mm_runtime_hold();
    enter();
}

void mm_fork_begin(void)
{
    forking_errno = errno;
    if (!mm_active)
        return;
    if (UNLIKELY(unfollowed == 2))     /* once, and not in each of its children */
        look_at_inherited(left_alone);
    mm_holding++;
    begin_with_runtime();
    mm_lock(&mm_table_lock, MM_LOCK_TABLE);
    mm_readers_before_fork();
    mm_forking = 1;
    mm_birth_begin_own();
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit)
            mm_fit_ref(mm_area, mm_fds[fd].fit);
    errno = 0;                         /* glibc leaves it alone when the fork succeeds */
}

void mm_fork_in_parent(void)
{
    if (!mm_forking)
        return;
    for (int fd = 0; errno && fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit)
            mm_fit_unref(mm_area, mm_fds[fd].fit);
    mm_forking = 0;
    mm_birth_end_own();
    mm_readers_in_parent();
    mm_unlock(&mm_table_lock);
    mm_numbers |= mm_fork_numbers;     /* until wrap_pid.c has given the child's out */
    if (LIKELY(mm_depth))              /* a child of vfork has let it end before */
        leave();
    mm_runtime_let_go(runtime_held);
    mm_holding--;
    mm_deliver_if_free();
    if (!errno)
        errno = forking_errno;
}

/* A thread of the parent was about to close it, and is not here to end that. */
static int still_open(int fd)
{
    int open = same_file(fd, mm_fit_at(mm_area, mm_fds[fd].fit));
    if (!open)
        mm_fds[fd].fit = mm_fds[fd].slot = 0;
    mm_fds[fd].generation = 0;
    return open;
}

/* A slot of its own. */
static void begin_child(void)
{
    uint32_t pid = (uint32_t)sys_getpid(), process = 0, *counted = mm_as_a_call;
    int referenced = mm_forking;
    mm_as_a_call = NULL;                   /* the parent's count: it would not go down again if we were killed */
    if (mm_forking) {
        mm_depth--;
        mm_holding--;
    }
    mm_deferred &= ~MM_CANCELLED;          /* the parent's thread was */
    mm_table_lock = 0;
    mm_readers_after_fork();
    mm_forking = 0;
    if (referenced && errno == 0)
        errno = forking_errno;
    mm_watch_after_fork();
    MM_STOP("fork.child");
    /* the parent is in the run's PID namespace; a child in another one cannot name it.  A child's first look into /proc is
       dear, the kernel makes a folder for it */
    int known = sys(SYS_getppid) > 0 || mm_same_namespace(mm_area);
    if (known && !(process = mm_process_join(mm_area, pid, mm_start_time(pid), 0)))
        mm_say("process %u is not tracked: the disk has no room for another process in the run", pid);
    if (!process) {
        mm_active = 0;
        mm_forget_descriptors();
        return;
    }
    mm_self_process = process;
    mm_self = mm_proc(mm_area, process);
    mm_self->unfollowed = unfollowed;
    mm_self->calls = mm_depth > 0;
    mm_as_a_call = counted ? &mm_self->calls : NULL;
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        uint32_t fit = mm_fds[fd].fit;
        if (!fit)
            continue;
        if (!referenced)               /* made by a raw system call */
            mm_fit_ref(mm_area, fit);
        if (UNLIKELY(mm_fds[fd].generation == MM_CHANGING) && !still_open(fd)) {
            mm_fit_unref(mm_area, fit);
            continue;
        }
        mm_fd_set(mm_area, process, fd, fit);
    }
}

/* In the child.  A handler of the program that came in between would write as the parent. */
void mm_after_fork(void)
{
    mm_holding++;
    begin_child();
    if (mm_birth_fd >= 0)
        mm_child_joined(mm_birth_fd);
    mm_birth_end_own();
    mm_holding--;
    mm_deliver_if_free();
}
