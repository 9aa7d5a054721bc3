/* proxy_calls.c - a call of another program, made here: by the wrappers, as if it were one of ours.
 *
 * The program waits in the kernel, so the path is read once, and what is noted and kept is what the call is made with; it is
 * no more than a program of the run could do itself, for it has the same user, rights, root and mounts, else the kernel makes
 * its calls and they are not tracked.  A file that it opens for writing is treated as one that is mapped: what an index needs of it is
 * saved, and checkpoints look for what has changed (engine/settle.c).  The descriptor is put into the program.
 * What this does not know, or need not know, the kernel does: it then says what it says without us.
 */
#include "start/proxy.h"
#include "process/call_filter.h"

#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/un.h>

/* A predecessor was killed amid this call: did it make it?  Then it cannot be made again, and says why. */
static int was_made(const struct mm_shown *call, long result)
{
    if (call->tries < 2)
        return 0;
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_unlink: case SYS_rmdir: case SYS_rename: case SYS_renameat:
#endif
    case SYS_unlinkat: case SYS_renameat2:
        return result == -ENOENT;
#ifdef SYS_open
    case SYS_mkdir: case SYS_mknod: case SYS_link: case SYS_symlink:
#endif
    case SYS_mkdirat: case SYS_mknodat: case SYS_linkat: case SYS_symlinkat: case SYS_setxattr: case SYS_lsetxattr: case SYS_fsetxattr:
    case MM_SETXATTRAT:
        return result == -EEXIST;
    case SYS_removexattr: case SYS_lremovexattr: case SYS_fremovexattr: case MM_REMOVEXATTRAT:
        return result == -ENODATA;
    case SYS_bind:
        return result == -EINVAL;
    default:
        return 0;
    }
}

/* -- opening -------------------------------------------------------------------------------------- */

/* It may be written, by calls that nobody sees, from now on.  0 or -errno. */
static long written_unseen(int fd, int flags)
{
    uint32_t slot = pif_of(fd);
    long r = 0;
    if (!slot || (flags & O_ACCMODE) == O_RDONLY)
        return 0;
    enter();
    if (!(mm_pif_at(mm_area, slot)->flags & MM_COPIED))
        r = mm_stay_home(slot, fd, MM_UNSEEN, MM_ENGINE);
    else if (flags & O_TRUNC)
        r = sys(SYS_ftruncate, fd, 0);     /* the copy was cut, and the program sees the file itself */
    leave();
    return r;
}

/* Regular files, and those that are about to be made; to open anything else may wait, or mean this process.
 * *there: 1: it is a file of our user's; with one that is there O_CREAT means nothing (fs.protected_regular looks at others');
 * -1: nothing is. */
static int is_for_us(const struct mm_place *place, int flags, uint64_t resolve, int *there)
{
    struct stat st;
    int follow = (flags & O_NOFOLLOW) || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? AT_SYMLINK_NOFOLLOW : 0;
    long looked;
    if (resolve) {
        struct open_how look = { .flags = O_PATH | O_CLOEXEC | (follow ? O_NOFOLLOW : 0), .resolve = resolve & ~(uint64_t)RESOLVE_CACHED };
        long fd = looked = sys(SYS_openat2, place->dir, place->path, &look, sizeof look);
        if (fd >= 0) {
            looked = sys(SYS_fstat, fd, &st);
            sys_close((int)fd);
        }
    } else {
        looked = sys(SYS_newfstatat, place->dir, place->path, &st, follow);
    }
    *there = looked == -ENOENT ? -1 : looked == 0 && mm_is_own_file(&st);
    if (looked == 0 && mm_is_kernels_file(&st))
        return 0;
    if (flags & O_PATH)
        return 0;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return looked == 0 && S_ISDIR(st.st_mode);
    return looked == 0 ? S_ISREG(st.st_mode) : looked == -ENOENT && (flags & O_CREAT);
}

#define RESOLVES (RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_CACHED)

/* Nothing is there for the program either.  The kernel would look again, and find what the run makes meanwhile.  Behind a link it may
 * be somewhere else than here (/proc/self), and a program without a free number hears of that first. */
static int is_missing(const struct mm_shown *call, const struct mm_waiting *from, struct mm_place *place, int flags, uint64_t resolve)
{
    struct open_how look = { .flags = O_PATH | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_SYMLINKS };
    if (flags & (O_CREAT | O_PATH | __O_TMPFILE) || resolve & RESOLVE_CACHED || !mm_reach_file(call, from, place))
        return 0;
    long fd = sys(SYS_openat2, place->dir, place->path, &look, sizeof look);
    if (fd >= 0)
        sys_close((int)fd);
    return fd == -ENOENT && mm_has_number_left(from);
}

#define MARK 64                        /* a signal that nobody is sent: nothing is asynchronous here */

/* The program gets a copy of fd; the answer is another step.  In one step (SECCOMP_ADDFD_FLAG_SEND) a proxy that is killed amid it
 * leaves the answer 0 without a descriptor.  So that no descriptor is given twice, it bears a mark until its number is noted.
 * 0 or -errno. */
static long give_descriptor(struct mm_shown *call, int fd, int flags)
{
    struct seccomp_notif_addfd to = { .id = call->notice.id, .srcfd = (uint32_t)fd, .newfd_flags = flags & O_CLOEXEC };
    long number = sys(SYS_fcntl, fd, F_SETSIG, MARK);
    if (number >= 0)
        number = sys(SYS_ioctl, call->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &to);
    if (number < 0)
        return number;
    if (call->tries == 1)
        MM_STOP("proxy.given");
    __atomic_store_n(&call->given, (int32_t)number + 1, __ATOMIC_RELEASE);
    sys(SYS_fcntl, fd, F_SETSIG, 0);
    return 0;
}

/* Has a predecessor, which was killed, given it?  The mark is taken off. */
static int was_given(struct mm_shown *call, const struct mm_waiting *from)
{
    int first = call->given ? call->given - 1 : 0, last = call->given ? call->given - 1 : 65535;
    for (int fd = first; call->tries > 1 && fd <= last; fd++) {
        long own = sys(SYS_pidfd_getfd, from->process, fd, 0);
        if (own < 0)
            continue;
        int marked = sys(SYS_fcntl, own, F_GETSIG, 0) == MARK;
        if (marked) {
            sys(SYS_fcntl, own, F_SETSIG, 0);
            call->given = fd + 1;
        }
        sys_close((int)own);
        if (marked)
            break;
    }
    return call->given;
}

static int open_there(const struct mm_place *place, int flags, mode_t mode, uint64_t resolve)
{
    if (!resolve)
        return openat(place->dir, place->path, flags, mode);
    struct open_how how = { .flags = (uint32_t)flags, .resolve = resolve,
                            .mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0 };
    return mm_open_resolved(place->dir, place->path, &how, sizeof how);
}

static enum mm_answer opened_for_it(struct mm_shown *call, int fd, int flags, long *result)
{
    if (fd < 0)
        return mm_answered_by(errno == EMFILE ? -ENFILE : -errno, result);     /* it is ours that has no number left */
    long e = written_unseen(fd, flags);
    if (call->tries == 1)
        MM_STOP("proxy.opened");
    if (e == 0)
        e = give_descriptor(call, fd, flags);
    close(fd);
    return mm_answered_by(e < 0 ? e : call->given - 1, result);
}

static enum mm_answer open_at(struct mm_shown *call, const struct mm_waiting *from, struct mm_place *place, int flags, mode_t mode,
                              uint64_t resolve, long *result)
{
    int there, fd = -1, makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    if (was_given(call, from))
        return mm_answered_by(call->given - 1, result);
    if (!is_for_us(place, flags, resolve, &there))
        return there < 0 && is_missing(call, from, place, flags, resolve) ? mm_answered_by(-ENOENT, result) : MM_ANSWER_KERNEL;
    int as_it_is = there > 0 && (flags & (O_CREAT | O_EXCL | O_DIRECTORY)) == O_CREAT;    /* most often it stays there */
    if (flags & O_TRUNC && !mm_has_number_left(from))
        return mm_answered_by(-EMFILE, result);
    if ((flags & O_TRUNC || (makes && !as_it_is)) && !mm_reach_file(call, from, place))
        return MM_ANSWER_KERNEL;
    if (as_it_is)
        fd = open_there(place, (flags & ~O_CREAT) | O_CLOEXEC, 0, resolve);
    if (fd < 0) {
        if ((flags & (O_CREAT | O_TRUNC)) == O_CREAT && !mm_has_number_left(from))
            return mm_answered_by(-EMFILE, result);
        if (makes && (!mm_reach_file(call, from, place) || !mm_take_umask(call, from)))
            return MM_ANSWER_KERNEL;
        fd = open_there(place, flags | O_CLOEXEC, mode, resolve);
    }
    if (fd < 0 && errno == EEXIST && call->tries > 1 && (flags & O_EXCL))   /* it was made by a predecessor that was killed */
        fd = open_there(place, (flags & ~O_EXCL) | O_CLOEXEC | O_NOFOLLOW, mode, resolve);
    return opened_for_it(call, fd, flags, result);
}

/* By what name_to_handle_at said of a file.  The kernel wants a privilege for it, which we have if the program has. */
static enum mm_answer open_by_handle(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, long *result)
{
    struct { struct file_handle head; char rest[MAX_HANDLE_SZ]; } handle;
    int flags = (int)a[2], dir = (int)a[0], is_file = 0;
    struct stat st;
    if (was_given(call, from))
        return mm_answered_by(call->given - 1, result);
    if (flags & (O_CREAT | O_PATH | O_DIRECTORY) || !mm_shown_bytes(call, a[1], &handle.head, sizeof handle.head)
        || handle.head.handle_bytes > MAX_HANDLE_SZ || !mm_shown_bytes(call, a[1], &handle, sizeof handle.head + handle.head.handle_bytes)
        || (flags & O_TRUNC && !mm_has_number_left(from)))
        return MM_ANSWER_KERNEL;
    long in = dir == AT_FDCWD ? sys_openat(from->folder, "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC, 0) : mm_shown_descriptor(call, from, dir);
    long fd = in < 0 ? in : sys(SYS_open_by_handle_at, in, &handle, O_PATH | O_CLOEXEC);
    if (fd >= 0) {
        is_file = sys(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && !mm_is_kernels_file(&st) && mm_still_waits(call);
        sys_close((int)fd);
    }
    enum mm_answer how = is_file ? opened_for_it(call, open_by_handle_at((int)in, &handle.head, flags | O_CLOEXEC), flags, result) : MM_ANSWER_KERNEL;
    if (in >= 0)
        sys_close((int)in);
    return how;
}

/* A program that knows of more than we do may leave that at zero. */
static int is_how(const struct mm_shown *call, uint64_t address, uint64_t size, struct open_how *how)
{
    union { struct open_how how; char bytes[256]; } given = { .bytes = { 0 } };
    int more = 0;
    if (size < sizeof *how || size > sizeof given || !mm_shown_bytes(call, address, &given, size))
        return 0;
    for (size_t i = sizeof *how; i < size; i++)
        more |= given.bytes[i];
    *how = given.how;
    return !more;
}

/* The kernel looks at this before it looks for the file, and at more than openat does, by which it is opened here. */
static int is_refused_how(const struct open_how *how)
{
    long r = sys(SYS_openat2, -1, ".", how, sizeof *how);
    return r == -EINVAL || r == -EAGAIN;
}

static enum mm_answer open_as_asked(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    struct open_how how;
    size_t slashes = 0;
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_open:
        return mm_find_file(call, from, AT_FDCWD, a[0], place) ? open_at(call, from, place, (int)a[1], (mode_t)a[2], 0, result) : MM_ANSWER_KERNEL;
    case SYS_creat:
        return mm_find_file(call, from, AT_FDCWD, a[0], place)
            ? open_at(call, from, place, O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1], 0, result) : MM_ANSWER_KERNEL;
#endif
    case SYS_openat2:
        if (!is_how(call, a[2], a[3], &how) || (how.flags >> 32) || (how.resolve & ~(uint64_t)RESOLVES)
            || !(how.flags & (O_ACCMODE | O_CREAT | O_TRUNC)) || is_refused_how(&how))
            return MM_ANSWER_KERNEL;
        if (how.resolve & RESOLVE_IN_ROOT) {   /* "/" is the folder */
            if (mm_shown_string(call, a[1], place->path, sizeof place->path) <= 0)
                return MM_ANSWER_KERNEL;
            slashes = strspn(place->path, "/");
        }
        place->beneath = (how.resolve & RESOLVE_BENEATH) != 0;
        if (!mm_find_place(call, from, (int)a[0], a[1] + slashes, place))
            return MM_ANSWER_KERNEL;
        return open_at(call, from, place, (int)how.flags, (mode_t)how.mode, how.resolve, result);
    default:
        return mm_find_file(call, from, (int)a[0], a[1], place) ? open_at(call, from, place, (int)a[2], (mode_t)a[3], 0, result) : MM_ANSWER_KERNEL;
    }
}

/* -- names ------------------------------------------------------------------------------------------ */

/* An exchange that is made twice was not made. */
static int was_exchanged(struct mm_shown *call, const struct mm_place *place)
{
    struct stat st;
    long r = sys(SYS_newfstatat, place->dir, place->path, &st, AT_SYMLINK_NOFOLLOW);
    if (call->tries > 1)
        return r == 0 && call->noted && call->noted != st.st_ino;
    call->noted = r == 0 ? st.st_ino : 0;
    return 0;
}

static enum mm_answer move_or_link(struct mm_shown *call, const struct mm_waiting *from, int old_dir, uint64_t old, int to_dir, uint64_t to, int links,
                                   unsigned flags, struct mm_place *place, long *result)
{
    struct mm_place other = MM_NO_PLACE;
    enum mm_answer how = MM_ANSWER_KERNEL;
    if (!(links && mm_find_open(call, from, old_dir, old, &flags, place)) && !mm_find_place(call, from, old_dir, old, place))
        return how;
    other.there = place->there;
    if (!mm_find_place(call, from, to_dir, to, &other))
        how = MM_ANSWER_KERNEL;
    else if (!links && (flags & RENAME_EXCHANGE) && was_exchanged(call, place))
        how = mm_answered(0, result);
    else
        how = mm_answered(links ? linkat(place->dir, place->path, other.dir, other.path, (int)flags)
                             : renameat2(place->dir, place->path, other.dir, other.path, flags), result);
    mm_leave_place(&other);
    return how;
}

static enum mm_answer make_link(const struct mm_shown *call, const struct mm_waiting *from, uint64_t target, int dir, uint64_t path, struct mm_place *place,
                                long *result)
{
    char text[PATH_ROOM_SHOWN];
    return mm_shown_string(call, target, text, sizeof text) > 0 && mm_find_place(call, from, dir, path, place)
        ? mm_answered(symlinkat(text, place->dir, place->path), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer make_name(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, mode_t mode, dev_t device, int folder,
                                struct mm_place *place, long *result)
{
    if (!mm_find_place(call, from, dir, path, place) || !mm_take_umask(call, from))
        return MM_ANSWER_KERNEL;
    return mm_answered(folder ? mkdirat(place->dir, place->path, mode) : mknodat(place->dir, place->path, mode, device), result);
}

static enum mm_answer remove_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, int flags, struct mm_place *place, long *result)
{
    return mm_find_place(call, from, dir, path, place) ? mm_answered(unlinkat(place->dir, place->path, flags), result) : MM_ANSWER_KERNEL;
}

/* A socket of the program's gets a name. */
static enum mm_answer bind_socket(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    struct sockaddr_un address = { .sun_family = AF_UNSPEC };
    const size_t head = offsetof(struct sockaddr_un, sun_path), size = (size_t)a[2];
    if (size <= head || size > sizeof address || !mm_shown_bytes(call, a[1], &address, size) || address.sun_family != AF_UNIX
        || !address.sun_path[0] || !mm_find_place(call, from, AT_FDCWD, a[1] + head, place) || place->dir != AT_FDCWD
        || strlen(place->path) >= sizeof address.sun_path || strlen(place->path) != strnlen(address.sun_path, size - head)
        || !mm_take_umask(call, from))
        return MM_ANSWER_KERNEL;
    long fd = mm_shown_descriptor(call, from, (int)a[0]);
    if (fd < 0)
        return MM_ANSWER_KERNEL;
    enum mm_answer how = mm_answered(bind((int)fd, (struct sockaddr *)&address, (socklen_t)size), result);
    sys_close((int)fd);
    return how;
}

static enum mm_answer call_on_names(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_unlink: return remove_at(call, from, AT_FDCWD, a[0], 0, place, result);
    case SYS_rmdir: return remove_at(call, from, AT_FDCWD, a[0], AT_REMOVEDIR, place, result);
    case SYS_rename: return move_or_link(call, from, AT_FDCWD, a[0], AT_FDCWD, a[1], 0, 0, place, result);
    case SYS_renameat: return move_or_link(call, from, (int)a[0], a[1], (int)a[2], a[3], 0, 0, place, result);
    case SYS_link: return move_or_link(call, from, AT_FDCWD, a[0], AT_FDCWD, a[1], 1, 0, place, result);
    case SYS_symlink: return make_link(call, from, a[0], AT_FDCWD, a[1], place, result);
    case SYS_mkdir: return make_name(call, from, AT_FDCWD, a[0], (mode_t)a[1], 0, 1, place, result);
    case SYS_mknod: return make_name(call, from, AT_FDCWD, a[0], (mode_t)a[1], (uint32_t)a[2], 0, place, result);
#endif
    case SYS_unlinkat: return remove_at(call, from, (int)a[0], a[1], (int)a[2], place, result);
    case SYS_renameat2: return move_or_link(call, from, (int)a[0], a[1], (int)a[2], a[3], 0, (unsigned)a[4], place, result);
    case SYS_linkat: return move_or_link(call, from, (int)a[0], a[1], (int)a[2], a[3], 1, (unsigned)a[4], place, result);
    case SYS_symlinkat: return make_link(call, from, a[0], (int)a[1], a[2], place, result);
    case SYS_mkdirat: return make_name(call, from, (int)a[0], a[1], (mode_t)a[2], 0, 1, place, result);
    case SYS_bind: return bind_socket(call, from, a, place, result);
    default: return make_name(call, from, (int)a[0], a[1], (mode_t)a[2], (uint32_t)a[3], 0, place, result);
    }
}

/* -- programs ------------------------------------------------------------------------------------------- */

/* Its environment names our library for the dynamic programs that it starts: the name is taken out of its own string.  That may be
 * vfork's parent's too, and then these are seen by their calls. */
static void take_library_out(const struct mm_shown *call, uint64_t envp)
{
    char list[4096];
    size_t length;
    for (uint64_t at; mm_shown_bytes(call, envp, &at, sizeof at) && at; envp += sizeof at) {
        if (mm_shown_string(call, at, list, sizeof list) < 0 || strncmp(list, "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0)
            continue;
        for (const char *ours; (ours = mm_ours_in(list, &length)) != NULL && mm_still_waits(call);) {
            size_t rest = strlen(ours + length) + 1;
            struct iovec here = { (char *)ours, rest }, there = { (void *)(uintptr_t)(at + (uint64_t)(ours - list)), rest };
            memmove((char *)ours, ours + length, rest);
            sys(SYS_process_vm_writev, call->notice.pid, &here, 1, &there, 1, 0);
        }
    }
}

/* What it executes, here; named by its descriptor (fexecve) as well.  -1: it is not to be had. */
static long executed(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, int flags, struct mm_place *place)
{
    if (!(flags & AT_EMPTY_PATH) || mm_shown_string(call, path, place->path, sizeof place->path) != 0)
        return mm_find_place(call, from, dir, path, place) ? sys_openat(place->dir, place->path, O_PATH | O_CLOEXEC, 0) : -1;
    long fd = mm_shown_descriptor(call, from, dir);
    snprintf(place->path, sizeof place->path, "/proc/self/fd/%ld", fd);
    return fd;
}

void mm_look_at_program(const struct mm_shown *call, const struct mm_waiting *from)
{
    struct mm_place place = MM_NO_PLACE;
    const __u64 *a = call->notice.data.args;
    int at = call->notice.data.nr == SYS_execveat, dir = at ? (int)a[0] : AT_FDCWD;
    struct stat st;
    char text[300 + 256];
    struct mm_program found;
    long fd = from->here ? executed(call, from, dir, a[at], at ? (int)a[4] : 0, &place) : -1;
    long image = fd < 0 ? fd : mm_open_program(place.dir, place.path, 0);
    mm_leave_place(&place);
    const char *why = image < 0 ? NULL : mm_why_not((int)image, &found);
    if (why && found.refuses)
        take_library_out(call, a[at + 2]);
    if (image >= 0)
        mm_close_spare((int)image);
    int is_file = fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode), gains = is_file && mm_gains_rights(&st, (int)fd);
    uint64_t key = is_file ? (st.st_ino * 0x9e3779b97f4a7c15ull) ^ st.st_dev : 0;
    if (is_file && why && !found.shows_calls && !gains) {      /* the filter is for programs of this processor's own kind */
        const char *named = strncmp(place.path, "/proc/self/fd/", 14) ? place.path : "a program";      /* the number is ours */
        snprintf(text, sizeof text, "%.255s cannot be tracked: %s. Its files are not checkpointed", named, why);
        mm_say_of(call, from, key, text);
    }
    if (gains && mm_gets_no_rights(from)) {
        snprintf(text, sizeof text, "%.255s gets no rights of another user: it is started below a program that is not dynamic. "
                 "With METAMORI_STATIC=untracked it gets them", place.path);
        mm_say_of(call, from, key ^ SYS_execve, text);
    }
    if (fd >= 0)
        sys_close((int)fd);
}

/* Its descriptors are not to be had either. */
static int hides(const struct mm_shown *call, const struct mm_waiting *from)
{
    long fd = mm_shown_descriptor(call, from, 2);
    if (fd >= 0)
        sys_close((int)fd);
    return fd == -EPERM;
}

#define NOT_LIKE_US 8                  /* as the other keys of mm_first_time */

static enum mm_answer made(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_open: case SYS_creat:
#endif
    case SYS_openat: case SYS_openat2: return open_as_asked(call, from, a, place, result);
    case SYS_open_by_handle_at: return open_by_handle(call, from, a, result);
#ifdef SYS_open
    case SYS_chmod: case SYS_chown: case SYS_lchown: case SYS_utime: case SYS_utimes: case SYS_futimesat:
#endif
    case SYS_fchmod: case SYS_fchmodat: case MM_FCHMODAT2: case SYS_fchown: case SYS_fchownat: case SYS_utimensat: case SYS_truncate:
    case SYS_setxattr: case SYS_lsetxattr: case SYS_fsetxattr: case MM_SETXATTRAT:
    case SYS_removexattr: case SYS_lremovexattr: case SYS_fremovexattr: case MM_REMOVEXATTRAT:
        return mm_shown_attributes(call, from, a, place, result);
    default: return call_on_names(call, from, a, place, result);
    }
}

static __thread const struct mm_shown *making __attribute__((tls_model("initial-exec")));
int mm_asker_is_gone(void) { return making && !mm_still_waits(making); }

enum mm_answer mm_make_shown_call(struct mm_shown *call, const struct mm_waiting *from, long *result)
{
    struct mm_place place = MM_NO_PLACE;
    uint64_t arguments[6];
    for (int i = 0; i < 6; i++)
        arguments[i] = call->notice.data.args[i];
    if (!mm_active || call->notice.data.nr == SYS_landlock_restrict_self)
        return MM_ANSWER_KERNEL;
    if (!mm_waiting_is_like_us(call, from)) {
        mm_say_not_tracked(call, from, NOT_LIKE_US, hides(call, from) ? "it hides its memory. Its files"
                           : "it has another user, group, root or namespace, or other rights, than the run. Its files");
        return MM_ANSWER_KERNEL;
    }
    errno = 0;
    making = call;
    enum mm_answer how = made(call, from, arguments, &place, result);
    making = NULL;
    if (how == MM_ANSWER_RESULT && *result < 0 && was_made(call, *result))
        *result = 0;
    mm_leave_place(&place);
    return how;
}
