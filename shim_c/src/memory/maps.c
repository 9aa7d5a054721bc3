/* maps.c - the process's mappings, from /proc/self/maps, and lists of their pages. */
#include "memory/image_engine.h"
#include "base/check.h"
#include "process/proc_look.h"

extern char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));

#define WHOLE_PAGES(n) (((n) + MM_PAGE - 1) & ~(MM_PAGE - 1))
#define ENGINE_END (MM_ENGINE_PLACE + WHOLE_PAGES(sizeof(struct mm_engine)))

static uint64_t library_start(void) { return (uint64_t)__ehdr_start; }
static uint64_t library_end(void) { return WHOLE_PAGES((uint64_t)_end); }

static uint32_t kind_of(const struct mm_vma *v, const char *name)
{
    if (own_begins(name, "[vdso") || own_begins(name, "[vvar") || own_begins(name, "[vsyscall"))
        return AREA_SPECIAL;
    if ((v->start >= library_start() && v->start < library_end()) || (v->start >= MM_ENGINE_PLACE && v->start < ENGINE_END)
        || v->start == MM_AREA_PLACE || (v->start > MM_AREA_PLACE && v->start < MM_AREA_PLACE + (1ul << 40) && v->shared && v->inode))
        return AREA_OURS;
    return own_equal(name, "[stack]") ? AREA_STACK : AREA_PLAIN;
}

/* The kernel makes one mapping of our last pages and what the program has mapped right behind them: where it is cut. */
static uint64_t first_part_of(const struct mm_vma *v)
{
    const uint64_t edge[] = { library_start(), library_end(), MM_ENGINE_PLACE, ENGINE_END, MM_AREA_PLACE,
                              MM_AREA_PLACE + WHOLE_PAGES(sizeof(struct mm_area)) };
    uint64_t end = v->end;
    for (unsigned i = 0; i < sizeof edge / sizeof edge[0]; i++)
        if (edge[i] > v->start && edge[i] < end && !v->inode)
            end = edge[i];
    return end;
}

static int add(struct mm_tables *t, struct mm_vma whole, uint32_t device, const char *name, uint64_t n)
{
    uint64_t end = whole.end;
    if (n > 1) {
        if (t->path_bytes + n > PATHS)
            return -E2BIG;
        whole.path = (uint32_t)t->path_bytes;
        own_copy(t->path + t->path_bytes, name, n);
        t->path_bytes += n;
    }
    for (; whole.start < end; whole.start = whole.end) {
        if (t->areas == AREAS)
            return -E2BIG;
        whole.end = end;
        whole.end = first_part_of(&whole);
        whole.kind = kind_of(&whole, name);
        t->device[t->areas] = device;
        t->shares[t->areas] = 0;
        t->area[t->areas++] = whole;
    }
    return 0;
}

static int ends(const char *text, const char *suffix)
{
    uint64_t n = own_length(text), m = own_length(suffix);
    return n >= m && own_equal(text + n - m, suffix);
}

/* Of a file that was deleted, by its path among the mappings; memory files, devices and the kernel's own are none. */
int mm_has_no_name(const char *path)
{
    return path[0] == '/' && ends(path, " (deleted)") && !own_begins(path, "/dev/") && !own_begins(path, "/memfd:")
        && !own_begins(path, "/SYSV") && !own_begins(path, "/[aio]") && !own_begins(path, "/anon_hugepage")
        && !own_equal(path, "/secretmem (deleted)");
}

/* One line: start-end rwxs offset major:minor inode path */
static int line(struct mm_tables *t, const char *p)
{
    struct mm_vma v = { 0 };
    uint64_t device;
    v.start = own_number(&p, 16), p++;
    v.end = own_number(&p, 16), p++;
    v.protection = (p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0) | (p[2] == 'x' ? PROT_EXEC : 0);
    v.shared = p[3] == 's';
    p += 5;
    v.offset = own_number(&p, 16), p++;
    device = own_number(&p, 16) << 20, p++;
    device |= own_number(&p, 16), p++;
    v.inode = own_number(&p, 10);
    while (*p == ' ')
        p++;
    if (v.shared && mm_has_no_name(p))     /* as segments.py: those of all filesystems are of one kind */
        v.inode ^= device * 0x9e3779b97f4a7c15u;
    return add(t, v, (uint32_t)device, p, own_length(p) + 1);
}

int mm_maps_read(struct mm_tables *t, uint64_t *key)
{
    char *text = ENGINE->maps;
    uint64_t n = 0;
    long r, fd = sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return (int)fd;
    while ((r = sys(SYS_read, fd, text + n, MAPS - 1 - n)) > 0)
        n += r;
    sys_close((int)fd);
    if (r < 0 || n == MAPS - 1)
        return r < 0 ? (int)r : -E2BIG;
    text[n] = 0;
    if (key)
        *key = mm_maps_key(text, n);
    t->areas = 0;
    t->path[0] = 0;
    t->path_bytes = 1;
    for (char *p = text; *p;) {
        char *next = p;
        while (*next != '\n')
            next++;
        *next++ = 0;
        int e = line(t, p);
        if (e < 0)
            return e;
        p = next;
    }
    return 0;
}

/* The kernel writes the end of a line as \012. */
static int is_other_name(const char *path)
{
    while (*path && !own_begins(path, "\\012"))
        path++;
    return *path != 0;
}

/* Why a mapping cannot be part of an image, NULL: it can. */
const char *mm_map_refused(const struct mm_tables *t, const struct mm_vma *v)
{
    const char *path = t->path + v->path;
    if (!counts(v) || !v->path || path[0] != '/')
        return own_begins(path, "anon_inode:[io_uring]") ? "io_uring is in use" :
               own_begins(path, "anon_inode:") ? "it maps an object of the kernel" : 0;
    if (shared_memory(t, v))
        return 0;
    if (own_begins(path, "/[aio]"))
        return "asynchronous I/O of the kernel is in use";
    if (own_begins(path, "/anon_hugepage"))
        return "it maps large pages";
    if (own_equal(path, "/secretmem (deleted)"))       /* of memfd_secret: for the kernel it has no content */
        return "it maps memory that the kernel itself may not read";
    if (is_other_name(path) && !is_copied(v, path) && sys(SYS_faccessat, AT_FDCWD, path, 0) < 0)
        return "it maps a file with an end of line in its name";
    return own_begins(path, "/dev/") && !own_begins(path, "/dev/shm/") && !own_equal(path, "/dev/zero") ? "it maps a device" : 0;
}

/* -- pages ------------------------------------------------------------------------------------------------------------------ */

enum { POPULATE_READ = 22 };               /* of madvise */

int mm_append_span(struct mm_list *to, uint64_t start, uint64_t end, const struct mm_vma *v)
{
    if (to->count && to->span[to->count - 1].end == start && start > v->start) {
        to->span[to->count - 1].end = end;
        return 0;
    }
    if (to->count == SPANS)
        return -E2BIG;
    MM_ASSERT(start < end && (!to->count || to->span[to->count - 1].end <= start));
    to->span[to->count++] = (struct mm_span){ start, end };
    return 0;
}

/* Pages of which the kernel does not say that they are there: brought in, and saved as they are.  Past a file's end, and where nobody
 * may touch them, there is nothing to fetch (EFAULT).  Bytes, or -errno. */
long mm_fetched(const struct mm_vma *v, struct mm_span s, struct mm_list *written, struct mm_list *existing)
{
    long r = 0, bytes = 0;
    if (!(v->protection & PROT_READ))
        sys(SYS_mprotect, s.start, s.end - s.start, v->protection | PROT_READ);
    int whole = sys(SYS_madvise, s.start, s.end - s.start, POPULATE_READ) == 0;
    for (uint64_t at = s.start, next; at < s.end && r >= 0; at = next) {
        next = whole ? s.end : at + MM_PAGE;
        int found = whole ? 0 : (int)sys(SYS_madvise, at, MM_PAGE, POPULATE_READ);
        if (found == -EINVAL && !v->inode)     /* before Linux 5.14, which knows no guards */
            found = 0;
        if (found == -EFAULT)
            continue;
        r = found < 0 ? found : mm_append_span(existing, at, next, v);
        r = r >= 0 && written ? mm_append_span(written, at, next, v) : r;
        bytes += (long)(next - at);
    }
    if (!(v->protection & PROT_READ))
        sys(SYS_mprotect, s.start, s.end - s.start, v->protection);
    return r < 0 ? r : bytes;
}
