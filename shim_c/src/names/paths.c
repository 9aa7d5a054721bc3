/* paths.c - the absolute path that a call means, and whether what lies there is tracked. */
#include "names/names.h"

#include <linux/openat2.h>
#include <stdlib.h>

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

int mm_tracked(const char *path)
{
    if (path[0] != '/' || mm_below(path, mm_area->store) || (UNLIKELY(mm_elsewhere) && mm_leads_elsewhere(path)))
        return 0;
    if (UNLIKELY(mm_area->head->flags & MM_GONE))
        return 0;
    for (struct ignored *i = __atomic_load_n(&ignored, __ATOMIC_ACQUIRE); UNLIKELY(i != NULL); i = i->next)
        if (mm_below(path, i->path))
            return 0;
    return mm_in_scope(mm_area, path);
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

/* Is this a path of the open file? */
int mm_leads_to(const char *path, int fd)
{
    struct stat a, b;
    return sys(SYS_fstat, fd, &a) == 0 && sys(SYS_newfstatat, AT_FDCWD, path, &b, AT_SYMLINK_NOFOLLOW) == 0
        && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The path of an open file, if it still has that name. */
int mm_path_of(int fd, char *out, size_t room)
{
    int e = path_of_fd(fd, out, room);
    return e == 0 && mm_leads_to(out, fd) ? 0 : -ENOENT;
}

static int canonical_whole(int dir, const char *path, char *out, size_t room)
{
    long fd = mm_open_spare(dir, path, O_PATH, 0);
    if (fd < 0)
        return (int)fd;
    MM_STOP("paths.found");
    int e = path_of_fd((int)fd, out, room);
    mm_close_spare((int)fd);
    return e;
}

void mm_said_too_long(void)
{
    if (mm_first_time(7))
        mm_say("files with a path longer than 4095 bytes are not tracked");
}

/* The folder part of a path, which ends in a slash. */
static int canonical_folder(int dir, const char *folder, char *out, size_t room)
{
    SCRATCH(text);
    uint32_t ways = mm_ways();
    if (LIKELY(mm_known_folder(dir, folder, text, out)))
        return 0;
    long fd = mm_open_spare(dir, folder, O_PATH, 0);
    if (fd < 0)
        return (int)fd;
    MM_STOP("paths.found");
    int e = path_of_fd((int)fd, out, room);
    if (e == 0 && strcmp(out, text) == 0)
        mm_folder_is_known(text, (int)fd, ways);
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

/* Where a path's last name begins, and its length; 0 where it is none of its own: the folder itself, one above, or a slash. */
static size_t last_name(const char *path, size_t n, size_t *length)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t base = n;
    while (base > 0 && path[base - 1] != '/')
        base--;
    *length = n - base;
    if (path[base] == '.' && (*length == 1 || (*length == 2 && path[base + 1] == '.')))
        *length = 0;
    return base;
}

/* No call gives or takes what ends in "." or "..", or the root. */
int mm_has_last_name(const char *path)
{
    size_t n = length_of(path, 4096), length = 1;
    if (n)
        last_name(path, n, &length);
    return length != 0;
}

/* A name behind the folder that is in out already. */
static int with_name(char *out, size_t room, const char *name, size_t length)
{
    size_t at = strlen(out);
    if (at == 1)
        at = 0;
    if (at + length + 2 > room)
        return -ENAMETOOLONG;
    out[at] = '/';
    memcpy(out + at + 1, name, length);
    out[at + 1 + length] = 0;
    return 0;
}

/* Absolute, the folder part without symbolic links; the last component as it is, existing or not. */
int mm_canonical(int dir, const char *path, char *out, size_t room)
{
    SCRATCH(folder);
    size_t n = length_of(path, 4096), length;
    if (n == 0)
        return -ENOENT;
    size_t base = last_name(path, n, &length);
    if (length == 0)
        return canonical_whole(dir, path, out, room);
    memcpy(folder, path, base);
    folder[base] = 0;
    int e = base == 0 && dir == AT_FDCWD ? mm_present_folder(out, room)
          : base == 0 ? path_of_fd(dir, out, room) : canonical_folder(dir, folder, out, room);
    if (UNLIKELY(e == -ENOENT && base == 0 && dir == AT_FDCWD))
        e = canonical_whole(AT_FDCWD, ".", out, room);
    return e ? e : with_name(out, room, path + base, length);
}

/* The same of a name in the folder of another one, which was just found to be `known`: nobody is asked where that is once more.
 * 0: as far as the words say it may be in another one. */
int mm_canonical_beside(int dir, const char *path, int known_dir, const char *known_path, const char *known, char *out, size_t room)
{
    size_t n = length_of(path, 4096), m = length_of(known_path, 4096), length, known_length;
    if (n == 0 || m == 0 || dir != known_dir)
        return 0;
    size_t base = last_name(path, n, &length), same = last_name(known_path, m, &known_length);
    if (base != same || length == 0 || known_length == 0 || memcmp(path, known_path, base) != 0)
        return 0;
    size_t folder = (size_t)(strrchr(known, '/') + 1 - known);
    memcpy(out, known, folder);
    out[folder - (folder > 1)] = 0;
    return with_name(out, room, path + base, length) == 0;
}

/* As mm_canonical, but through symbolic links at the end too.  What stands at the end is never asked for its own path: it may
 * be renamed meanwhile, and the name that a call uses is the one that has to be held. */
int mm_canonical_follow(int dir, const char *path, char *out, size_t room)
{
    SCRATCH(target);
    size_t n = length_of(path, 4096);
    if (n == 0)
        return -ENOENT;
    if (path[n - 1] == '/')            /* a folder */
        return canonical_whole(dir, path, out, room);
    int e = mm_canonical(dir, path, out, room);
    for (int links = 0; e == 0; links++) {
        if (mm_below(out, "/proc"))    /* links there lead to what no path may lead to */
            return canonical_whole(dir, path, out, room);
        size_t folder = (size_t)(strrchr(out, '/') + 1 - out);
        memcpy(target, out, folder);
        long length = links ? sys_readlink(out, target + folder, SCRATCH_BYTES - folder - 1)
                            : sys(SYS_readlinkat, dir, path, target + folder, SCRATCH_BYTES - folder - 1);
        if (length < 0)
            return length == -EINVAL ? 0 : (int)length;
        if (links == 40)
            return -ELOOP;
        target[folder + length] = 0;
        size_t begins = target[folder] == '/' ? folder : 0;
        if (UNLIKELY(folder + length - begins > 4095))
            return canonical_whole(dir, path, out, room);      /* no call takes a path of that length */
        e = mm_canonical(AT_FDCWD, target + begins, out, room);
    }
    return e;
}

/* openat2 with RESOLVE_IN_ROOT: "/" and ".." end at dir; the kernel says which folder it is, or that there is none. */
int mm_canonical_in_root(int dir, const char *path, uint64_t resolve, char *out, size_t room)
{
    const char *last = strrchr(path, '/');
    if (!last || last - path >= 4095)
        return mm_canonical(dir, path, out, room);
    SCRATCH(in);
    struct open_how look = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = resolve & ~(uint64_t)RESOLVE_CACHED };
    char link[48];
    memcpy(in, path, last - path + 1);
    in[last - path + 1] = 0;
    long fd = -EAGAIN;
    for (int tries = 0; fd == -EAGAIN && tries < 1000; tries++)        /* ".." is not looked up while anything is renamed */
        fd = sys(SYS_openat2, dir, in, &look, sizeof look);
    if (fd < 0)
        return (int)fd;
    snprintf(link, sizeof link, "/proc/thread-self/fd/%ld", fd);
    long n = sys_readlink(link, in, 4095);
    sys_close((int)fd);
    if (n < 0 || n + strlen(last) > 4095)
        return n < 0 ? (int)n : -ENAMETOOLONG;
    strcpy(in + n, last);
    return mm_canonical(AT_FDCWD, in, out, room);
}

/* The program's own, to read by, of a file that it has locked, or -1: to open another, and close it, would drop the locks. */
int mm_locked_at(int dir, const char *path, int flags)
{
    struct stat st;
    if (LIKELY(!mm_any_locked) || sys(SYS_newfstatat, dir, path, &st, flags) < 0)
        return -1;
    for (int fd = 0; fd <= mm_top_fd; fd++) {
        const struct mm_fit *f = mm_fds[fd].fit ? mm_fit_at(mm_area, mm_fds[fd].fit) : NULL;
        if (f && f->ino == st.st_ino && f->dev == st.st_dev && !(f->attributes & O_WRONLY))
            return fd;
    }
    return -1;
}
