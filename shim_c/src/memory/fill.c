/* fill.c - a program that comes back gets its pages: from each image of the chain in turn. */
#include "memory/image_engine.h"

void mm_take(int fd, void *to, uint64_t n, uint64_t *at)
{
    for (char *p = to; n;) {
        long r = sys_pread(fd, p, n < 1ul << 30 ? n : 1ul << 30, (off_t)*at);
        if (r == -EINTR)
            continue;
        if (r <= 0)
            mm_cannot_come_back("its image is cut short or cannot be read", "");
        p += r, n -= r, *at += r;
    }
}

#define AT_ONCE (256ul << 10)
#define POPULATE_WRITE 23                  /* MADV_POPULATE_WRITE, Linux 5.14 */

/* The kernel makes pages at once for less than a fault for each, and they are in the cache still when they are filled. */
static void take_pages(int fd, uint64_t from, uint64_t to, uint64_t at)
{
    for (uint64_t n; from < to; from += n) {
        n = to - from < AT_ONCE ? to - from : AT_ONCE;
        if (n > MM_PAGE)
            sys(SYS_madvise, from, n, POPULATE_WRITE);
        mm_take(fd, (void *)from, n, &at);
    }
}

int mm_image_open(const char *path)
{
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0)
        mm_cannot_come_back("there is no image ", path);
    return (int)fd;
}

static int lies_before(const struct mm_span *a, const struct mm_span *b) { return a->start < b->start; }

/* The largest of what lies below `root` comes up to it (heap sort). */
static void sink(struct mm_span *s, uint64_t root, uint64_t count)
{
    for (uint64_t child; (child = 2 * root + 1) < count; root = child) {
        child += child + 1 < count && lies_before(&s[child], &s[child + 1]);
        if (!lies_before(&s[root], &s[child]))
            return;
        struct mm_span swapped = s[root];
        s[root] = s[child], s[child] = swapped;
    }
}

/* Early images can name pages twice and out of order (docs/reference/image.md): each once, ascending. */
uint64_t mm_in_order(struct mm_span *s, uint64_t count)
{
    uint64_t ordered = 1, out = 0;
    while (ordered < count && s[ordered - 1].end <= s[ordered].start)
        ordered++;
    if (ordered >= count)
        return count;
    for (uint64_t root = count / 2; root-- > 0;)
        sink(s, root, count);
    for (uint64_t last = count - 1; last > 0; last--) {
        struct mm_span swapped = s[0];
        s[0] = s[last], s[last] = swapped;
        sink(s, 0, last);
    }
    for (uint64_t i = 1; i < count; i++)
        if (s[i].start >= s[out].end)
            s[++out] = s[i];
        else if (s[i].end > s[out].end)
            s[out].end = s[i].end;
    return out + 1;
}

/* Of the existing spans, which ascend, the first that ends behind an address. */
static uint64_t first_after(uint64_t address)
{
    struct mm_engine *e = ENGINE;
    uint64_t low = 0, high = e->image.existing;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (e->existing[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int mm_has_pages(const struct mm_vma *v)
{
    uint64_t first = first_after(v->start);
    return first < ENGINE->image.existing && ENGINE->existing[first].start < v->end;
}

/* Each image of the chain in turn, the complete one first; only pages that exist at the instant. */
void mm_fill_from(const char *path)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory_image *image = &e->below;
    int fd = mm_image_open(path);
    uint64_t at = 24;
    mm_take(fd, image, sizeof *image, &at);
    if (image->saved > SPANS)
        mm_cannot_come_back("its image was made by another version", "");
    at += image->program_bytes + image->threads * sizeof(struct mm_thread) + image->timers * sizeof(struct mm_timer)
        + image->areas * sizeof(struct mm_vma);
    mm_take(fd, e->other, image->saved * sizeof e->other[0], &at);
    at = image->data;
    for (uint64_t i = 0; i < image->saved; i++) {
        const struct mm_span *s = &e->other[i];
        for (uint64_t k = first_after(s->start); k < e->image.existing && e->existing[k].start < s->end; k++) {
            uint64_t from = s->start > e->existing[k].start ? s->start : e->existing[k].start;
            uint64_t to = s->end < e->existing[k].end ? s->end : e->existing[k].end;
            take_pages(fd, from, to, at + from - s->start);
        }
        at += s->end - s->start;
    }
    sys_close(fd);
}
