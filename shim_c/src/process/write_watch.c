/* write_watch.c - asking the kernel to remember which pages of a writable mapping are stored into.
 *
 * userfaultfd with asynchronous write protection: a checkpoint asks for the pages written since the last one
 * (PAGEMAP_SCAN, metamori/runtime/checkpoint/dirty_pages.py) instead of comparing all of the file.  The program notices nothing but the
 * first store into a page costing a fault.  Nothing depends on it: a mapping that is not watched is compared.
 * A watch does not pass on to a child; it asks for its own.
 */
#include "process/process.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#define WATCHED 256
static LARGE struct { uintptr_t start, end; } watched[WATCHED];
static uint32_t watched_count;
static int impossible;

static int watch_fd(void)
{
    if (mm_watch_fd >= 0 || impossible)
        return mm_watch_fd;
    long fd = sys(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC
                                                           | UFFD_FEATURE_WP_HUGETLBFS_SHMEM };
    if (fd < 0 || sys(SYS_ioctl, fd, UFFDIO_API, &api) < 0) {
        if (fd >= 0)
            sys_close((int)fd);
        impossible = 1;                    /* an older kernel, or not allowed */
        return -1;
    }
    int expected = -1, high = mm_high_fd((int)fd);
    if (!__atomic_compare_exchange_n(&mm_watch_fd, &expected, high, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        sys_close(high);                   /* another thread was first */
    return mm_watch_fd;
}

static void ask_kernel(uintptr_t start, uintptr_t end)
{
    struct uffdio_register wanted = { .range = { start, end - start }, .mode = UFFDIO_REGISTER_MODE_WP };
    int fd = watch_fd();
    if (fd >= 0)
        sys(SYS_ioctl, fd, UFFDIO_REGISTER, &wanted);
}

/* A shared mapping that writes, or may by mprotect. */
void mm_watch(uintptr_t start, size_t length)
{
    uintptr_t end = (start + length + MM_BLOCK - 1) & ~(uintptr_t)(MM_BLOCK - 1);
    start &= ~(uintptr_t)(MM_BLOCK - 1);
    uint32_t n = __atomic_fetch_add(&watched_count, 1, __ATOMIC_RELAXED) % WATCHED;
    watched[n].start = start, watched[n].end = end;
    ask_kernel(start, end);
}

/* Something changes mapped files that neither a call nor a watch tells: the next checkpoint compares them. */
void mm_unseen(void)
{
    if (mm_active && mm_area->head->mapped)
        __atomic_add_fetch(&mm_area->head->unseen, 1, __ATOMIC_SEQ_CST);
}

/* In the child: what it stores before it is watched is not told either. */
void mm_watch_after_fork(void)
{
    if (mm_watch_fd >= 0)
        sys_close(mm_watch_fd);
    mm_watch_fd = -1;
    if (!watched_count)
        return;
    mm_unseen();
    for (int n = 0; n < WATCHED; n++)
        if (watched[n].end)
            ask_kernel(watched[n].start, watched[n].end);
}
