/* proxy_attributes.c - calls of another program that change attributes, made here (proxy_calls.c). */
#include "start/proxy.h"
#include "process/call_filter.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/xattr.h>

static long set_mode(int dir, const char *path, mode_t mode, int flags)
{
    return flags & AT_SYMLINK_NOFOLLOW ? fchmodat(dir, path, mode, flags) : fchmodat(dir, path, mode, 0);
}

static enum mm_answer mode_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, mode_t mode, int flags, struct mm_place *place,
                              long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? mm_answered(set_mode(place->dir, place->path, mode, flags), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer owner_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, uid_t uid, gid_t gid, int flags,
                               struct mm_place *place, long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? mm_answered(fchownat(place->dir, place->path, uid, gid, flags), result) : MM_ANSWER_KERNEL;
}

static enum mm_answer times_at(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t path, const struct timespec *times, int flags,
                               struct mm_place *place, long *result)
{
    return !(flags & ~AT_SYMLINK_NOFOLLOW) && mm_find_place(call, from, dir, path, place)
        ? mm_answered(utimensat(place->dir, place->path, times, flags), result) : MM_ANSWER_KERNEL;
}

/* The program's, not ours: the kernel says EFBIG then, and sends SIGXFSZ. */
static int beyond_its_limit(const struct mm_waiting *from, const struct mm_place *place, off_t length)
{
    struct rlimit limit;
    struct stat st;
    return length >= 0 && sys(SYS_prlimit64, from->tgid, RLIMIT_FSIZE, NULL, &limit) == 0
        && (uint64_t)length > limit.rlim_cur && fstatat(place->dir, place->path, &st, 0) == 0 && st.st_size < length;
}

/* Of a file without a name the store can have but a copy, which is cut; the program sees the file itself. */
static int truncate_both(const char *path, off_t length)
{
    struct stat st;
    int r = truncate(path, length);
    if (r < 0 || sys(SYS_newfstatat, AT_FDCWD, path, &st, 0) < 0 || st.st_nlink)
        return r;
    long done = sys(SYS_truncate, path, length);
    errno = (int)-done;
    return done < 0 ? -1 : 0;
}

static enum mm_answer truncate_at(const struct mm_shown *call, const struct mm_waiting *from, uint64_t path, off_t length, struct mm_place *place, long *result)
{
    char whole[PATH_ROOM_SHOWN + 64];
    return mm_find_place(call, from, AT_FDCWD, path, place) && !beyond_its_limit(from, place, length)
        ? mm_answered(truncate_both(mm_whole_path(place, whole, sizeof whole), length), result) : MM_ANSWER_KERNEL;
}

/* With AT_EMPTY_PATH, by its descriptor. */
static int means_descriptor(const struct mm_shown *call, uint64_t path, int flags)
{
    char one[2];
    return (flags & AT_EMPTY_PATH) && (!path || mm_shown_string(call, path, one, sizeof one) == 0);
}

/* A descriptor of the program.  The copy is nobody's lock: it is closed again. */
static enum mm_answer on_descriptor(const struct mm_shown *call, const struct mm_waiting *from, int nr, const uint64_t *a, const struct timespec *times,
                                    long *result)
{
    char name[256], *value = NULL;
    long fd = mm_shown_descriptor(call, from, (int)a[0]), r = -1;
    struct stat st;
    if (fd < 0)
        return MM_ANSWER_KERNEL;
    int named = nr != SYS_fsetxattr && nr != SYS_fremovexattr ? 1
              : mm_shown_string(call, a[1], name, sizeof name) > 0;
    int ours = sys(SYS_fstat, fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) && named;
    if (ours && nr == SYS_fsetxattr)
        ours = a[3] <= 65536 && (value = malloc(a[3] + 1)) && (!a[3] || mm_shown_bytes(call, a[2], value, a[3]));
    if (ours) {
        switch (nr) {
        case SYS_fchmod: r = fchmod((int)fd, (mode_t)a[1]); break;
        case SYS_fchown: r = fchown((int)fd, (uid_t)a[1], (gid_t)a[2]); break;
        case SYS_fsetxattr: r = fsetxattr((int)fd, name, value, a[3], (int)a[4]); break;
        case SYS_fremovexattr: r = fremovexattr((int)fd, name); break;
        case MM_FCHMODAT2: r = syscall(MM_FCHMODAT2, fd, "", a[2], AT_EMPTY_PATH); break;
        case SYS_fchownat: r = fchownat((int)fd, "", (uid_t)a[2], (gid_t)a[3], AT_EMPTY_PATH); break;
        default: r = a[1] ? utimensat((int)fd, "", times, AT_EMPTY_PATH) : futimens((int)fd, times);
        }
        mm_answered(r, result);
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
        how = mm_answered(nr == SYS_setxattr ? setxattr(path, name, value, a[3], (int)a[4])
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
    int sets = call->notice.data.nr == MM_SETXATTRAT, flags = (int)a[2], open = means_descriptor(call, a[1], flags);
    if ((!open && flags & ~AT_SYMLINK_NOFOLLOW) || (sets && (a[5] != sizeof given || !mm_shown_bytes(call, a[4], &given, sizeof given))))
        return MM_ANSWER_KERNEL;
    uint64_t older[] = { open ? a[0] : a[1], a[3], given.value, given.size, given.flags };
    if (open)
        return on_descriptor(call, from, sets ? SYS_fsetxattr : SYS_fremovexattr, older, NULL, result);
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
    if (nr == SYS_utimensat && !a[1] && a[3])
        return MM_ANSWER_KERNEL;       /* flags are for names */
    if (nr == SYS_utimensat && (!a[1] || means_descriptor(call, a[1], (int)a[3])))
        return on_descriptor(call, from, nr, a, said, result);
    if (nr == SYS_utimensat)
        return times_at(call, from, (int)a[0], a[1], said, (int)a[3], place, result);
#ifdef SYS_open
    if (nr == SYS_futimesat && !a[1])
        return on_descriptor(call, from, nr, a, said, result);
    if (nr == SYS_futimesat)
        return times_at(call, from, (int)a[0], a[1], said, 0, place, result);
#endif
    return times_at(call, from, AT_FDCWD, a[0], said, 0, place, result);
}

enum mm_answer mm_shown_attributes(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *a, struct mm_place *place,
                                   long *result)
{
    int nr = call->notice.data.nr;
    switch (nr) {
#ifdef SYS_open
    case SYS_chmod: return mode_at(call, from, AT_FDCWD, a[0], (mode_t)a[1], 0, place, result);
    case SYS_chown: return owner_at(call, from, AT_FDCWD, a[0], (uid_t)a[1], (gid_t)a[2], 0, place, result);
    case SYS_lchown: return owner_at(call, from, AT_FDCWD, a[0], (uid_t)a[1], (gid_t)a[2], AT_SYMLINK_NOFOLLOW, place, result);
    case SYS_utime: case SYS_utimes: case SYS_futimesat:
#endif
    case SYS_utimensat: return set_times(call, from, a, place, result);
    case SYS_fchmodat: return mode_at(call, from, (int)a[0], a[1], (mode_t)a[2], 0, place, result);
    case MM_FCHMODAT2:
        return means_descriptor(call, a[1], (int)a[3]) ? on_descriptor(call, from, nr, a, NULL, result)
             : mode_at(call, from, (int)a[0], a[1], (mode_t)a[2], (int)a[3], place, result);
    case SYS_fchownat:
        return means_descriptor(call, a[1], (int)a[4]) ? on_descriptor(call, from, nr, a, NULL, result)
             : owner_at(call, from, (int)a[0], a[1], (uid_t)a[2], (gid_t)a[3], (int)a[4], place, result);
    case SYS_truncate: return truncate_at(call, from, a[0], (off_t)a[1], place, result);
    case SYS_fchmod: case SYS_fchown: case SYS_fsetxattr: case SYS_fremovexattr: return on_descriptor(call, from, nr, a, NULL, result);
    case SYS_setxattr: case SYS_lsetxattr: case SYS_removexattr: case SYS_lremovexattr:
        return extended(call, from, nr, AT_FDCWD, a, place, result);
    default: return extended_at(call, from, a, place, result);
    }
}
