/* proc_look.c - all that a checkpoint must know of a process that /proc says, read in one pass while it stands still.
 *
 * Only read: whoever asks takes it apart when the process runs again.
 */
#define _GNU_SOURCE
#include "process/proc_look.h"
#include "area/area_internal.h"

#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define PATH_ROOM 4096
#define RLIMITS 16
#define USUAL_ROOM (1u << 16)          /* for what is said of a process: no more than malloc takes without asking the kernel */

struct out { char *at, *end; long error; };

struct entries { char text[4096]; long length, at; };

static int open_in(int folder, const char *name, int flags)
{
    return (int)sys_openat(folder, name, O_RDONLY | O_CLOEXEC | flags, 0);
}

/* Bytes that were read; out->error: there was no room, or the process is gone.  at_once: the kernel says all that it has to say in one
 * read, if there is room. */
static uint32_t append_file(struct out *out, int folder, const char *name, int at_once)
{
    char *start = out->at;
    long n = 1, fd = out->error ? -1 : open_in(folder, name, 0);
    if (fd < 0) {
        out->error = out->error ? out->error : fd;
        return 0;
    }
    while (n > 0 && out->at < out->end) {
        if ((n = sys(SYS_read, fd, out->at, out->end - out->at)) > 0)
            out->at += n;
        if (at_once && out->at < out->end)
            n = n < 0 ? n : 0;
    }
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
        append_file(out, tasks, name, 0);
        if (out->error == -ENOENT || out->error == -ESRCH)         /* a thread that has just ended */
            out->error = 0;
    }
    if (tasks >= 0)
        sys_close(tasks);
    return (uint32_t)(out->at - start);
}

/* Its group and its session, for a tenth of what /proc/PID/stat takes. */
static uint32_t append_groups(struct out *out, uint32_t pid)
{
    const long number[] = { sys(SYS_getpgid, pid), sys(SYS_getsid, pid) };
    void *room = append_room(out, sizeof number);
    if (room)
        memcpy(room, number, sizeof number);
    out->error = out->error ? out->error : number[0] < 0 ? number[0] : number[1] < 0 ? number[1] : 0;
    return sizeof number;
}

/* Those that this kernel has, one behind the other: whoever has the same text is in the same places. */
static uint32_t append_places(struct out *out, int process)
{
    static const char *const place[] = { "root", "ns/mnt", "ns/user", "ns/net", "ns/ipc" };
    char *start = out->at;
    for (unsigned i = 0; i < sizeof place / sizeof *place && !out->error; i++) {
        append_link(out, process, place[i]);
        if (out->error == -ENOENT && i)
            out->error = 0;
    }
    return (uint32_t)(out->at - start);
}

static uint32_t append_limits(struct out *out, uint32_t pid)
{
    struct { uint64_t soft, hard; } limit[RLIMITS];
    for (int i = 0; i < RLIMITS && !out->error; i++)
        out->error = sys(SYS_prlimit64, pid, i, 0, &limit[i]);
    void *room = append_room(out, sizeof limit);
    if (room)
        memcpy(room, limit, sizeof limit);
    return sizeof limit;
}

/* but: ended by -1, if by nothing else */
static int is_of(const int32_t *but, int32_t fd)
{
    for (unsigned i = 0; i < sizeof ((struct mm_memory *)0)->own / sizeof *but && but[i] >= 0; i++)
        if (but[i] == fd)
            return 1;
    return 0;
}

/* Of all pipes.  mount -1: this kernel does not say enough. */
static struct { uint64_t device; int64_t mount; } of_pipes;

/* mount, ino: -1 where this kernel does not say it (before 5.14) */
struct info { uint64_t flags; int64_t position, mount, ino; };

static int64_t number_after(const char *name, const char *text)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

/* As much as the kernel says of every descriptor: that comes first. */
static struct info taken_apart(const char *text, uint32_t length)
{
    char start[128] = "", *flags;
    struct info info = { 0, 0, -1, -1 };
    memcpy(start, text, length < sizeof start ? length : sizeof start - 1);
    if (!memcmp(start, "pos:\t", 5)) {
        info.position = strtoll(start + 5, &flags, 10);
        info.flags = strtoull(flags + sizeof "\nflags:\t" - 1, NULL, 8);
        info.mount = number_after("\nmnt_id:\t", flags);
        info.ino = number_after("\nino:\t", flags);
    }
    return info;
}

static void know_pipes(void)
{
    char path[48] = "/proc/self/fdinfo/", text[128];
    struct stat st;
    int end[2];
    if (__atomic_load_n(&of_pipes.mount, __ATOMIC_RELAXED) || sys(SYS_pipe2, end, O_CLOEXEC) != 0)
        return;
    mm_digits(path + sizeof "/proc/self/fdinfo/" - 1, (uint32_t)end[0]);
    int fd = open_in(AT_FDCWD, path, 0);
    long n = fd < 0 ? 0 : sys(SYS_read, fd, text, sizeof text);
    struct info info = taken_apart(text, n > 0 ? (uint32_t)n : 0);
    if (fd >= 0)
        sys_close(fd);
    int said = sys(SYS_fstat, end[0], &st) == 0 && info.mount > 0 && (uint64_t)info.ino == st.st_ino;
    of_pipes.device = said ? st.st_dev : 0;
    __atomic_store_n(&of_pipes.mount, said ? info.mount : -1, __ATOMIC_RELEASE);
    sys_close(end[0]);
    sys_close(end[1]);
}

/* What it is said to be in says all that the kernel would say of a pipe: no need to ask. */
static int is_known_pipe(const struct info *info, struct stat *st)
{
    if (info->mount <= 0 || info->ino < 0 || info->mount != __atomic_load_n(&of_pipes.mount, __ATOMIC_ACQUIRE))
        return 0;
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFIFO | 0600, st->st_nlink = 1, st->st_blksize = 4096, st->st_dev = of_pipes.device;
    st->st_ino = (ino_t)info->ino;
    return 1;
}

static uint32_t append_pipe_name(struct out *out, uint64_t ino)
{
    char name[40] = "pipe:[", *end = mm_digits(name + 6, ino);
    *end++ = ']';
    char *room = append_room(out, (uint64_t)(end - name));
    if (room)
        memcpy(room, name, (size_t)(end - name));
    return (uint32_t)(end - name);
}

/* What a pipe can hold whose reading end this is, if it is empty; else 0: whoever wants to know what is in it asks again. */
static long room_of_empty(int process, const char *link)
{
    int count = 1;
    long size = 0, fd = sys_openat(process, link, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    if (sys(SYS_ioctl, fd, FIONREAD, &count) == 0 && !count)
        size = sys(SYS_fcntl, fd, F_GETPIPE_SZ);
    sys_close((int)fd);
    return size > 0 ? size : 0;
}

static void append_descriptor(struct out *out, int process, int infos, const char *number, const int32_t *but)
{
    struct stat st;
    struct mm_seen_fd it = { 0 };
    char link[32];
    for (const char *digit = number; *digit; digit++)
        it.fd = it.fd * 10 + *digit - '0';
    if (is_of(but, it.fd))
        return;
    strcpy(stpcpy(link, "fd/"), number);
    void *room = append_room(out, sizeof it);
    it.info_length = append_file(out, infos, number, 1);
    struct info info = taken_apart(out->at - it.info_length, it.info_length);
    it.position = info.position, it.flags = info.flags;
    if (is_known_pipe(&info, &st)) {
        out->at -= it.info_length;         /* nothing more is in it */
        it.info_length = 0;
        it.path_length = append_pipe_name(out, st.st_ino);
        if (it.fd > 2 && (it.flags & O_ACCMODE) == O_RDONLY)
            st.st_size = room_of_empty(process, link);
    } else {
        it.path_length = append_link(out, process, link);
        if (!out->error)
            out->error = sys(SYS_newfstatat, process, link, &st, 0);
    }
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
    int infos = out->error ? -1 : open_in(process, "fdinfo", O_DIRECTORY);
    if (infos < 0 && !out->error)
        out->error = infos;
    for (const char *number; !out->error && (number = next_number(infos, &e, &out->error));)
        append_descriptor(out, process, infos, number, but);
    if (infos >= 0)
        sys_close(infos);
}

/* 0: there is none. */
static uint64_t status_word(const char *text, const char *name, int base)
{
    const char *found = strstr(text, name);
    return found ? strtoull(found + strlen(name), NULL, base) : 0;
}

struct mm_proc_does mm_proc_does(uint32_t pid)
{
    char path[40] = "/proc/", text[1 << 16];       /* a user's groups stand before */
    strcpy(mm_digits(path + 6, pid), "/status");
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? fd : sys(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    const char *state = strstr(text, "\nState:\t");
    return (struct mm_proc_does){ state ? (unsigned char)state[sizeof "\nState:\t" - 1] : 0,
                                  (uint32_t)status_word(text, "\nTracerPid:\t", 10), status_word(text, "\nSigCgt:\t", 16) };
}

/* Whether no program is behind one of the numbers any more: it has ended, or its first thread has.  For a third of what a state takes. */
int mm_proc_ended(const uint32_t *pids, uint32_t count)
{
    char path[40] = "/proc/", one;
    for (uint32_t i = 0; i < count; i++) {
        strcpy(mm_digits(path + 6, pids[i]), "/exe");
        long r = sys(SYS_readlinkat, AT_FDCWD, path, &one, 1);
        if (r == -ENOENT || r == -ESRCH)
            return 1;
    }
    return 0;
}

/* The same of processes that are held, for half of that: in one that has not begun to end what the library has open is open. */
int mm_held_ended(struct mm_area *a, const uint32_t *processes, const uint32_t *pids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct mm_memory *m = mm_memory_of(a, processes[i]);
        if ((!m || m->own[0] < 0 || sys(SYS_kcmp, pids[i], pids[i], KCMP_FILE, m->own[0], m->own[0])) && mm_proc_ended(&pids[i], 1))
            return 1;
    }
    return 0;
}

/* Of two processes that have the same mapped, as /proc/PID/maps says it; the same names mean the same files under one root only. */
uint64_t mm_maps_key(const char *text, uint64_t length)
{
    struct stat root;
    uint64_t key = 14695981039346656037ul, word = 0;
    if (sys(SYS_newfstatat, AT_FDCWD, "/", &root, 0) < 0)
        return 0;
    const uint64_t first[] = { root.st_dev, root.st_ino, length };
    for (unsigned i = 0; i < 3; i++)
        key = (key ^ first[i]) * 1099511628211ul, key ^= key >> 29;
    for (uint64_t i = 0; i < length; i += sizeof word) {
        if (length - i >= sizeof word)
            __builtin_memcpy(&word, text + i, sizeof word);
        else
            for (word = 0; i < length; i++)
                word = word << 8 | (unsigned char)text[i];
        key = (key ^ word) * 0x9e3779b97f4a7c15ul, key ^= key >> 29;
    }
    return key | 1;
}

/* Its memory says which descriptors are not told, and what is known.  Bytes in out, -ENOSPC: it was too small, or -errno. */
static long look_at(struct mm_proc_view *it, int part, int reads_maps, char *out_, uint64_t size)
{
    const struct mm_memory *m = it->memory;
    uint32_t pid = it->pid;
    char path[40] = "/proc/";
    struct out out = { out_, out_ + size, 0 };
    mm_digits(path + 6, pid);
    int process = open_in(AT_FDCWD, path, O_DIRECTORY);
    if (process < 0)
        return process;
    int known = m->come_from || m->same_program;   /* how it was started */
    uint32_t length[MM_SEEN_REST], n = 0, texts = (part ? MM_SEEN_REST : MM_SEEN_TEXTS) * sizeof *length;
    void *lengths = append_room(&out, texts);
    if (part) {
        const char *maps = out.at;
        length[n++] = reads_maps ? append_file(&out, process, "maps", 0) : 0;
        it->as_held = reads_maps && m->maps_key && mm_maps_key(maps, length[0]) == m->maps_key;
        length[n++] = known ? 0 : append_file(&out, process, "cmdline", 0);
        length[n++] = known ? 0 : append_file(&out, process, "environ", 0);
        length[n++] = append_limits(&out, pid);
        length[n++] = append_link(&out, process, "exe");
        length[n++] = append_link(&out, process, "cwd");
        length[n++] = append_groups(&out, pid);
        length[n++] = append_places(&out, process);
        length[n++] = append_file(&out, process, "status", 1);
    } else {
        length[n++] = m->childless ? 0 : append_children(&out, process, "task");
        append_descriptors(&out, process, m->own);
    }
    if (lengths)
        memcpy(lengths, length, texts);
    sys_close(process);
    return out.error ? out.error : out.at - out_;
}

/* What nobody has looked at of all, part after part, at most so many: the kernel takes the time, and two threads share it.  0: there
 * was nothing. */
int mm_proc_looks(struct mm_proc_view *seen, uint32_t count, uint32_t *next, uint32_t most)
{
    uint64_t room = USUAL_ROOM;
    char *text = malloc(room);
    uint32_t looked = 0;
    know_pipes();
    for (uint32_t i; looked < most && (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < MM_SEEN_PARTS * count; looked++) {
        struct mm_proc_view *it = &seen[i % count];
        int part = i >= count;
        long n = text ? look_at(it, part, it->like == i % count, text, room) : -ENOMEM;
        while (n == -ENOSPC) {
            free(text);
            text = malloc(room *= 4);
            n = text ? look_at(it, part, it->like == i % count, text, room) : -ENOMEM;
        }
        if (n > 0 && (it->text[part] = malloc((size_t)n)))
            memcpy(it->text[part], text, (size_t)n);
        __atomic_store_n(&it->length[part], n > 0 && !it->text[part] ? -ENOMEM : n, __ATOMIC_RELEASE);
    }
    free(text);
    return (int)looked;
}

void mm_proc_looked(struct mm_proc_view *seen, uint32_t count)
{
    for (uint32_t i = 0; i < MM_SEEN_PARTS * count; i++)
        free(seen[i % count].text[i >= count]);
}
