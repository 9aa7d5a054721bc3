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
#include <sys/resource.h>
#include <sys/xattr.h>

static enum mm_answer answered_by(long r, long *result)
{
    *result = r;
    return MM_ANSWER_RESULT;
}

static enum mm_answer answered(long r, long *result) { return answered_by(r < 0 ? -errno : r, result); }

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
    leave();
    return r;
}

/* Regular files, and those that are about to be made; to open anything else may wait, or mean this process.
 * *there: it is a file of our user's; with one that is there O_CREAT means nothing (fs.protected_regular looks at others'). */
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
    *there = looked == 0 && mm_is_own_file(&st);
    if (flags & O_PATH)
        return 0;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return looked == 0 && S_ISDIR(st.st_mode);
    return looked == 0 ? S_ISREG(st.st_mode) : looked == -ENOENT && (flags & O_CREAT);
}

#define RESOLVES (RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_CACHED)

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

static enum mm_answer open_at(struct mm_shown *call, const struct mm_waiting *from, const struct mm_place *place, int flags, mode_t mode,
                              uint64_t resolve, long *result)
{
    int there, fd = -1;
    if (was_given(call, from))
        return answered_by(call->given - 1, result);
    if (!is_for_us(place, flags, resolve, &there))
        return MM_ANSWER_KERNEL;
    if (flags & O_TRUNC && !mm_has_number_left(from))
        return answered_by(-EMFILE, result);
    if (there && (flags & (O_CREAT | O_EXCL | O_DIRECTORY)) == O_CREAT)    /* most often it stays there */
        fd = open_there(place, (flags & ~O_CREAT) | O_CLOEXEC, 0, resolve);
    if (fd < 0) {
        if ((flags & (O_CREAT | O_TRUNC)) == O_CREAT && !mm_has_number_left(from))
            return answered_by(-EMFILE, result);
        if ((flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) && !mm_take_umask(call, from))
            return MM_ANSWER_KERNEL;
        fd = open_there(place, flags | O_CLOEXEC, mode, resolve);
    }
    if (fd < 0 && errno == EEXIST && call->tries > 1 && (flags & O_EXCL))   /* it was made by a predecessor that was killed */
        fd = open_there(place, (flags & ~O_EXCL) | O_CLOEXEC | O_NOFOLLOW, mode, resolve);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? MM_ANSWER_KERNEL : answered(-1, result);
    long e = written_unseen(fd, flags);
    if (call->tries == 1)
        MM_STOP("proxy.opened");
    if (e == 0)
        e = give_descriptor(call, fd, flags);
    close(fd);
    return answered_by(e < 0 ? e : call->given - 1, result);
}

static enum mm_answer open_as_asked(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    struct open_how how;
    size_t slashes = 0;
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_open:
        return mm_find_place(call, from, AT_FDCWD, a[0], place) ? open_at(call, from, place, (int)a[1], (mode_t)a[2], 0, result) : MM_ANSWER_KERNEL;
    case SYS_creat:
        return mm_find_place(call, from, AT_FDCWD, a[0], place)
            ? open_at(call, from, place, O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1], 0, result) : MM_ANSWER_KERNEL;
#endif
    case SYS_openat2:
        if (a[3] != sizeof how || !mm_shown_bytes(call, a[2], &how, sizeof how) || (how.flags >> 32) || how.mode > 07777
            || (how.resolve & ~(uint64_t)RESOLVES) || (how.mode && !(how.flags & (O_CREAT | __O_TMPFILE)))
            || !(how.flags & (O_ACCMODE | O_CREAT | O_TRUNC)))
            return MM_ANSWER_KERNEL;
        if (how.resolve & RESOLVE_IN_ROOT) {   /* "/" is the folder */
            if (mm_shown_string(call, a[1], place->path, sizeof place->path) <= 0)
                return MM_ANSWER_KERNEL;
            slashes = strspn(place->path, "/");
        }
        if (!mm_find_place(call, from, (int)a[0], a[1] + slashes, place))
            return MM_ANSWER_KERNEL;
        return open_at(call, from, place, (int)how.flags, (mode_t)how.mode, how.resolve, result);
    default:
        return mm_find_place(call, from, (int)a[0], a[1], place) ? open_at(call, from, place, (int)a[2], (mode_t)a[3], 0, result) : MM_ANSWER_KERNEL;
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
        how = answered(0, result);
    else
        how = answered(links ? linkat(place->dir, place->path, other.dir, other.path, (int)flags)
                             : renameat2(place->dir, place->path, other.dir, other.path, flags), result);
    mm_leave_place(&other);
    return how;
}

static enum mm_answer make_link(const struct mm_shown *call, const struct mm_waiting *from, uint64_t target, int dir, uint64_t path, struct mm_place *place,
                                long *result)
{
    char text[PATH_ROOM_SHOWN];
    return mm_shown_string(call, target, text, sizeof text) > 0 && mm_find_place(call, from, dir, path, place)
        ? answered(symlinkat(text, place->dir, place->path), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer make_name(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, mode_t mode, dev_t device, int folder,
                                struct mm_place *place, long *result)
{
    if (!mm_find_place(call, from, dir, path, place) || !mm_take_umask(call, from))
        return MM_ANSWER_KERNEL;
    return answered(folder ? mkdirat(place->dir, place->path, mode) : mknodat(place->dir, place->path, mode, device), result);
}

static enum mm_answer remove_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, int flags, struct mm_place *place, long *result)
{
    return mm_find_place(call, from, dir, path, place) ? answered(unlinkat(place->dir, place->path, flags), result) : MM_ANSWER_KERNEL;
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
    case SYS_mknod: return make_name(call, from, AT_FDCWD, a[0], (mode_t)a[1], (dev_t)a[2], 0, place, result);
#endif
    case SYS_unlinkat: return remove_at(call, from, (int)a[0], a[1], (int)a[2], place, result);
    case SYS_renameat2: return move_or_link(call, from, (int)a[0], a[1], (int)a[2], a[3], 0, (unsigned)a[4], place, result);
    case SYS_linkat: return move_or_link(call, from, (int)a[0], a[1], (int)a[2], a[3], 1, (unsigned)a[4], place, result);
    case SYS_symlinkat: return make_link(call, from, a[0], (int)a[1], a[2], place, result);
    case SYS_mkdirat: return make_name(call, from, (int)a[0], a[1], (mode_t)a[2], 0, 1, place, result);
    default: return make_name(call, from, (int)a[0], a[1], (mode_t)a[2], (dev_t)a[3], 0, place, result);
    }
}

/* -- programs ------------------------------------------------------------------------------------------- */

void mm_look_at_rights(const struct mm_shown *call, const struct mm_waiting *from)
{
    struct mm_place place = MM_NO_PLACE;
    int at = call->notice.data.nr == SYS_execveat, dir = at ? (int)call->notice.data.args[0] : AT_FDCWD;
    struct stat st;
    char text[300 + 256];
    long fd = from->here && mm_find_place(call, from, dir, call->notice.data.args[at], &place)
        ? sys_openat(place.dir, place.path, O_PATH | O_CLOEXEC, 0) : -1;
    mm_leave_place(&place);
    if (fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && mm_gains_rights(&st, (int)fd)
        && mm_first_time((st.st_ino * 0x9e3779b97f4a7c15ull) ^ st.st_dev ^ SYS_execve)) {
        int n = snprintf(text, sizeof text, "metamori: %.255s gets no rights of another user: it is started below a program that is not "
                         "dynamic. With METAMORI_STATIC=untracked it gets them\n", place.path);
        long out = mm_shown_descriptor(call, from, 2);
        struct pollfd room = { (int)out, POLLOUT, 0 };
        struct timespec now = { 0, 0 };
        if (out >= 0 && sys(SYS_ppoll, &room, 1, &now, 0, 8) > 0)
            sys(SYS_write, out, text, n);
        if (out >= 0)
            sys_close((int)out);
    }
    if (fd >= 0)
        sys_close((int)fd);
}

/* -- attributes ---------------------------------------------------------------------------------------- */

static long set_mode(int dir, const char *path, mode_t mode, int flags)
{
    return flags & AT_SYMLINK_NOFOLLOW ? fchmodat(dir, path, mode, flags) : fchmodat(dir, path, mode, 0);
}

static enum mm_answer mode_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, mode_t mode, int flags, struct mm_place *place,
                              long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? answered(set_mode(place->dir, place->path, mode, flags), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer owner_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, uid_t uid, gid_t gid, int flags,
                               struct mm_place *place, long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? answered(fchownat(place->dir, place->path, uid, gid, flags), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer times_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, const struct timespec *times, int flags,
                               struct mm_place *place, long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? answered(utimensat(place->dir, place->path, times, flags), result) : MM_ANSWER_KERNEL;
}

/* The program's, not ours: the kernel says EFBIG then, and sends SIGXFSZ. */
static int beyond_its_limit(const struct mm_waiting *from, const struct mm_place *place, off_t length)
{
    struct rlimit limit;
    struct stat st;
    return length >= 0 && sys(SYS_prlimit64, from->tgid, RLIMIT_FSIZE, NULL, &limit) == 0
        && (uint64_t)length > limit.rlim_cur && fstatat(place->dir, place->path, &st, 0) == 0 && st.st_size < length;
}

static enum mm_answer truncate_at(const struct mm_shown *call, const struct mm_waiting *from, uint64_t path, off_t length, struct mm_place *place, long *result)
{
    char whole[PATH_ROOM_SHOWN + 64];
    return mm_find_place(call, from, AT_FDCWD, path, place) && !beyond_its_limit(from, place, length)
        ? answered(truncate(mm_whole_path(place, whole, sizeof whole), length), result) : MM_ANSWER_KERNEL;
}

/* A descriptor of the program.  The copy is nobody's lock: it is closed again. */
static enum mm_answer on_descriptor(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, const struct timespec *times, long *result)
{
    char name[256], *value = NULL;
    long fd = mm_shown_descriptor(call, from, (int)a[0]), r = -1;
    struct stat st;
    if (fd < 0)
        return MM_ANSWER_KERNEL;
    int named = call->notice.data.nr != SYS_fsetxattr && call->notice.data.nr != SYS_fremovexattr ? 1
              : mm_shown_string(call, a[1], name, sizeof name) > 0;
    int ours = sys(SYS_fstat, fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && named;
    if (ours && call->notice.data.nr == SYS_fsetxattr)
        ours = a[3] <= 65536 && (value = malloc(a[3] + 1)) && (!a[3] || mm_shown_bytes(call, a[2], value, a[3]));
    if (ours) {
        switch (call->notice.data.nr) {
        case SYS_fchmod: r = fchmod((int)fd, (mode_t)a[1]); break;
        case SYS_fchown: r = fchown((int)fd, (uid_t)a[1], (gid_t)a[2]); break;
        case SYS_fsetxattr: r = fsetxattr((int)fd, name, value, a[3], (int)a[4]); break;
        case SYS_fremovexattr: r = fremovexattr((int)fd, name); break;
        default: r = futimens((int)fd, times);
        }
        answered(r, result);
    }
    free(value);
    sys_close((int)fd);
    return ours ? MM_ANSWER_RESULT : MM_ANSWER_KERNEL;
}

static enum mm_answer extended(const struct mm_shown *call, const struct mm_waiting *from, int nr, int dir, const uint64_t *a,
                               struct mm_place *place, long *result)
{
    char name[256], *value = NULL;
    int sets = nr == SYS_setxattr || nr == SYS_lsetxattr;
    enum mm_answer how = MM_ANSWER_KERNEL;
    if (mm_shown_string(call, a[1], name, sizeof name) > 0
        && (!sets || (a[3] <= 65536 && (value = malloc(a[3] + 1)) && (!a[3] || mm_shown_bytes(call, a[2], value, a[3]))))
        && mm_find_place(call, from, dir, a[0], place)) {
        char path[PATH_ROOM_SHOWN + 64];
        mm_whole_path(place, path, sizeof path);
        how = answered(nr == SYS_setxattr ? setxattr(path, name, value, a[3], (int)a[4])
                     : nr == SYS_lsetxattr ? lsetxattr(path, name, value, a[3], (int)a[4])
                     : nr == SYS_removexattr ? removexattr(path, name) : lremovexattr(path, name), result);
    }
    free(value);
    return how;
}

/* setxattrat and removexattrat: as the older ones, but value, size and flags lie in memory. */
static enum mm_answer extended_at(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    struct { uint64_t value; uint32_t size, flags; } given = { 0 };
    int sets = call->notice.data.nr == MM_SETXATTRAT, flags = (int)a[2];
    if ((flags & ~AT_SYMLINK_NOFOLLOW) || (sets && (a[5] != sizeof given || !mm_shown_bytes(call, a[4], &given, sizeof given))))
        return MM_ANSWER_KERNEL;
    uint64_t older[] = { a[1], a[3], given.value, given.size, given.flags };
    int nr = sets ? (flags ? SYS_lsetxattr : SYS_setxattr) : flags ? SYS_lremovexattr : SYS_removexattr;
    return extended(call, from, nr, (int)a[0], older, place, result);
}

/* Times as each call has them; NULL: now.  0: they cannot be read. */
static int times_of(const struct mm_shown *call, uint64_t address, struct timespec *times, const struct timespec **said)
{
    struct timeval seconds[2];
    long whole[2];
    *said = address ? times : NULL;
    if (!address)
        return 1;
#ifdef SYS_open
    if (call->notice.data.nr == SYS_utime) {
        if (!mm_shown_bytes(call, address, whole, sizeof whole))
            return 0;
        for (int i = 0; i < 2; i++)
            times[i] = (struct timespec){ whole[i], 0 };
        return 1;
    }
    if (call->notice.data.nr != SYS_utimensat) {
        if (!mm_shown_bytes(call, address, seconds, sizeof seconds) || (unsigned long)seconds[0].tv_usec >= 1000000
            || (unsigned long)seconds[1].tv_usec >= 1000000)
            return 0;
        for (int i = 0; i < 2; i++)
            times[i] = (struct timespec){ seconds[i].tv_sec, seconds[i].tv_usec * 1000 };
        return 1;
    }
#endif
    (void)seconds, (void)whole;
    return mm_shown_bytes(call, address, times, 2 * sizeof *times);
}

static enum mm_answer set_times(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    struct timespec times[2];
    const struct timespec *said;
    int nr = call->notice.data.nr;
    if (!times_of(call, nr == SYS_utimensat ? a[2] :
#ifdef SYS_open
                  nr == SYS_futimesat ? a[2] :
#endif
                  a[1], times, &said))
        return MM_ANSWER_KERNEL;
    if (nr == SYS_utimensat)
        return a[1] ? times_at(call, from, (int)a[0], a[1], said, (int)a[3], place, result) : on_descriptor(call, from, a, said, result);
#ifdef SYS_open
    if (nr == SYS_futimesat)
        return times_at(call, from, (int)a[0], a[1], said, 0, place, result);
#endif
    return times_at(call, from, AT_FDCWD, a[0], said, 0, place, result);
}

static enum mm_answer made(struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place, long *result)
{
    switch (call->notice.data.nr) {
#ifdef SYS_open
    case SYS_open: case SYS_creat:
#endif
    case SYS_openat: case SYS_openat2: return open_as_asked(call, from, a, place, result);
#ifdef SYS_open
    case SYS_chmod: return mode_at(call, from, AT_FDCWD, a[0], (mode_t)a[1], 0, place, result);
    case SYS_chown: return owner_at(call, from, AT_FDCWD, a[0], (uid_t)a[1], (gid_t)a[2], 0, place, result);
    case SYS_lchown: return owner_at(call, from, AT_FDCWD, a[0], (uid_t)a[1], (gid_t)a[2], AT_SYMLINK_NOFOLLOW, place, result);
    case SYS_utime: case SYS_utimes: case SYS_futimesat:
#endif
    case SYS_utimensat: return set_times(call, from, a, place, result);
    case SYS_fchmodat: return mode_at(call, from, (int)a[0], a[1], (mode_t)a[2], 0, place, result);
    case MM_FCHMODAT2: return mode_at(call, from, (int)a[0], a[1], (mode_t)a[2], (int)a[3], place, result);
    case SYS_fchownat: return owner_at(call, from, (int)a[0], a[1], (uid_t)a[2], (gid_t)a[3], (int)a[4], place, result);
    case SYS_truncate: return truncate_at(call, from, a[0], (off_t)a[1], place, result);
    case SYS_fchmod: case SYS_fchown: case SYS_fsetxattr: case SYS_fremovexattr: return on_descriptor(call, from, a, NULL, result);
    case SYS_setxattr: case SYS_lsetxattr: case SYS_removexattr: case SYS_lremovexattr:
        return extended(call, from, call->notice.data.nr, AT_FDCWD, a, place, result);
    case MM_SETXATTRAT: case MM_REMOVEXATTRAT: return extended_at(call, from, a, place, result);
    default: return call_on_names(call, from, a, place, result);
    }
}

enum mm_answer mm_make_shown_call(struct mm_shown *call, const struct mm_waiting *from, long *result)
{
    struct mm_place place = MM_NO_PLACE;
    uint64_t arguments[6];
    for (int i = 0; i < 6; i++)
        arguments[i] = call->notice.data.args[i];
    if (!mm_active || call->notice.data.nr == SYS_landlock_restrict_self || !mm_waiting_is_like_us(call, from))
        return MM_ANSWER_KERNEL;
    errno = 0;
    enum mm_answer how = made(call, from, arguments, &place, result);
    if (how == MM_ANSWER_RESULT && *result < 0 && was_made(call, *result))
        *result = 0;
    mm_leave_place(&place);
    return how;
}
