/* lock_owner.c - is the thread (or process) that a lock of the run area names still the one that took it?
 *
 * A number comes round: the owner was killed, and somebody else has its number now.  Whoever takes a lock has the run
 * area mapped, so a living thread that does not have the lock's file mapped is another one.  Where its mappings may not
 * be looked at, it counts as the owner: waiting is safe.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field n of what follows the name in /proc/PID/stat, whose first is 3.  By hand, as it is read at every start of a program,
 * which would be the first to need the libc's printf and strtoull and the pages that they are in. */
static uint64_t stat_field(const char *p, int n)
{
    uint64_t value = 0;
    for (int field = 3; *p && field < n; p++)
        field += *p == ' ';
    for (; *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    return value;
}

/* A number and the 0 behind it; returns where that is. */
char *mm_digits(char *to, uint64_t number)
{
    char digits[20];
    int count = 0;
    for (; number || !count; number /= 10)
        digits[count++] = (char)('0' + number % 10);
    while (count)
        *to++ = digits[--count];
    *to = 0;
    return to;
}

#define EXITING 4                      /* the kernel's PF_EXITING: not an instruction of the program will run any more */

/* In a program whose memory is saved: what counts its calls (memory_glue.c).  No image is made while one is under way, so none
 * holds a descriptor that is open here for a moment: whoever continued would look for a process of then. */
uint32_t *mm_as_a_call;

#define UNTOLD UINT64_MAX              /* for want of a descriptor: the program has taken all that its hard limit allows */

static uint64_t start_time(uint32_t pid)
{
    char path[40] = "/proc/", text[1024];
    strcpy(mm_digits(path + 6, pid), "/stat");
    uint32_t *calls = mm_as_a_call;
    if (calls)
        __atomic_add_fetch(calls, 1, __ATOMIC_SEQ_CST);
    long fd = mm_open_spare(AT_FDCWD, path, O_RDONLY, 0), n = fd;
    if (fd >= 0) {
        MM_STOP("alive.opened");
        n = sys_pread((int)fd, text, sizeof text - 1, 0);
        mm_close_spare((int)fd);
    }
    if (calls)
        __atomic_sub_fetch(calls, 1, __ATOMIC_SEQ_CST);
    if (n <= 0)
        return n == -EMFILE || n == -ENFILE ? UNTOLD : 0;
    text[n] = 0;
    char *p = text + n - 1;
    while (p > text && *p != ')')
        p--;
    if (p[0] != ')' || p[1] != ' ' || p[2] == 'X')
        return 0;
    /* a zombie has ended: it holds nothing and never comes back, and so has one on its way there, which the kernel may be
       minutes about (gigabytes of memory to give back); but one whose other threads live is their leader */
    int over = p[2] == 'Z' || (stat_field(p + 2, 9) & EXITING);
    return over && stat_field(p + 2, 20) <= 1 ? 0 : stat_field(p + 2, 22);
}

/* When a process began, in clock ticks since the start of the machine; 0: it has ended, or nobody tells. */
uint64_t mm_start_time(uint32_t pid)
{
    uint64_t began = start_time(pid);
    return began == UNTOLD ? 0 : began;
}

/* Is it the one that began then?  Where that cannot be looked at, whoever has the number counts as that: waiting is safe. */
int mm_is_still(uint32_t pid, uint64_t began)
{
    uint64_t seen = start_time(pid);
    return seen == UNTOLD ? sys(SYS_kill, pid, 0) != -ESRCH : seen == began;
}

#define LINE 4608                      /* a path and what stands before it */

/* Reads a process's mappings line by line.  Where `address` is not 0: the inode of the mapping that holds it, else
 * whether one has this inode.  0: none has; -errno. */
static long find_mapping(const char *maps, uint64_t address, uint64_t inode)
{
    SCRATCH(text);
    long have = 0, found = 0;
    int fd = (int)mm_open_spare(AT_FDCWD, maps, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    for (long n; !found && (n = sys(SYS_read, fd, text + have, LINE - have)) > 0;) {
        text[have += n] = 0;
        char *line = text, *end;
        for (; !found && (end = strchr(line, '\n')); line = end + 1) {
            char *at = line;
            uint64_t low = strtoull(at, &at, 16), high = strtoull(at + 1, &at, 16);
            for (int field = 0; field < 3 && at < end; field++)     /* permissions, offset, device */
                at = strchr(at + 1, ' ');
            uint64_t found_inode = at ? strtoull(at, NULL, 10) : 0;
            if (address ? address >= low && address < high : found_inode == inode)
                found = (long)found_inode;
        }
        have = text + have - line;
        if (have == LINE)
            break;
        memmove(text, line, have);
    }
    mm_close_spare(fd);
    return found;
}

int mm_owner_gone(uint32_t tid, const void *word)
{
    if (sys(SYS_tkill, tid, 0) == -ESRCH)
        return 1;
    char path[40];
    long inode = find_mapping("/proc/thread-self/maps", (uintptr_t)word, 0);
    if (inode <= 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%u/maps", tid);
    long r = find_mapping(path, 0, inode);
    return r == 0 || r == -ENOENT || r == -ESRCH;
}

/* A verb was killed while it moved the files of the run, and `metamori run` brings them where they were to go
 * (rollback/live_rollback.py): until then nobody goes on, nor has the session, but that one. */
int mm_half_restored(struct mm_area *a)
{
    const struct mm_header *h = a->head;
    return __atomic_load_n(&h->restoring, __ATOMIC_SEQ_CST) && h->supervisor && h->supervisor != (uint32_t)sys_getpid()
        && mm_start_time(h->supervisor) == h->supervisor_start;
}

/* `metamori run` is there: it was not killed, and did not leave the end of the run to the last process. */
int mm_run_is_watched(struct mm_area *a)
{
    const struct mm_header *h = a->head;
    return (__atomic_load_n(&h->flags, __ATOMIC_SEQ_CST) & MM_SUPERVISED) && mm_is_still(h->supervisor, h->supervisor_start);
}

/* The beginning of the kernel's boot id, which no other machine has; 0 where it does not tell. */
uint64_t mm_boot(void)
{
    char text[8];
    uint64_t value = 0;
    long fd = sys_openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    long n = sys_pread((int)fd, text, 8, 0);
    sys_close((int)fd);
    for (int i = 0; i < n; i++)        /* by hand, as in lock_owner.c */
        value = value << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    return n == 8 ? value : 0;
}
