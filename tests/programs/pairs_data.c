/* pairs_data.c - calls on the bytes of files, and what happens to descriptors meanwhile.
 *
 * Both sides have two descriptors in common, opened before they began: of `a`, and of `b` with O_APPEND.  Each may hold one
 * more, and a shared mapping of the first page of `a`, which is never cut shorter.
 *
 * Bytes are written as marks of 8, at multiples of 8.  The kernel moves such a mark at once; what lies beyond it, a reader may
 * see half written, so the oracle reads and writes mark by mark.  Writes exclude each other (the inode's lock), and so do
 * calls that move one position.
 */
#define _GNU_SOURCE
#include "pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define MARK 8

static const char *const files[] = { "a", "b", "c" };
static const off_t places[] = { 0, 8, 4080, 4088, 4096, 8184, 8192, 9992, 12288, 4088, 0, 4096 };
enum { FILES = 3, PLACES = sizeof places / sizeof places[0] };

void data_begin(int world)
{
    static const size_t sizes[] = { 10000, 6000, 9000 };
    char path[64];
    snprintf(path, sizeof path, "w%d", world);
    mkdir(path, 0755);
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "w%d/%s", world, files[i]);
        write_file(path, sizes[i], world + i);
    }
}

int data_common(int world, int which)
{
    char path[64];
    snprintf(path, sizeof path, "w%d/%s", world, files[which]);
    return open(path, O_RDWR | (which ? O_APPEND : 0));
}

/* Of so many; most often what the other side would get. */
static uint64_t alike(struct side *s, uint64_t below)
{
    uint64_t both = s->dice > s->other_dice ? s->dice : s->other_dice;
    uint64_t own = pick(s, 100);
    return own < 60 ? both / 7 % 1000003 % below : pick(s, below);
}
static off_t somewhere(struct side *s) { return places[alike(s, PLACES)]; }

static int opens(struct side *s, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "w%d/%s", s->world, name);
    int fd = open(path, flags, 0644);
    said(s, fd < 0 ? -errno : 0);
    turn(s);
    return fd;
}

/* One that is in common, or that is held. */
static int *a_descriptor(struct side *s)
{
    uint64_t which = alike(s, 3);
    return which == 2 && s->held >= 0 ? &s->held : &s->common[which & 1];
}

/* -- reading and writing ---------------------------------------------------------------------------------------------------- */

enum { AT_POSITION, AT_OFFSET, IN_TWO };               /* read or write; pread or pwrite; readv or writev */

static long real_move(int out, int how, int fd, char *bytes, size_t n, off_t at)
{
    struct iovec two[2] = { { bytes, MARK }, { bytes + MARK, n - MARK } };
    if (how == AT_OFFSET)
        return out ? pwrite(fd, bytes, n, at) : pread(fd, bytes, n, at);
    if (how == IN_TWO)
        return out ? writev(fd, two, 2) : readv(fd, two, 2);
    return out ? write(fd, bytes, n) : read(fd, bytes, n);
}

/* How far the oracle goes at once: where somebody may read or write, it ends. */
static size_t piece(size_t at, size_t n)
{
    if (n <= 2 * MARK)
        return MARK;
    return at < 2 * MARK ? MARK : at < PAGE - 2 * MARK ? PAGE - 2 * MARK - at : MARK;
}

static long move(struct side *s, int out, int how, int fd, char *bytes, size_t n, off_t at)
{
    if (!s->stepwise)
        return real_move(out, how, fd, bytes, n, at);
    size_t done = 0;
    long moved = 0;
    int own = dup(fd), position = how != AT_OFFSET;    /* what the number means is looked up once */
    turn(s);
    if (position)
        take_turns(s, POSITION, own);
    if (out)
        take_turns(s, INODE, own);
    for (size_t part; done < n; done += (size_t)moved) {
        if (done)
            turn(s);
        part = piece(done, n);
        moved = real_move(out, position ? AT_POSITION : AT_OFFSET, own, bytes + done, part, at + (off_t)done);
        if (moved < (long)part)
            break;
    }
    int error = errno;
    done += moved > 0 && done < n ? (size_t)moved : 0;
    give_turns(s);
    close(own);
    errno = error;
    return done || moved >= 0 ? (long)done : -1;
}

static void says_bytes(struct side *s, const char *bytes, long n)
{
    said(s, summed(2166136261u, bytes, n > 0 ? (size_t)n : 0));
}

static void reads_so(struct side *s, int how, int fd)
{
    char bytes[2 * MARK] = "";
    off_t at = somewhere(s);
    long n = SAY(s, move(s, 0, how, fd, bytes, pick(s, 2) && how != IN_TWO ? MARK : 2 * MARK, at));
    says_bytes(s, bytes, n);
}

static void mark(struct side *s, char *bytes, size_t n)
{
    char text[MARK * 2];
    for (size_t i = 0; i < n; i += MARK) {
        snprintf(text, sizeof text, "%c%03d%04d", 'A' + s->who, s->phase % 1000, (int)(s->world + i / MARK) % 10000);
        memcpy(bytes + i, text, MARK);
    }
}

static void writes_so(struct side *s, int how, int fd, size_t n)
{
    char bytes[PAGE];
    mark(s, bytes, n);
    SAY(s, move(s, 1, how, fd, bytes, n, n == PAGE ? (off_t)(alike(s, 3) * PAGE) : somewhere(s)));
}

static void reads(struct side *s) { reads_so(s, AT_POSITION, *a_descriptor(s)); }
static void reads_at(struct side *s) { reads_so(s, AT_OFFSET, *a_descriptor(s)); }
static void reads_in_two(struct side *s) { reads_so(s, IN_TWO, *a_descriptor(s)); }
static void writes(struct side *s) { writes_so(s, AT_POSITION, *a_descriptor(s), MARK); }
static void writes_at(struct side *s) { writes_so(s, AT_OFFSET, *a_descriptor(s), 2 * MARK); }
static void writes_in_two(struct side *s) { writes_so(s, IN_TWO, *a_descriptor(s), 2 * MARK); }
static void writes_page(struct side *s) { writes_so(s, AT_OFFSET, s->common[0], PAGE); }
static void appends(struct side *s) { writes_so(s, AT_POSITION, s->common[1], 2 * MARK); }

static void writes_and_reads(struct side *s)
{
    int fd = opens(s, files[alike(s, FILES)], O_RDWR);
    writes_so(s, AT_OFFSET, fd, MARK);
    turn(s);
    reads_so(s, AT_OFFSET, fd);
    turn(s);
    close(fd);
}

static void seeks(struct side *s)
{
    static const int from[] = { SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END };
    int whence = from[pick(s, 4)], fd = *a_descriptor(s);
    off_t to = whence == SEEK_SET ? somewhere(s) : 0;
    int own = s->stepwise ? dup(fd) : fd;
    if (s->stepwise) {
        turn(s);
        take_turns(s, POSITION, own);
    }
    SAY(s, lseek(own, to, whence));
    if (s->stepwise) {
        give_turns(s);
        close(own);
    }
}

static void copies(struct side *s)
{
    off_t from = somewhere(s), to = somewhere(s);
    int in = opens(s, "a", O_RDONLY), out = opens(s, "c", O_RDWR);
    char bytes[MARK];
    if (!s->stepwise) {
        SAY(s, copy_file_range(in, &from, out, &to, MARK, 0));
    } else {
        long n = pread(in, bytes, MARK, from);
        turn(s);
        if (n > 0) {
            take_turns(s, INODE, out);
            n = pwrite(out, bytes, (size_t)n, to);
            give_turns(s);
        }
        SAY(s, n);
    }
    close(in);
    close(out);
}

/* -- sizes, limits, what only the kernel can do ----------------------------------------------------------------------------- */

static void cut(struct side *s, int fd, off_t length)
{
    if (s->stepwise) {
        turn(s);
        take_turns(s, INODE, fd);
    }
    SAY(s, ftruncate(fd, length));
    give_turns(s);
}
static void cuts(struct side *s)
{
    static const off_t lengths[] = { 4096, 5000, 8192, 9992, 12296, 20000 };
    off_t length = lengths[pick(s, 6)];
    int own = dup(*a_descriptor(s));
    cut(s, own, length);
    close(own);
}
static void cuts_by_name(struct side *s)
{
    static const off_t lengths[] = { 0, 8, 4096, 9992, 12288 };
    off_t length = lengths[pick(s, 5)];
    char path[64];
    snprintf(path, sizeof path, "w%d/c", s->world);
    if (!s->stepwise) {
        SAY(s, truncate(path, length));
        return;
    }
    int fd = open(path, O_RDWR);
    cut(s, fd, length);
    close(fd);
}
static void empties(struct side *s)
{
    int fd;
    if (s->stepwise) {
        fd = opens(s, "c", O_RDWR);
        take_turns(s, INODE, fd);
        ftruncate(fd, 0);
        give_turns(s);
        turn(s);
    } else {
        fd = opens(s, "c", O_RDWR | O_TRUNC);
    }
    writes_so(s, AT_POSITION, fd, 2 * MARK);
    turn(s);
    close(fd);
}
static void sizes(struct side *s)
{
    struct stat st;
    SAY(s, fstat(*a_descriptor(s), &st));
    said(s, st.st_size);
}
static void syncs(struct side *s) { SAY(s, fsync(*a_descriptor(s))); }

/* A hole is the kernel's to make: what is buffered of the file is written back first. */
static void punches(struct side *s)
{
    int fd = opens(s, files[alike(s, FILES)], O_RDWR);
    off_t at = PAGE * (off_t)alike(s, 3);
    if (s->stepwise)
        take_turns(s, INODE, fd);
    SAY(s, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, PAGE));
    give_turns(s);
    close(fd);
}

static void reads_directly(struct side *s)
{
    static _Thread_local char pages[2 * PAGE];
    char *page = (char *)(((uintptr_t)pages + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    int fd = opens(s, files[alike(s, FILES)], O_RDONLY | O_DIRECT);
    if (fd < 0)
        return;
    off_t at = PAGE * (off_t)alike(s, 3);
    memset(page, 0, PAGE);
    pread(fd, page, PAGE, at);
    says_bytes(s, page, MARK);         /* the rest may be half of this and half of that */
    close(fd);
}

/* The process's limit, which the other thread has too. */
static void limits(struct side *s)
{
    struct rlimit limit = { 9000, RLIM_INFINITY };
    int fd = *a_descriptor(s);
    SAY(s, set_limit(s, &limit));
    turn(s);
    writes_so(s, AT_OFFSET, fd, MARK);
    turn(s);
    limit.rlim_cur = RLIM_INFINITY;
    SAY(s, set_limit(s, &limit));
}

/* -- mappings --------------------------------------------------------------------------------------------------------------- */

static volatile uint64_t *maps_page(struct side *s)
{
    int fd = opens(s, "a", O_RDWR);
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    turn(s);
    return page == MAP_FAILED ? NULL : page;
}
static void stores(struct side *s, volatile uint64_t *page)
{
    char bytes[MARK];
    static const int slots[] = { 0, 1, 510, 511 };
    int at = slots[alike(s, 4)];
    mark(s, bytes, MARK);
    uint64_t before = page[at], value;
    memcpy(&value, bytes, MARK);
    says_bytes(s, (char *)&before, MARK);
    turn(s);
    page[at] = value;
    turn(s);
}
static void maps(struct side *s)
{
    volatile uint64_t *page = maps_page(s);
    said(s, page != NULL);
    if (!page)
        return;
    stores(s, page);
    if (pick(s, 2))
        SAY(s, msync((void *)page, PAGE, MS_SYNC));
    munmap((void *)page, PAGE);
}
static void maps_and_holds(struct side *s)
{
    if (!s->page)
        s->page = maps_page(s);
}
static void stores_held(struct side *s)
{
    if (s->page)
        stores(s, s->page);
}
static void unmaps(struct side *s)
{
    if (s->page)
        munmap((void *)s->page, PAGE);
    s->page = NULL;
}

/* -- descriptors and processes ---------------------------------------------------------------------------------------------- */

static void lets_go(struct side *s)
{
    if (s->held >= 0)
        SAY(s, close(s->held));
    s->held = -1;
}
static void holds(struct side *s)
{
    lets_go(s);
    turn(s);
    s->held = opens(s, files[alike(s, FILES)], O_RDWR | (pick(s, 3) ? 0 : O_APPEND));
}
static void dups(struct side *s)
{
    lets_go(s);
    turn(s);
    s->held = dup(s->common[alike(s, 2)]);
}
/* As a log is rotated: the number becomes another file's. */
static void rotates(struct side *s)
{
    int *which = &s->common[alike(s, 2)], fd = opens(s, files[alike(s, FILES)], O_RDWR | (pick(s, 2) ? O_APPEND : 0));
    if (fd < 0)
        return;
    said(s, dup2(fd, *which) == *which);
    turn(s);
    close(fd);
    turn(s);
    writes_so(s, AT_POSITION, *which, MARK);
}
static void fails_to_dup(struct side *s) { said(s, dup3(s->common[0], s->common[1], O_APPEND) < 0 ? -errno : 0); }

int data_child(char **word)
{
    int n = (int)write(atoi(word[0]), word[1], MARK);
    return n == MARK ? 0 : errno;
}

/* A child goes on with the descriptor: it writes a mark, after another program was executed or at once. */
static void lets_child(struct side *s, int executes)
{
    char number[16], bytes[MARK + 1] = "";
    int status = -1, own = dup(*a_descriptor(s));
    char *child[] = { "pairs", "child", number, bytes, NULL };
    snprintf(number, sizeof number, "%d", own);
    mark(s, bytes, MARK);
    turn(s);
    if (s->stepwise) {
        take_turns(s, POSITION, own);
        take_turns(s, INODE, own);
        status = write(own, bytes, MARK) == MARK ? 0 : errno << 8;
        give_turns(s);
    } else {
        pid_t pid = fork();
        if (pid == 0) {
            if (executes)
                execv("/proc/self/exe", child);
            _exit(executes ? 127 : data_child(child + 2));
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    said(s, status);
    close(own);
}
static void forks(struct side *s) { lets_child(s, 0); }
static void executes(struct side *s) { lets_child(s, 1); }

const struct call data_calls[] = {
    { "read", reads }, { "pread", reads_at }, { "readv", reads_in_two }, { "write", writes }, { "pwrite", writes_at },
    { "writev", writes_in_two }, { "pwrite a page", writes_page }, { "append", appends }, { "open, write, read", writes_and_reads },
    { "lseek", seeks }, { "copy_file_range", copies }, { "ftruncate", cuts }, { "truncate", cuts_by_name },
    { "open to truncate", empties }, { "fstat", sizes }, { "fsync", syncs }, { "punch a hole", punches },
    { "O_DIRECT", reads_directly }, { "limit", limits }, { "map", maps }, { "map and hold", maps_and_holds },
    { "store", stores_held }, { "munmap", unmaps }, { "close", lets_go }, { "open and hold", holds }, { "dup", dups },
    { "dup2", rotates }, { "dup2", rotates }, { "dup3 that fails", fails_to_dup }, { "fork", forks }, { "exec", executes },
    { "read", reads }, { "pread", reads_at }, { "pwrite", writes_at }, { "pread", reads_at }, { "write", writes },
    { NULL, NULL },
};
