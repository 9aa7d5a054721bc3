/* changes.c - which pages changed since the last image, and which have content at all.
 *
 * The kernel keeps the record: userfaultfd's asynchronous write protection marks pages, PAGEMAP_SCAN finds those written since
 * and protects them again in the same step (Linux 6.7).  Where it lacks this, every image is complete.
 */
#include "memory/image_engine.h"
#include "base/check.h"
#include "base/reserve_fds.h"

#include <linux/ioctl.h>
#include <sys/mman.h>

struct scan { uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any, ret; };
#define SCAN _IOWR('f', 16, struct scan)
enum { WATCHED = 1, WRITTEN = 2, OF_FILE = 4, PRESENT = 8, SWAPPED = 16, ZERO_PAGE = 32 };
enum { PROTECT_MATCHING = 1, CHECK_ASYNC = 2 };
enum { ALL, PROTECT, LOOK };               /* what a walk is for: see scan */
#define JOINED (1ul << 20)                /* a longer mapping is walked alone: to ask first whether all are watched walks it too */
#define LOOKED_AT (16ul << 20)             /* longer ones together are not looked at before they are protected */
#define BELOW 1024                         /* the least that a handler's calls have of the stack */
#define GUARDED (1ul << 58)                /* of a page's entry */
struct api { uint64_t api, features, ioctls; };
#define UFFD_API _IOWR(0xAA, 0x3F, struct api)
struct watch { uint64_t start, length, mode, ioctls; };
#define UFFD_WATCH _IOWR(0xAA, 0x00, struct watch)
#define UFFD_UNWATCH _IOR(0xAA, 0x01, struct mm_span)

static int pagemap = -1;

static int watch(const struct mm_vma *v)
{
    struct watch w = { v->start, v->end - v->start, 2, 0 };
    return mm_uffd < 0 ? -ENOSYS : (int)sys(SYS_ioctl, mm_uffd, UFFD_WATCH, &w);
}

/* One that was just made: whatever there is of it was written since the last image.  Beside one that is watched, the kernel makes one mapping
 * of both, as it does without us, only if this one is, too; and mremap takes no two. */
void mm_watch_new(uint64_t start, uint64_t length)
{
    struct mm_vma made = { .start = start, .end = (start + length + MM_PAGE - 1) & ~(MM_PAGE - 1) };
    watch(&made);
}

/* Of a range (struct uffdio_range) that the program is about to watch itself: the kernel lets only one do it. */
int mm_watch_ends(const void *range) { return mm_uffd >= 0 && sys(SYS_ioctl, mm_uffd, UFFD_UNWATCH, range) == 0; }

static int open_pagemap(void)
{
    struct api api = { 0xAA, 1 << 15 | 1 << 13, 0 };   /* WP_ASYNC, WP_UNPOPULATED */
    if (ENGINE->uncounted)
        return -ENOSYS;
    if (mm_uffd >= 0)
        return 0;
    long fd = sys(SYS_userfaultfd, O_CLOEXEC | 1);
    if (fd < 0)
        return (int)fd;
    if (sys(SYS_ioctl, fd, UFFD_API, &api) < 0) {
        sys_close((int)fd);
        return -ENOSYS;
    }
    for (int floor = 1000; floor >= 100 && mm_uffd < 0; floor /= 2)    /* a fork copies a table as long as the highest */
        mm_uffd = (int)sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
    if (mm_uffd < 0)
        mm_uffd = (int)fd;
    else
        sys_close((int)fd);
    mm_note_own(mm_uffd);
    return 0;
}

/* Behind the mappings, once: a walk may come by twice. */
static int note_guard(struct mm_span s)
{
    struct mm_tables *t = &ENGINE->now;
    struct mm_vma *last = &t->area[t->areas - 1];
    if (last->kind == AREA_GUARD && last->end >= s.end)
        return 0;
    if (last->kind == AREA_GUARD && last->end == s.start) {
        last->end = s.end;
        return 0;
    }
    if (t->areas == AREAS)
        return -E2BIG;
    t->area[t->areas++] = (struct mm_vma){ .start = s.start, .end = s.end, .kind = AREA_GUARD };
    return 0;
}

/* Linux 6.13 and 6.14 have guards, and their pagemap does not say which pages are: asked once of a page of our own. */
static int hides_guards(void)
{
    static int known = -1;
    uint64_t entry = GUARDED;
    if (known >= 0)
        return known;
    long page = sys(SYS_mmap, 0, MM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page < 0)
        return 1;
    if (sys(SYS_madvise, page, MM_PAGE, MM_GUARD_INSTALL) == 0)
        sys_pread(pagemap, &entry, sizeof entry, (off_t)((uint64_t)page / MM_PAGE * 8));
    sys(SYS_munmap, page, MM_PAGE);
    return known = !(entry & GUARDED);
}

/* Not there, and not said to be guarded.  Of a private file mapping, one that was given back (MADV_DONTNEED), or that the kernel
 * dropped, leaves a mark that looks the same as one that is swapped out: what it holds is the file's. */
static int append_absent(const struct mm_vma *v, struct mm_span s, int is_saved, struct mm_list *written, struct mm_list *existing)
{
    if (v->inode || hides_guards()) {
        long r = mm_fetched(v, s, written, existing);
        return r < 0 ? (int)r : 0;
    }
    int r = mm_append_span(existing, s.start, s.end, v);
    return r >= 0 && written && is_saved ? mm_append_span(written, s.start, s.end, v) : r;
}

static int append_unguarded(const struct mm_vma *v, struct mm_span s, int is_saved, struct mm_list *written, struct mm_list *existing)
{
    uint64_t entry[512], n;
    int r = 0;
    for (uint64_t at = s.start; at < s.end && r >= 0; at += n * MM_PAGE) {
        n = (s.end - at) / MM_PAGE < 512 ? (s.end - at) / MM_PAGE : 512;
        long got = sys_pread(pagemap, entry, n * 8, (off_t)(at / MM_PAGE * 8));
        if (got < 8)
            return got < 0 ? (int)got : -EIO;
        n = (uint64_t)got / 8;
        for (uint64_t i = 0, k = 0; i < n && r >= 0; i = k) {
            while (k < n && ((entry[k] ^ entry[i]) & GUARDED) == 0)
                k++;
            struct mm_span part = { at + i * MM_PAGE, at + k * MM_PAGE };
            r = entry[i] & GUARDED ? note_guard(part) : append_absent(v, part, is_saved, written, existing);
        }
    }
    return r;
}

static int append_found(const struct mm_vma *v, struct mm_span s, uint64_t categories, struct mm_list *written, struct mm_list *existing)
{
    if (!existing)
        return 0;
    if (!(categories & PRESENT))           /* without a list of what was written all that exists is saved */
        return append_unguarded(v, s, !written || categories & WRITTEN, written, existing);
    int r = mm_append_span(existing, s.start, s.end, v);
    return r >= 0 && written && categories & WRITTEN ? mm_append_span(written, s.start, s.end, v) : r;
}

/* The kernel's own pages in a mapping that has no file, it says, are a file's: such a one is walked over by itself. */
static int may_join(const struct mm_vma *v, const char *name)
{
    return counts(v) && !v->shared && !is_copied(v, name) && v->end - v->start <= JOINED
        && (v->inode || v->kind == AREA_STACK || name[0] != '[' || own_equal(name, "[heap]"));
}

static int page_has(uint64_t page, uint64_t start, uint64_t end) { return page < end && start < page + MM_PAGE; }

/* Written at each stop: by the signal and its handler, or by the kernel where a thread goes on. */
static int is_of_stop(uint64_t page)
{
    const struct mm_thread *t = &ENGINE->thread[0];
    uint64_t rseq = t->fs + (uint64_t)(&__rseq_offset ? __rseq_offset : 0), own = (uint64_t)&mm_wait;
    return page_has(page, t->registers[6] - BELOW, ENGINE->frame_end) || page_has(page, rseq, rseq + 32)
        || page_has(page, own, own + sizeof mm_wait);
}

static int is_quiet(const struct mm_vma *v, struct mm_span s, uint64_t categories)
{
    if (v->inode && !(categories & PRESENT))
        return 0;
    for (uint64_t page = s.start; page < s.end && categories & WRITTEN; page += MM_PAGE)
        if (!is_of_stop(page))
            return 0;
    return 1;
}

/* The pages of one mapping that exist, as kernels without that walk say it: an entry for each, whose highest bits are read.  The kernel's
 * page of zeros exists, too. */
static int scan_entries(const struct mm_vma *v, struct mm_list *existing)
{
    uint64_t *entry = (uint64_t *)ENGINE->maps, n = 0;
    for (uint64_t at = v->start; at < v->end; at += n * MM_PAGE) {
        n = (v->end - at) / MM_PAGE;
        long r = sys_pread(pagemap, entry, n < MAPS / 8 ? n * 8 : MAPS, (off_t)(at / MM_PAGE * 8));
        if (r < 8)
            return r < 0 ? (int)r : -EIO;
        n = (uint64_t)r / 8;
        for (uint64_t i = 0; i < n; i++) {
            struct mm_span page = { at + i * MM_PAGE, at + (i + 1) * MM_PAGE };
            uint64_t categories = entry[i] >> 63 ? PRESENT : entry[i] >> 62 ? SWAPPED : 0;
            int of_file = v->inode && categories == PRESENT && entry[i] >> 61 & 1;
            if (categories && !of_file && append_found(v, page, categories, 0, existing) < 0)
                return -E2BIG;
        }
    }
    return 0;
}

/* One walk over the pages of so many mappings, one after the other: those that exist, and among them those written since the
 * last time.  Either list may be NULL.  ALL: nothing counts as written; PROTECT: they are protected again, which costs an
 * interrupt of each processor where the process has run.  LOOK: nothing is done, and -EAGAIN if something was written but what
 * each stop writes, which may stay as it is: it counts as written the next time, too. */
static int scan(const struct mm_vma *v, uint64_t many, int what, struct mm_list *written, struct mm_list *existing)
{
    struct mm_engine *e = ENGINE;
    uint64_t last = v[many - 1].end;
    struct scan a = { .size = sizeof a, .start = v->start, .end = last, .vec = (uint64_t)e->region, .vec_len = REGIONS_FEW };
    a.any = PRESENT | SWAPPED;             /* a page that was never touched counts as written: it must be there, too */
    a.inverted = a.mask = ZERO_PAGE | (v->inode || many > 1 ? OF_FILE : 0);
    a.ret = PRESENT | (what == ALL ? 0 : WRITTEN);
    a.flags = what == ALL ? 0 : what == LOOK ? CHECK_ASYNC : PROTECT_MATCHING | CHECK_ASYNC;
    while (a.start < last) {
        long r = sys(SYS_ioctl, pagemap, SCAN, &a);
        if (r == -ENOTTY && what == ALL)
            return scan_entries(v, existing);
        if (r < 0)
            return (int)r;
        for (long i = 0; i < r; i++)
            for (struct mm_span s = { e->region[i].start, 0 }; s.start < e->region[i].end; s.start = s.end) {
                while (v->end <= s.start)
                    v++;
                s.end = e->region[i].end < v->end ? e->region[i].end : v->end;
                if (what == LOOK && !is_quiet(v, s, e->region[i].categories))
                    return -EAGAIN;
                if (append_found(v, s, e->region[i].categories, written, existing) < 0)
                    return -E2BIG;
            }
        if ((uint64_t)r < a.vec_len)       /* the walk is through; walk_end does not tell, it can be that of its first buffer */
            return 0;
        a.start = e->region[r - 1].end;
        a.vec_len = REGIONS;
    }
    return 0;
}

static int are_quiet(const struct mm_vma *v, uint64_t many, struct mm_list *written, struct mm_list *existing)
{
    uint64_t had = written ? written->count : 0, first = existing->count, length = 0;
    for (uint64_t i = 0; i < many; i++)
        length += v[i].end - v[i].start;
    if (length <= LOOKED_AT && scan(v, many, LOOK, written, existing) == 0)
        return 1;
    existing->count = first;
    if (written)
        written->count = had;
    return 0;
}

/* A walk that meets one that is not has protected those before it, and does not say what was written there: asked first. */
static int all_watched(const struct mm_vma *v, uint64_t many)
{
    struct scan a = { .size = sizeof a, .flags = CHECK_ASYNC, .start = v->start, .end = v[many - 1].end,
                      .inverted = WATCHED, .mask = WATCHED, .ret = PRESENT };      /* no page of those that are is looked at */
    return sys(SYS_ioctl, pagemap, SCAN, &a) >= 0;
}

/* Protected from here on, and what was written since the last time; whatever cannot be watched counts as written, and so does all of what
 * is watched anew: where that was moved, Linux 6.7 to 6.12 keep marks of its pages that they are protected. */
static int collect_changes(const struct mm_vma *v, int tracking, struct mm_list *written, struct mm_list *existing)
{
    uint64_t had = written ? written->count : 0, first = existing->count;
    int r = tracking ? scan(v, 1, PROTECT, written, existing) : -ENOSYS;
    if (r >= 0)
        return r;
    if (written)
        written->count = had;
    existing->count = first;
    if (tracking && watch(v) >= 0)         /* a new mapping, or one that grew or moved */
        r = scan(v, 1, PROTECT, 0, existing);
    if (r < 0) {
        existing->count = first;
        r = scan(v, 1, ALL, 0, existing);
    }
    for (uint64_t k = first; r >= 0 && written && k < existing->count; k++)
        r = mm_append_span(written, existing->span[k].start, existing->span[k].end, v);
    return r;
}

/* Fills saved and existing.  complete: all that exists is saved.  The record of changes starts anew. */
int mm_changes(struct mm_tables *t, int complete, uint64_t *saved, uint64_t *existing)
{
    struct mm_engine *e = ENGINE;
    int tracking = open_pagemap() == 0, shares = mm_shares_memory(t), known = shares ? mm_note_swapped(t) : 0;
    if (known < 0)
        return known;
    pagemap = (int)sys_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    int r = pagemap < 0 ? pagemap : 0;
    if (!tracking)
        complete = 1;
    struct mm_list written = { e->saved, 0 }, all = { e->existing, 0 };
    uint64_t areas = t->areas, shared = 0;
    mm_changes_shared_begin(!complete, tracking);
    for (uint64_t i = 0, many, alone = 0; i < areas && r >= 0; i += many) {
        struct mm_vma *v = &t->area[i];
        many = 1;
        if (!counts(v) || (v->shared && !shared_memory(t, v)))
            continue;                      /* a shared file's content: the files' part of the checkpoint */
        if (v->shared) {                   /* its pages may exist without being in this process's tables: all of it */
            long bytes = mm_changes_shared(t, v, shared < STAGE ? STAGE - shared : 0, complete ? 0 : &written, &all);
            r = bytes < 0 ? (int)bytes : 0;
            shared += bytes > 0 ? (uint64_t)bytes : 0;
            continue;
        }
        if (is_copied(v, t->path + v->path)) {
            long bytes = mm_fetched(v, (struct mm_span){ v->start, v->end }, complete ? 0 : &written, &all);
            r = bytes < 0 ? (int)bytes : 0;
            v->path = 0, v->offset = v->inode = 0;
            continue;
        }
        if (tracking && i >= alone) {
            for (alone = i; alone < areas && may_join(&t->area[alone], t->path + t->area[alone].path); alone++)
                ;
            many = alone > i ? alone - i : 1;
            if (are_quiet(v, many, complete ? 0 : &written, &all))
                continue;
            many = many > 1 && all_watched(v, many) ? many : 1;
        }
        r = many > 1 ? scan(v, many, PROTECT, complete ? 0 : &written, &all)
                     : collect_changes(v, tracking, complete ? 0 : &written, &all);
    }
    if (r >= 0 && shares && (r = mm_note_swapped(t)) >= 0 && mm_missed_some(t, areas))
        r = -EAGAIN;
    if (r >= 0 && !mm_claim_room(shared))
        r = -ENOMEM;
    if (complete && r >= 0)
        own_copy(written.span, all.span, all.count * sizeof *all.span);
    *saved = complete ? all.count : written.count;
    *existing = all.count;
    if (pagemap >= 0)
        sys_close(pagemap);
    return r;
}

/* In a process that has come back: changes count from what was filled in. */
int mm_changes_begin(struct mm_tables *t)
{
    int r = open_pagemap();
    if (r < 0)
        return r;
    pagemap = (int)sys_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    r = pagemap < 0 ? pagemap : 0;
    for (uint64_t i = 0, areas = t->areas; i < areas && r >= 0; i++) {
        struct mm_vma *v = &t->area[i];
        if (counts(v) && !v->shared && (r = watch(v)) >= 0)
            r = scan(v, 1, PROTECT, 0, 0);
    }
    if (pagemap >= 0)
        sys_close(pagemap);
    return r;
}
