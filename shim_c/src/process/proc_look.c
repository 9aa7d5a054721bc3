/* proc_look.c - all that a checkpoint must know of a process that /proc says, read in one pass while it stands still.
 *
 * Only read: whoever asks takes it apart when the process runs again.
 */
#define _GNU_SOURCE
#include "process/proc_look.h"
#include "area/area_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_ROOM 4096
#define RLIMITS 16

struct out { char *at, *end; long error; };

struct entries { char text[4096]; long length, at; };

static int open_in(int folder, const char *name, int flags)
{
    return (int)sys_openat(folder, name, O_RDONLY | O_CLOEXEC | flags, 0);
}

/* Bytes that were read; out->error: there was no room, or the process is gone. */
static uint32_t append_file(struct out *out, int folder, const char *name)
{
    char *start = out->at;
    long n = 1, fd = out->error ? -1 : open_in(folder, name, 0);
    if (fd < 0) {
        out->error = out->error ? out->error : fd;
        return 0;
    }
    while (n > 0 && out->at < out->end)
        if ((n = sys(SYS_read, fd, out->at, out->end - out->at)) > 0)
            out->at += n;
    sys_close((int)fd);
    out->error = n < 0 ? n : n > 0 ? -ENOSPC : 0;
    return (uint32_t)(out->at - start);
}

static uint32_t append_link(struct out *out, int folder, const char *name)
{
    long n = out->error ? 0 : out->end - out->at < PATH_ROOM ? -ENOSPC : sys(SYS_readlinkat, folder, name, out->at, PATH_ROOM);
    if (n < 0)
        out->error = n;
    out->at += n > 0 ? n : 0;
    return n > 0 ? (uint32_t)n : 0;
}

/* Room for what tells of what follows. */
static void *append_room(struct out *out, uint64_t n)
{
    if (!out->error && (uint64_t)(out->end - out->at) < n)
        out->error = -ENOSPC;
    if (out->error)
        return NULL;
    out->at += n;
    return out->at - n;
}

static void append_text(struct out *out, uint32_t (*append)(struct out *, int, const char *), int folder, const char *name)
{
    uint32_t n;
    void *length = append_room(out, sizeof n);
    n = append(out, folder, name);
    if (length)
        memcpy(length, &n, sizeof n);
}

/* The next name that is a number; NULL: there is none, or *error says why nobody can tell. */
static const char *next_number(int folder, struct entries *e, long *error)
{
    for (;;) {
        if (e->at >= e->length) {
            e->at = 0;
            e->length = sys(SYS_getdents64, folder, e->text, sizeof e->text);
            if (e->length < 0)
                *error = e->length;
            if (e->length <= 0)
                return NULL;
        }
        const char *name = e->text + e->at + 19;
        e->at += *(unsigned short *)(e->text + e->at + 16);
        if (name[0] >= '0' && name[0] <= '9')
            return name;
    }
}

/* Of every thread. */
static uint32_t append_children(struct out *out, int process, const char *folder)
{
    struct entries e = { .length = 0 };
    char *start = out->at, name[64];
    int tasks = out->error ? -1 : open_in(process, folder, O_DIRECTORY);
    if (tasks < 0 && !out->error)
        out->error = tasks;
    for (const char *number; !out->error && (number = next_number(tasks, &e, &out->error));) {
        strcpy(stpcpy(name, number), "/children");
        append_file(out, tasks, name);
        if (out->error == -ENOENT || out->error == -ESRCH)         /* a thread that has just ended */
            out->error = 0;
    }
    if (tasks >= 0)
        sys_close(tasks);
    return (uint32_t)(out->at - start);
}

static void append_limits(struct out *out, uint32_t pid)
{
    struct { uint64_t soft, hard; } limit[RLIMITS];
    uint32_t n = sizeof limit;
    for (int i = 0; i < RLIMITS && !out->error; i++)
        out->error = sys(SYS_prlimit64, pid, i, 0, &limit[i]);
    void *room = append_room(out, sizeof n + n);
    if (room)
        memcpy(mempcpy(room, &n, sizeof n), limit, n);
}

/* but: ended by -1, if by nothing else */
static int is_of(const int32_t *but, int32_t fd)
{
    for (unsigned i = 0; i < sizeof ((struct mm_memory *)0)->own / sizeof *but && but[i] >= 0; i++)
        if (but[i] == fd)
            return 1;
    return 0;
}

static void append_descriptor(struct out *out, int links, int infos, const char *number, const int32_t *but)
{
    struct stat st;
    struct mm_seen_fd it = { 0 };
    for (const char *digit = number; *digit; digit++)
        it.fd = it.fd * 10 + *digit - '0';
    if (is_of(but, it.fd))
        return;
    void *room = append_room(out, sizeof it);
    long r = out->error ? out->error : sys(SYS_newfstatat, links, number, &st, 0);
    it.path_length = append_link(out, links, number);
    it.info_length = append_file(out, infos, number);
    out->error = out->error ? out->error : r;
    if (out->error)
        return;
    it.mode = st.st_mode;
    it.dev = st.st_dev, it.ino = st.st_ino, it.size = (uint64_t)st.st_size, it.nlink = st.st_nlink, it.rdev = st.st_rdev;
    it.block = (uint64_t)st.st_blksize;
    memcpy(room, &it, sizeof it);
}

static void append_descriptors(struct out *out, int process, const int32_t *but)
{
    struct entries e = { .length = 0 };
    int links = out->error ? -1 : open_in(process, "fd", O_DIRECTORY), infos = links < 0 ? -1 : open_in(process, "fdinfo", O_DIRECTORY);
    if (infos < 0 && !out->error)
        out->error = links < 0 ? links : infos;
    for (const char *number; !out->error && (number = next_number(links, &e, &out->error));)
        append_descriptor(out, links, infos, number, but);
    if (infos >= 0)
        sys_close(infos);
    if (links >= 0)
        sys_close(links);
}

/* Whether it has a handler for a signal. */
int mm_proc_catches(uint32_t pid, int number)
{
    char path[40] = "/proc/", text[1 << 16];       /* a user's groups stand before */
    strcpy(mm_digits(path + 6, pid), "/status");
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? fd : sys(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    const char *caught = strstr(text, "\nSigCgt:\t");
    return caught && strtoull(caught + strlen("\nSigCgt:\t"), NULL, 16) >> (number - 1) & 1;
}

/* but: descriptors that are not told, ended by -1.  Bytes in out, -ENOSPC: it was too small, or -errno. */
long mm_proc_look(uint32_t pid, const int32_t *but, char *out_, uint64_t size)
{
    static const char *const files[] = { "stat", "status" }, *const texts[] = { "maps", "cmdline", "environ" };
    char path[40] = "/proc/";
    struct out out = { out_, out_ + size, 0 };
    mm_digits(path + 6, pid);
    int process = open_in(AT_FDCWD, path, O_DIRECTORY);
    if (process < 0)
        return process;
    for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++)
        append_text(&out, append_file, process, files[i]);
    append_text(&out, append_children, process, "task");
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
        append_text(&out, append_file, process, texts[i]);
    append_limits(&out, pid);
    append_text(&out, append_link, process, "exe");
    append_text(&out, append_link, process, "cwd");
    append_descriptors(&out, process, but);
    sys_close(process);
    return out.error ? out.error : out.at - out_;
}
