/* exec.c - what has to be true before a new program starts: it will be followed, or everybody knows that it is not.
 *
 * A program that the dynamic loader will put our library into joins the run by itself (init.c); its environment must
 * only lead there.  Variables that the program took away are put back behind its own ones, and the new program's
 * constructor hides them again, so that it sees the environment that it was given (docs/adr/0009).
 * Any other program reads and writes the files as the kernel has them: before it starts, every file with redirected
 * bytes comes home, and while it may live (header.outsiders) files stay there (home.c).  It is named once on stderr.
 * Runs between fork and exec too: system calls only, no allocation.
 */
#include "shim.h"
#include "names.h"

#include <link.h>

#ifdef MM_CHECKED
#define LIBRARY "libmetamori-checked.so"
#else
#define LIBRARY "libmetamori.so"
#endif
#define PREFIX "METAMORI_"
#define MARK "METAMORI_PUT_BACK="
#define SAVED 32

extern char **environ;
static const char *saved[SAVED];       /* our variables as they stood when the process began */
static int saved_count, hidden;
static const char *library = "";
static struct mm_area *left;           /* of a process that was in the run */
static int confined;                   /* it, and what it executes, may not make the calls that our library makes */

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* One of our variables, also where the program's environment does not show it. */
const char *mm_variable(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < saved_count; i++)
        if (strncmp(saved[i], name, n) == 0 && saved[i][n] == '=')
            return saved[i] + n + 1;
    return NULL;
}

int mm_hidden_environment(void) { return hidden; }

/* The variables that were put back stand behind the mark: they leave the environment again.  All freed places become
 * NULL, not only the first: who walks past the environment to the auxiliary vector finds an empty one. */
static void hide(char **mark)
{
    char *theirs = *mark + strlen(MARK);
    hidden = 1;
    for (char **e = environ; *theirs && e < mark; e++)
        if (starts(*e, "LD_PRELOAD="))
            *e = theirs;
    for (char **e = mark; *e; e++)
        *e = NULL;
}

/* Once, when the process begins. */
void mm_environment_init(void)
{
    char **mark = NULL;
    for (char **e = environ; e && *e; e++) {
        if (starts(*e, MARK))
            mark = e;
        else if (starts(*e, PREFIX) && saved_count < SAVED)
            saved[saved_count++] = (char *)mm_memory_keep(*e);
    }
    for (struct link_map *one = _r_debug.r_map; one; one = one->l_next)    /* dladdr would look through our symbols */
        if (one->l_ld == _DYNAMIC)
            library = mm_memory_keep(one->l_name);
    if (mark)
        hide(mark);
}

/* -- those who are not -------------------------------------------------------------------------------- */

/* mm_stay_home for a file of which nobody's descriptor is at hand. */
void mm_home_by_name(uint32_t slot, const char *path, int how, uint32_t flags)
{
    static int said;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct stat st;
    int own = mm_locked_reader(slot);  /* to close another descriptor of it would drop the program's locks */
    long fd = own >= 0 ? own : mm_open_shut(path, O_RDWR | O_NOFOLLOW), r = fd;
    if (own >= 0 || (fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino))
        r = mm_stay_home(slot, (int)fd, how, flags);
    if (own < 0 && fd >= 0)
        mm_close_spare((int)fd);
    if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        mm_say("what is written to %s does not appear by its other names, or to programs that are not followed (%s)",
               path, strerror((int)-r));
}

static int away(const struct mm_pif *p, uint64_t dev)
{
    return (p->flags & MM_USED) && !(p->flags & MM_COPIED) && !is_native(p) && (!dev || p->dev == dev);
}

/* Every file that somebody outside could open has its bytes home; dev: only those of one filesystem. */
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

/* Told once in a run.  key: what it is about. */
int mm_first_time(uint64_t key)
{
    uint64_t *said = mm_area->head->said;
    key = key ? key : 1;
    for (int i = 0; i < MM_SAID; i++) {
        uint64_t free = 0;
        if (said[i] == key)
            return 0;
        if (!said[i] && __atomic_compare_exchange_n(&said[i], &free, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 1;
        if (free == key)
            return 0;
    }
    return 0;
}

/* Somebody who is not followed begins to look at files, for good: no process slot says when that ends. */
void mm_outsider_for_good(uint64_t key, const char *what)
{
    if (!active())
        return;
    if (mm_first_time(key))
        mm_say("%s", what);
    enter();
    mm_area->head->outside_for_good = 1;
    __atomic_store_n(&mm_area->head->outsiders, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    leave();
}

static void outsider(const char *path, const struct stat *st, const char *why)
{
    if (mm_first_time((st->st_ino * 0x9e3779b97f4a7c15ull) ^ st->st_dev))
        mm_say("%s cannot be followed: %s; its files are not checkpointed", path, why + (*why == *MM_STRIP));
    enter();
    __atomic_store_n(&mm_area->head->outsiders, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    show_descriptors(1);
    leave();
}

/* This process is about to lose what following it takes: it is an outsider before that, while it can bring its files
 * home. */
static void leave_run(uint64_t key, const char *why)
{
    if (mm_first_time(key))
        mm_say("%s %s: from here on its files are not checkpointed", program_invocation_name, why);
    mm_self->outside = 1;
    enter();
    __atomic_store_n(&mm_area->head->outsiders, 1, __ATOMIC_SEQ_CST);
    mm_all_home(0);
    show_descriptors(0);
    leave();
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit)
            mm_give_position(fd);
    for (int i = 0; i < 100 && __atomic_load_n(&mm_self->calls, __ATOMIC_SEQ_CST); i++)
        sys_pause_us(1000);            /* other threads come to the end of their calls */
    left = mm_area;
    mm_area = NULL;
    mm_forget_descriptors();
}

/* It becomes another user: can that one write the store?  1: it has left. */
int mm_leave_for(uid_t uid)
{
    struct stat st;
    if (!active() || uid == (uid_t)-1 || uid == 0 || uid == geteuid()
        || sys(SYS_newfstatat, AT_FDCWD, mm_area->store, &st, 0) < 0 || st.st_uid == uid)
        return 0;
    leave_run(5, "becomes a user who cannot write the store");
    return 1;
}

/* It forbids itself calls that following takes (wrap_sandbox.c).  1: it has left. */
int mm_leave_confined(void)
{
    if (!active())
        return 0;
    confined = 1;
    leave_run(6, "forbids itself (by seccomp or Landlock) what following it takes");
    return 1;
}

/* It has stayed who it was. */
void mm_leave_undone(int gone)
{
    if (!gone)
        return;
    mm_area = left;
    confined = 0;
    mm_self->outside = 0;
    mm_adopt();
}

/* -- the environment ------------------------------------------------------------------------------------ */

static const char *preload_of(char *const envp[])
{
    for (; envp && *envp; envp++)
        if (starts(*envp, "LD_PRELOAD="))
            return *envp;
    return NULL;
}

/* Does a list of libraries name ours?  Where, and how long with its separator. */
static const char *ours_in(const char *list, size_t *length)
{
    for (const char *p = list ? strchr(list, '=') + 1 : ""; *p;) {
        size_t n = strcspn(p, ": ");
        size_t tail = strlen(LIBRARY);
        if (n >= tail && memcmp(p + n - tail, LIBRARY, tail) == 0) {
            *length = n + (p[n] != 0);
            return p;
        }
        p += n + (p[n] != 0);
    }
    return NULL;
}

static int leads_here(char *const envp[])
{
    size_t length;
    int store = !mm_variable("METAMORI_STORE");
    if (!ours_in(preload_of(envp), &length))
        return 0;
    for (; envp && *envp && !store; envp++)
        store = starts(*envp, "METAMORI_STORE=");
    return store;
}

static int says_leave(char *const envp[])
{
    for (; envp && *envp; envp++)
        if (starts(*envp, "METAMORI_DISABLE="))
            return 1;
    return 0;
}

static char **room_for(struct mm_image *image, char *const envp[], char **strings)
{
    size_t n = 0, theirs = preload_of(envp) ? strlen(preload_of(envp)) : 0;
    while (envp && envp[n])
        n++;
    image->bytes = (n + SAVED + 4) * sizeof *envp + 3 * theirs + sizeof MARK + strlen(library) + 64;
    long r = sys(SYS_mmap, 0, image->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r < 0 && r > -4096)
        return NULL;
    image->made = (void *)r;
    *strings = (char *)r + (n + SAVED + 4) * sizeof *envp;
    return (char **)r;
}

/* Theirs, LD_PRELOAD with ours added in its place; then the mark with LD_PRELOAD as it was; then what is hidden. */
static void put_back(struct mm_image *image, char *const envp[])
{
    char *text, *list, **to = room_for(image, envp, &text), **out = to;
    const char *theirs = preload_of(envp);
    if (!to)
        return;
    list = text;                       /* ours at the end: some libraries insist on being the first */
    text = stpcpy(text, theirs ? theirs : "LD_PRELOAD=");
    if (text[-1] != '=')
        *text++ = ':';
    text = stpcpy(text, library);
    for (; envp && *envp; envp++)
        if (!starts(*envp, PREFIX))
            *out++ = *envp == theirs ? list : *envp;
    *out++ = ++text;
    stpcpy(stpcpy(text, MARK), theirs ? theirs : "");
    for (int i = 0; i < saved_count; i++)
        *out++ = (char *)saved[i];
    if (!theirs)
        *out++ = list;
    image->envp = to;
}

/* Without our library, for a loader that could not bear it. */
static void strip(struct mm_image *image, char *const envp[])
{
    size_t length;
    const char *theirs = preload_of(envp), *ours = ours_in(theirs, &length);
    char *text, **to = ours ? room_for(image, envp, &text) : NULL, **out = to;
    if (!to)
        return;
    memcpy(text, theirs, ours - theirs);
    strcpy(text + (ours - theirs), ours + length);
    for (; *envp; envp++) {
        if (*envp != theirs)
            *out++ = *envp;
        else if (text[strlen("LD_PRELOAD=")])
            *out++ = text;
    }
    image->envp = to;
}

/* -- before and after ------------------------------------------------------------------------------------- */

/* A program file with redirected bytes is run by the kernel from its home: put them there. */
static void settle_program(int fd, const struct stat *st)
{
    enter();
    uint32_t slot = mm_pif_find(mm_area, st->st_dev, st->st_ino, 0);
    if (slot && !is_native(mm_pif_at(mm_area, slot)))
        mm_settle_program(slot, fd);
    leave();
}

/* path at dir with flags is about to be executed.  replaces: by this process itself; otherwise one that will not be
 * followed is only noticed (image->outside).  Sets image->envp. */
void mm_before_image(struct mm_image *image, int dir, const char *path, int flags, char *const envp[], int replaces)
{
    struct stat st;
    *image = (struct mm_image){ .envp = envp };
    if (UNLIKELY(confined))
        strip(image, envp);
    if (!(active() || mm_ready == 2) || !path)
        return;
    int itself = (flags & AT_EMPTY_PATH) && !*path;
    long fd = itself ? dir : mm_open_program(dir, path, flags);
    const char *why = fd < 0 ? NULL : mm_why_not((int)fd, 0);
    if (fd >= 0 && !why && sys(SYS_faccessat, AT_FDCWD, library, R_OK) < 0)
        why = MM_STRIP "the preload library cannot be reached from where it runs";
    if (mm_area && fd >= 0 && sys(SYS_fstat, fd, &st) == 0) {
        settle_program((int)fd, &st);
        image->outside = why != NULL;
        if (why && replaces) {
            mm_self->outside = 1;
            outsider(itself ? "a program" : path, &st, why);
        }
        if (!why && mm_calls_by_itself((int)fd)) {
            char text[300];
            snprintf(text, sizeof text, "%.150s is a Go program: it calls the kernel by itself, and what it writes that way is "
                     "not followed", itself ? "it" : path);
            mm_outsider_for_good(st.st_ino | 1ull << 63, text);
        }
    }
    if (fd >= 0 && !itself)
        mm_close_spare((int)fd);
    if (why && *why == *MM_STRIP)
        strip(image, envp);
    else if (!why && !leads_here(envp) && !says_leave(envp))
        put_back(image, envp);
    for (int i = 0; mm_area && i <= mm_top_fd; i++)
        if (mm_fds[i].fit)
            mm_give_position(i);
    if (mm_area && replaces) {
        mm_readers_before_exec();
        mm_self->executing = !mm_stranger();
    }
    if (mm_area && UNLIKELY(!mm_unlimited()) && replaces) {
        image->limited = 1;
        image->mask = mm_limit_begin();
    }
}

/* Nothing was executed, or by somebody else: the memory goes. */
void mm_image_failed(struct mm_image *image)
{
    int saved_errno = errno;
    if (UNLIKELY(image->limited))
        mm_limit_end(image->mask);
    if (image->outside && mm_self)
        mm_self->outside = 0;
    if (mm_area) {
        mm_readers_exec_failed();
        mm_self->executing = 0;
    }
    if (image->made)
        sys(SYS_munmap, image->made, image->bytes);
    errno = saved_errno;
}
