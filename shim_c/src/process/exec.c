/* exec.c - what has to be true before a new program starts: it will be tracked, or everybody knows that it is not.
 *
 * A program that the dynamic loader will put our library into joins the run by itself (init.c); its environment must
 * only lead there.  Variables that the program took away are put back behind its own ones, and the new program's
 * constructor hides them again, so that it sees the environment that it was given (docs/adr/0009).
 * Any other program reads and writes the files as the kernel has them: before it starts, every file with redirected
 * bytes is written back, and while it may live (`untracked`) files stay in place (settle.c).  It is named once on
 * stderr.
 * Runs between fork and exec too: system calls only, no allocation.
 */
#include "process/process.h"

#include <link.h>

static int confined;                   /* it, and what it executes, may not make the calls that our library makes */

/* -- those who are not -------------------------------------------------------------------------------- */

static int away(const struct mm_pif *p, uint64_t dev)
{
    return (p->flags & MM_USED) && !(p->flags & MM_COPIED) && !is_native(p) && (!dev || p->dev == dev);
}

/* Every file that somebody outside could open has its bytes in place; dev: only those of one filesystem. */
void mm_all_home(uint64_t dev)
{
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        uint32_t slot = mm_fds[fd].fit ? pif_of(fd) : 0;
        if (slot && away(mm_pif_at(mm_area, slot), dev))
            mm_stay_home(slot, fd, 0, 0);
    }
    for (uint32_t slot = 1; slot < mm_area->head->pif_count; slot++) {
        struct mm_pif *p = mm_pif_at(mm_area, slot);
        if (away(p, dev) && !(p->flags & MM_NAMELESS))
            mm_home_by_name(slot, mm_path_at(mm_area, p->path), 0, 0);
        if (dev && p->dev == dev)
            mm_drop_reader(slot);      /* it would keep the filesystem busy */
    }
}

/* From here on somebody whom no call of ours shows may write to the file. */
void mm_show(int fd, uint32_t slot)
{
    if (!(mm_pif_at(mm_area, slot)->flags & MM_COPIED))
        mm_stay_home(slot, fd, MM_UNSEEN, MM_ENGINE);
}

/* Descriptors that go along. */
static void show_descriptors(int over_exec)
{
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        uint32_t slot = mm_fds[fd].fit ? pif_of(fd) : 0;
        if (slot && (mm_fit_at(mm_area, mm_fds[fd].fit)->attributes & O_ACCMODE) != O_RDONLY
            && !(over_exec && (sys(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC)))
            mm_show(fd, slot);
    }
}

static void outside_for_good(uint64_t key, const char *what)
{
    if (mm_first_time(key))
        mm_say("%s", what);
    mm_area->head->outside_for_good = 1;
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
}

/* Somebody who is not tracked may be about to look at files: they are in place until a checkpoint sees that nobody does. */
void mm_outsider_comes(void)
{
    enter();
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    leave();
}

/* Somebody who is not tracked begins to look at files, for good: no process slot says when that ends. */
void mm_outsider_for_good(uint64_t key, const char *what)
{
    if (!mm_active)
        return;
    enter();
    outside_for_good(key, what);
    mm_all_home(0);
    leave();
}

static void untracked(const char *path, const struct stat *st, const char *why)
{
    if (mm_first_time((st->st_ino * 0x9e3779b97f4a7c15ull) ^ st->st_dev))
        mm_say("%s cannot be tracked: %s. Its files are not checkpointed", path, why);
}

/* Our library will be in it, but some of its calls are not shown to anybody. */
static void unseen_in_part(const char *path, const struct stat *st)
{
    char text[400];
    int strict = (mm_area->head->flags & MM_STRICT) != 0;
    snprintf(text, sizeof text, strict ? "%.150s is tracked as without --strict: no filter can be set"
             : "%.150s is a Go program: it calls the kernel by itself, and what it writes that way is not tracked", path);
    outside_for_good(strict ? 7 : st->st_ino | 1ull << 63, text);
    mm_self->outside = 0;
}

/* It counts as untracked at once, and the proxy makes none of its calls: it takes locks. */
static void begin_outside(void)
{
    mm_self->outside = MM_OUTSIDE_SOON;
    enter();
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    show_descriptors(1);
    leave();
}

/* This process is about to lose system calls that tracking needs: it counts as untracked before that, while it can
 * still write its files back. */
static void leave_run(uint64_t key, const char *why)
{
    if (why && mm_first_time(key))
        mm_say("%s %s: from now on its files are not checkpointed", program_invocation_name, why);
    mm_self->outside = MM_OUTSIDE_SOON;
    enter();
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    show_descriptors(0);
    leave();
    mm_hold_calls();                   /* other threads come to the end of theirs */
    mm_leave();
    mm_let_calls_go();
    mm_self->outside = 1;
}

/* It begins a run with another store, whose programs find their files as the kernel has them. */
void mm_leave_for_another(void)
{
    leave_run(0, NULL);
}

/* It becomes another user: can that one write the store?  1: it has left. */
int mm_leave_for(uid_t uid)
{
    struct stat st;
    if (!mm_active || uid == (uid_t)-1 || uid == 0 || uid == geteuid()
        || sys(SYS_newfstatat, AT_FDCWD, mm_area->store, &st, 0) < 0 || st.st_uid == uid)
        return 0;
    leave_run(5, "becomes a user who cannot write the store");
    return 1;
}

/* It forbids itself calls that following takes (wrap_rights.c).  1: it has left. */
int mm_leave_confined(void)
{
    if (!mm_active)
        return 0;
    confined = 1;
    leave_run(6, "forbids itself (by seccomp or Landlock) system calls that tracking needs");
    return 1;
}

/* It has stayed who it was. */
void mm_leave_undone(int gone)
{
    if (!gone)
        return;
    mm_active = 1;
    confined = 0;
    mm_self->outside = 0;
    mm_adopt();
}

/* -- before and after ------------------------------------------------------------------------------------- */

/* A program file with redirected bytes is run by the kernel from what is in place: put them there. */
static long settle_program(int fd)
{
    struct stat st;
    if (sys(SYS_fstat, fd, &st) < 0)
        return 0;
    enter();
    uint32_t slot = mm_pif_there(mm_area, fd, "", AT_EMPTY_PATH, st.st_dev, st.st_ino);
    long r = slot && !is_native(mm_pif_at(mm_area, slot)) ? mm_settle_program(slot, fd) : 0;
    leave();
    return r;
}

/* As mm_why_not, of a file of this run: what it is, its bytes say, and those of its interpreters, once they are in place. */
static const char *settled_why_not(int fd, struct mm_program *found)
{
    const char *why = mm_why_not_after(fd, found, settle_program);
    int own = *found->loader && strncmp(found->loader, "/lib", strlen("/lib")) != 0;
    long loader = own ? mm_open_program(AT_FDCWD, found->loader, 0) : -1;
    if (loader >= 0) {
        long e = settle_program((int)loader);
        if (e < 0)
            found->refused = (int32_t)e;
        mm_close_spare((int)loader);
    }
    return why;
}

/* Can the kernel read the list and its words?  Where it cannot, nothing is executed. */
static int list_readable(char *const list[])
{
    for (; list; list++) {
        if (mm_usable(list, sizeof *list, 2) < sizeof *list)
            return 0;
        if (!*list)
            break;
        const char *at = *list, *page;
        do {
            page = (const char *)(((uintptr_t)at | (MM_BLOCK - 1)) + 1);
            if (!mm_usable(at, page - at, 0))
                return 0;
        } while (!memchr(at, 0, page - at) && (at = page));
    }
    return 1;
}

/* To look into it.  A descriptor that is executed itself (fexecve) need not be fit to be read; a file that this process has locked
 * is looked into by its own. */
static long open_image(int dir, const char *path, int flags)
{
    char link[40];
    if (!(flags & AT_EMPTY_PATH) || *path) {
        int own = mm_active ? mm_locked_at(dir, path, flags & AT_SYMLINK_NOFOLLOW) : -1;
        return own >= 0 ? own : mm_open_program(dir, path, flags);
    }
    if (!(sys(SYS_fcntl, dir, F_GETFL) & O_PATH))
        return dir;
    mm_digits(stpcpy(link, "/proc/thread-self/fd/"), (uint32_t)dir);
    long fd = mm_open_program(AT_FDCWD, link, 0);
    return fd < 0 ? dir : fd;
}

/* path at dir with flags is about to be executed.  replaces: by this process itself; otherwise one that will not be
 * tracked is only noticed (image->outside).  Sets image->envp; image->refused where it must not be executed. */
void mm_before_exec(struct mm_exec *image, int dir, const char *path, int flags, char *const envp[], int replaces)
{
    struct stat st;
    *image = (struct mm_exec){ .envp = envp };
    if (!(mm_active || mm_ready == 2 || confined) || !path || !list_readable(envp))
        return;
    if (UNLIKELY(confined))
        mm_strip(image, envp);
    if (!(mm_active || mm_ready == 2))
        return;
    int itself = (flags & AT_EMPTY_PATH) && !*path, shows = 0, past = 0;
    long fd = open_image(dir, path, flags);
    int given = (itself && fd == dir) || (fd >= 0 && fd <= mm_top_fd && mm_fds[fd].fit);   /* the program's */
    int ours = mm_active && fd >= 0 && sys(SYS_fstat, fd, &st) == 0;
    struct mm_program found;
    const char *why = fd < 0 ? NULL : ours ? settled_why_not((int)fd, &found) : mm_why_not((int)fd, &found);
    if (UNLIKELY(ours && found.refused < 0)) {         /* rather not at all than what it was before */
        image->refused = found.refused;
        mm_say("%s is not executed: its redirected data cannot be put in place (%s)", itself ? "a program" : path,
               strerror(-found.refused));
        if (!given)
            mm_close_spare((int)fd);
        return;
    }
    if (fd >= 0 && !why && sys(SYS_faccessat, AT_FDCWD, mm_library, R_OK) < 0) {
        why = "the preload library cannot be reached from where it runs";
        found.refuses = 1;
    }
    if (ours) {
        past = !why && found.shows_calls && mm_goes_past_us(mm_area, (int)fd);
        image->outside = why != NULL || past;
        if (image->outside && replaces) {
            begin_outside();
            shows = !mm_says_leave(envp) && found.shows_calls && sys(SYS_faccessat, AT_FDCWD, mm_library, R_OK) == 0;
        }
    }
    if (fd >= 0 && !given)
        mm_close_spare((int)fd);
    if (why && found.refuses)
        mm_strip(image, envp);
    else if ((!why || !found.is_elf) && !mm_leads_here(envp) && !mm_says_leave(envp))
        mm_put_back(image, envp);
    for (int i = 0; mm_active && i <= mm_top_fd; i++)
        if (mm_fds[i].fit)
            mm_give_position(i);
    if (mm_active && replaces) {
        mm_readers_before_exec();
        mm_self->executing = !mm_stranger();
    }
    if (mm_active && replaces && !mm_stranger()) {    /* who shares our memory would leave it held */
        image->limited = 1;
        image->mask = mm_limit_begin();
    }
    /* last: from here on this thread's calls are shown too */
    image->shown = image->outside && replaces && shows && mm_follow_calls() == 0;
    if (image->outside && replaces && !image->shown) {
        image->outside = why != NULL;
        (why ? untracked(itself ? "a program" : path, &st, why) : unseen_in_part(itself ? "it" : path, &st));
    }
    if (image->outside && replaces)
        __atomic_store_n(&mm_self->outside, 1, __ATOMIC_RELEASE);
}

/* Nothing was executed, or by somebody else: the memory goes. */
void mm_exec_failed(struct mm_exec *image)
{
    int saved_errno = errno;
    if (UNLIKELY(image->limited))
        mm_limit_end(image->mask);
    if (image->outside && mm_self)
        mm_self->outside = 0;
    if (mm_active) {
        mm_readers_exec_failed();
        mm_self->executing = 0;
    }
    mm_environment_dropped(image);
    errno = saved_errno;
}
