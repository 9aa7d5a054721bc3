/* area.c - the run area's files, mapped piece by piece; its locks; its pages. */
#define _GNU_SOURCE
#include "area/area_internal.h"
#include "base/lift.h"

#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MNT_ID 0x1000U                 /* STATX_MNT_ID, Linux 5.8 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const char *const region_name[REGIONS] = { "header", "processes", "fits", "pifs", "pages", "journal", "strings",
                                                  "chunks", "frames", "cache" };
static const uint32_t region_step[REGIONS] = { 0, 1 << 15, 1 << 16, 1 << 16, 1 << 19, 1 << 18, 1 << 16,
                                              1 << 16, 1 << 14, 1 << 20 };

static int region_open(struct mm_area *a, int region, int flags)
{
    if (a->folder > 0)
        return (int)mm_open_spare(a->folder, region_name[region], flags | O_NOFOLLOW, 0600);
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/run/%s", a->store, region_name[region]);
    return (int)mm_open_spare(AT_FDCWD, path, flags | O_NOFOLLOW, 0600);
}

int mm_header_open(struct mm_area *a) { return region_open(a, HEADER, O_RDONLY); }

/* The program's file size limit is not about files of ours.  In a program other threads are under it (fsize_limit.c); a verb is alone,
 * and the command that `metamori run` starts has the limit that it had. */
#pragma GCC visibility push(hidden)
void mm_lift_limit(int back) __attribute__((weak));
#pragma GCC visibility pop
static void lift_limit(int back)
{
    if (mm_lift_limit)
        mm_lift_limit(back);
    else if (back)
        mm_lift_end(MM_SIZE_LIMIT);
    else
        mm_lift(MM_SIZE_LIMIT, NULL);
}

/* Allocate file space for bytes [from, to) of a region: after this they can be touched without SIGBUS. */
static long region_allocate(int fd, uint64_t from, uint64_t to)
{
    lift_limit(0);
    long r = sys(SYS_fallocate, fd, 0, from, to - from);
    lift_limit(1);
    if (r != -EOPNOTSUPP && r != -ENOSYS)
        return r;
    static const char zeros[MM_BLOCK];
    for (uint64_t at = from; at < to; at += MM_BLOCK) {
        r = sys_pwrite(fd, zeros, MM_BLOCK, at);
        if (r != MM_BLOCK)
            return r < 0 ? r : -ENOSPC;
    }
    return 0;
}

/* Where a segment goes: anywhere (0), or where a program that comes back with its memory finds it again. */
static uint64_t segment_place(int region, uint64_t n)
{
    return mm_area_place ? mm_area_place + (1ul << 30) + (((uint64_t)region * MM_SEGMENTS + n) << MM_SEGMENT_BITS) : 0;
}

/* A further mapping of segment n, made from that of segment 0: a program may have no descriptor left to open the file. */
static long map_again(struct mm_area *a, int region, uint64_t n)
{
    long r = sys(SYS_mremap, a->segment[0][region], 0, (n + 1) << MM_SEGMENT_BITS, MREMAP_MAYMOVE);
    if (r < 0 && r > -4096)
        return r;
    sys(SYS_munmap, r, n << MM_SEGMENT_BITS);
    r += (long)(n << MM_SEGMENT_BITS);
    if (!mm_area_place)
        return r;
    /* whoever is there already stays: the move itself would not ask */
    long there = sys(SYS_mmap, segment_place(region, n), 1ul << MM_SEGMENT_BITS, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (there < 0 && there > -4096) {
        sys(SYS_munmap, r, 1ul << MM_SEGMENT_BITS);
        return there;
    }
    return sys(SYS_mremap, r, 1ul << MM_SEGMENT_BITS, 1ul << MM_SEGMENT_BITS, MREMAP_MAYMOVE | MREMAP_FIXED, there);
}

/* A stranger's run area is a stranger's word on where our bytes go. */
static int fit_for_use(int header)
{
    struct stat st;
    long r = sys(SYS_fstat, header, &st);
    return r < 0 ? (int)r : st.st_uid != (uid_t)sys(SYS_geteuid) ? -EPERM
         : st.st_size < (off_t)sizeof(struct mm_header) ? -EINVAL : 0;
}

static int map_first(struct mm_area *a, int region)
{
    /* mapping a file that was written since it was last read makes the filesystem write down when: nobody asks */
    int fd = region_open(a, region, O_RDWR | O_NOATIME);
    if (fd == -EPERM)
        fd = region_open(a, region, O_RDWR);
    if (fd < 0)
        return fd;
    long r = region == HEADER ? fit_for_use(fd) : 0;
    if (r == 0)
        r = sys(SYS_mmap, segment_place(region, 0), 1ul << MM_SEGMENT_BITS, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | (mm_area_place ? MAP_FIXED_NOREPLACE : 0), fd, 0);
    mm_close_spare(fd);
    if (r < 0 && r > -4096)
        return (int)r;
    a->segment[0][region] = (char *)r;
    return 0;
}

/* The first look at a segment maps it; segment 0 of every region is mapped from the start. */
void *mm_region_map(struct mm_area *a, int region, uint64_t offset)
{
    uint64_t n = offset >> MM_SEGMENT_BITS;
    char *p = __atomic_load_n(&a->segment[n][region], __ATOMIC_ACQUIRE);
    if (!p) {
        long r = map_again(a, region, n);
        if (r < 0 && r > -4096)
            return NULL;
        char *expected = NULL;
        p = (char *)r;
        if (!__atomic_compare_exchange_n(&a->segment[n][region], &expected, p, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            sys(SYS_munmap, p, 1ul << MM_SEGMENT_BITS);
            p = expected;
        }
    }
    return p + (offset & ((1ul << MM_SEGMENT_BITS) - 1));
}

void *mm_region(struct mm_area *a, int region, uint64_t offset)
{
    char *p = mm_region_if_mapped(a, region, offset);
    return p ? p : mm_region_map(a, region, offset);
}

/* The same without a descriptor, for a program that has used up its own: the pages are touched by the kernel. */
static long region_populate(struct mm_area *a, int region, uint64_t from, uint64_t to)
{
    SCRATCH(path);
    snprintf(path, SCRATCH_BYTES, "%s/run/%s", a->store, region_name[region]);
    long r = sys(SYS_truncate, path, to);
    for (uint64_t at = from; r == 0 && at < to; at += MM_BLOCK)
        if (sys(SYS_madvise, mm_region(a, region, at), MM_BLOCK, MADV_POPULATE_WRITE) < 0)
            r = -ENOSPC;
    return r;
}

/* Make bytes [0, end) of a growing region usable, in this process at once. */
int mm_reserve(struct mm_area *a, int region, uint64_t end)
{
    uint64_t have = a->head->reserved[region];
    MM_ASSERT(mm_locked_by_me(&a->head->lock));
    if (end <= have)                   /* another process may have reserved it: here the last segment is not mapped yet */
        return !end || mm_region(a, region, end - 1) ? 0 : -ENOMEM;
    uint64_t want = (end + region_step[region] - 1) / region_step[region] * region_step[region];
    if (want > (uint64_t)MM_SEGMENTS << MM_SEGMENT_BITS)
        return -ENOSPC;
    for (uint64_t n = have >> MM_SEGMENT_BITS; n <= (want - 1) >> MM_SEGMENT_BITS; n++)
        if (!mm_region(a, region, n << MM_SEGMENT_BITS))
            return -ENOMEM;
    int fd = region_open(a, region, O_RDWR);
    if (fd < 0 && fd != -EMFILE && fd != -ENFILE)
        return fd;
    long r = fd < 0 ? region_populate(a, region, have, want) : region_allocate(fd, have, want);
    if (fd >= 0)
        mm_close_spare(fd);
    if (r == 0)
        a->head->reserved[region] = want;
    return (int)r;
}

/* btrfs writes to a new place what has a place already: a page that is touched again would need room, and be a SIGBUS where there
 * is none.  Said of an empty file it writes it where it lies (of mapped pages since Linux 6.16); elsewhere it says nothing. */
static void stays_in_place(int fd)
{
    int flags = 0;
    if (sys(SYS_ioctl, fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_NOCOW_FL)) {
        flags |= FS_NOCOW_FL;
        sys(SYS_ioctl, fd, FS_IOC_SETFLAGS, &flags);
    }
}

static int create_files(struct mm_area *a)
{
    static const uint64_t header = sizeof(struct mm_header);
    for (int region = 0; region < REGIONS; region++) {
        int fd = region_open(a, region, O_RDWR | O_CREAT | O_EXCL);
        if (fd < 0)
            return fd;
        uint64_t size = region == HEADER ? (header + MM_BLOCK - 1) / MM_BLOCK * MM_BLOCK : region_step[region];
        stays_in_place(fd);
        long r = sys(SYS_fchmod, fd, 0600);      /* whatever the umask */
        if (r == 0)
            r = region_allocate(fd, 0, size);
        mm_close_spare(fd);
        if (r < 0)
            return (int)r;
    }
    return 0;
}

/* What tells the mounts that this process sees from those of others: the number of the root's, with the highest bit set, or, of an
 * older kernel, that of the namespace.  0: nobody can tell. */
uint64_t mm_mounts_here(void)
{
    union { struct statx st; uint64_t word[sizeof(struct statx) / 8]; } root;  /* whose name for it is younger than Debian 12 */
    struct stat st;
    if (sys_statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, MNT_ID, &root.st) == 0 && root.st.stx_mask & MNT_ID)
        return root.word[18] | 1ull << 63;
    return sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/mnt", &st, 0) == 0 ? st.st_ino : 0;
}

static void first_values(struct mm_header *h)
{
    for (int region = PROCESSES; region < REGIONS; region++)
        h->reserved[region] = region_step[region];
    struct stat st;
    h->version = MM_AREA_VERSION;
    h->pid_namespace = sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) == 0 ? st.st_ino : 0;
    h->mount_namespace = mm_mounts_here();
    h->boot = mm_boot();
    h->epoch = 1;
    h->next_block = h->epoch_block = MM_CHUNK / MM_BLOCK;
    h->next_page = 1;
    h->fit_count = h->pif_count = h->process_high = h->frame_count = 1;
    h->journal_tail = h->strings_tail = 8;
    h->ahead_tail = MM_BLOCK;
    h->pif_generation = 2;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(h->magic, MM_MAGIC, 8);
}

/* Each file by its name in the folder: ten walks along the whole path are what a short program would feel. */
static int map_regions(struct mm_area *a, int keep_folder)
{
    SCRATCH(path);
    strcpy(stpcpy(path, a->store), "/run");
    int folder = (int)mm_open_spare(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0), e = folder;
    a->store_dev = 0;
    a->folder = folder;                /* 0 where the program has no standard input: then by the path after all */
    for (int region = 0; e >= 0 && region < REGIONS; region++)
        e = map_first(a, region);
    if (keep_folder && e >= 0 && folder > 0)
        return 0;
    if (folder >= 0)
        mm_close_spare(folder);
    a->folder = 0;
    return e < 0 ? e : 0;
}

/* Attach to the run area of a store; how: MM_CREATE makes a new one (EEXIST when there is one), with MM_KEEP_FOLDER the
 * folder stays open where its number is not 0.  NULL and errno on failure. */
struct mm_area *mm_attach(const char *store, int how)
{
    if (strlen(store) >= MM_STORE_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    long r = sys(SYS_mmap, mm_area_place, sizeof(struct mm_area), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | (mm_area_place ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (r < 0 && r > -4096) {
        errno = ENOMEM;
        return NULL;
    }
    struct mm_area *a = (struct mm_area *)r;
    strcpy(a->store, store);
    int e = how & MM_CREATE ? create_files(a) : 0;
    if (e == 0)
        e = map_regions(a, how & MM_KEEP_FOLDER);
    a->head = (struct mm_header *)a->segment[0][HEADER];
    if (e == 0 && how & MM_CREATE)
        first_values(a->head);
    if (e == 0 && (memcmp(a->head->magic, MM_MAGIC, 8) != 0 || a->head->version != MM_AREA_VERSION))
        e = -EINVAL;
    if (e != 0) {
        mm_detach(a);
        errno = -e;
        return NULL;
    }
    return a;
}

void mm_detach(struct mm_area *a)
{
    if (a->folder > 0)
        mm_close_spare(a->folder);
    for (int region = 0; region < REGIONS; region++)
        for (unsigned n = 0; n < MM_SEGMENTS; n++)
            if (a->segment[n][region])
                sys(SYS_munmap, a->segment[n][region], 1ul << MM_SEGMENT_BITS);
    sys(SYS_munmap, a, sizeof *a);
}

struct mm_header *mm_head(struct mm_area *a) { return a->head; }

const char *mm_path_at(struct mm_area *a, uint64_t offset) { return offset ? mm_region(a, STRINGS, offset) : ""; }

const void *mm_record_at(struct mm_area *a, uint64_t offset) { return mm_region(a, JOURNAL, offset); }

/* Pages of 4 KB for block tables and descriptor maps; all zero when handed out. */
uint32_t mm_page_take(struct mm_area *a)
{
    struct mm_header *h = a->head;
    uint32_t page = 0;
    mm_lock(&h->lock, MM_LOCK_AREA);
    if (h->free_page) {
        uint32_t *p = mm_page(a, h->free_page);
        if (p) {                       /* else no address space is left to look at it: as if there were none */
            page = h->free_page;
            h->free_page = *p;
            *p = 0;
        }
    } else if (mm_reserve(a, PAGES, ((uint64_t)h->next_page + 1) * MM_BLOCK) == 0) {
        page = h->next_page++;
    }
    mm_unlock(&h->lock);
    return page;
}

void mm_page_give(struct mm_area *a, uint32_t page)
{
    uint32_t *p = mm_page(a, page);
    MM_ALWAYS(page && page < a->head->next_page);
    if (!p)                            /* never given to anybody again */
        return;
    memset(p, 0, MM_BLOCK);
    mm_lock(&a->head->lock, MM_LOCK_AREA);
    *p = a->head->free_page;
    a->head->free_page = page;
    mm_unlock(&a->head->lock);
}

/* Buffer blocks, in whole chunks: a chunk belongs to one file. */
uint64_t mm_blocks_take(struct mm_area *a, uint64_t count)
{
    count = (count + MM_CHUNK / MM_BLOCK - 1) & ~(uint64_t)(MM_CHUNK / MM_BLOCK - 1);
    return __atomic_fetch_add(&a->head->next_block, count, __ATOMIC_RELAXED);
}

/* Append one complete record; the tail moves last. */
int mm_journal_append(struct mm_area *a, const void *record, uint32_t length, const void *more, uint32_t more_length)
{
    struct mm_header *h = a->head;
    uint32_t total = (length + more_length + 7) & ~7u;
    uint64_t at = h->journal_tail;
    MM_ASSERT(mm_locked_by_me(&h->lock));
    MM_ALWAYS(at % 8 == 0);
    /* a record never crosses a segment: the reader gets one pointer */
    if ((at ^ (at + total + 16)) >> MM_SEGMENT_BITS) {
        uint64_t next = ((at >> MM_SEGMENT_BITS) + 1) << MM_SEGMENT_BITS;
        int e = mm_reserve(a, JOURNAL, next + total + 16);
        if (e)
            return e;
        uint32_t *skip = mm_region(a, JOURNAL, at);
        if (!skip)
            return -ENOMEM;
        skip[0] = (uint32_t)(next - at);
        skip[1] = 0;
        at = next;
    }
    int e = mm_reserve(a, JOURNAL, at + total + 16);
    if (e)
        return e;
    char *p = mm_region(a, JOURNAL, at);
    if (!p)
        return -ENOMEM;
    memcpy(p, record, length);
    memcpy(p + length, more, more_length);
    ((uint32_t *)p)[0] = total;
    __atomic_store_n(&h->journal_tail, at + total, __ATOMIC_RELEASE);
    return 0;
}
