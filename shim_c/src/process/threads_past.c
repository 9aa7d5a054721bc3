/* threads_past.c - the other threads of this process: every one has continued from where it stood; one has our descriptors.
 *
 * A call on a number that nobody follows is not counted: from its look at the process's array to its system call are some
 * thirty instructions.  A thread is past them when it is seen to wait in the kernel, or has run for longer than they take.
 */
#include "process/process.h"

#include <linux/kcmp.h>
#include <stdlib.h>

#define PAST_NS 200000
#define AGAIN_US 50
#define TRIES 2000                     /* for one thread: a hundred milliseconds */

/* The processor time of one thread of this process, or -1. */
static long time_of(long tid)
{
    struct timespec t;
    long clock = ~tid << 3 | 6;        /* as pthread_getcpuclockid makes it */
    return sys(SYS_clock_gettime, (int)clock, &t) < 0 ? -1 : t.tv_sec * 1000000000L + t.tv_nsec;
}

/* On a processor, or waiting for one. */
static int runs(long tid)
{
    char path[48], text[128];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] && name_end[2] == 'R';
}

static int wait_for(long tid)
{
    long began = time_of(tid);
    for (int i = 0; began >= 0 && i < TRIES && time_of(tid) - began < PAST_NS && runs(tid); i++)
        sys_pause_us(AGAIN_US);
    return 0;
}

static int has_our_table(long tid) { return sys(SYS_kcmp, sys_gettid(), tid, KCMP_FILES, 0, 0) == 0; }

/* Until it is true of one. */
static int of_others(int (*holds)(long tid))
{
    int found = 0;
    struct { uint64_t ino; int64_t off; unsigned short length; unsigned char type; char name[]; } *entry;
    char list[1024] __attribute__((aligned(8)));
    long folder = sys_openat(AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), me = sys_gettid();
    if (folder < 0)
        return 0;
    for (long n; !found && (n = sys(SYS_getdents64, folder, list, sizeof list)) > 0;)
        for (long at = 0; !found && at < n; at += entry->length) {
            entry = (void *)(list + at);
            if (entry->name[0] != '.' && atol(entry->name) != me)
                found = holds(atol(entry->name));
        }
    sys_close((int)folder);
    return found;
}

void mm_threads_past(void) { of_others(wait_for); }

int mm_descriptors_shared(void) { return (!*mm_single_threaded || mm_cloned) && of_others(has_our_table); }
