/* What calls answer about redirected files, in number, errno and how far they came: each case natively and under Metamori
 * (corners.h).
 *   answers CASE */
#include "corners.h"
#include <limits.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The last two pages of memory before a hole. */
static char *before_a_hole(void)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 2 * PAGE, PAGE);
    memset(pages, 'h', 2 * PAGE);
    return pages;
}

static void case_vectors(void)
{
    char *end = before_a_hole() + 2 * PAGE, *hole = end;
    struct iovec middle[3] = {{room, 5000}, {hole, 3000}, {room + 5000, 2000}}, first[2] = {{hole, 10}, {room, 10}};
    struct iovec into[3] = {{room, 100}, {end - 1000, 3000}, {room + 5000, 2000}}, empty[3] = {{hole, 0}, {room, 10}, {hole, 0}};
    struct iovec nothing[2] = {{hole, 0}, {NULL, 0}}, negative[2] = {{room, 10}, {room, (size_t)-1}};
    struct iovec most[2] = {{room, 10}, {room, SSIZE_MAX}}, much[2] = {{room, 10}, {end - PAGE, 1ul << 33}};
    static struct iovec many[IOV_MAX + 1];
    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){room + i % 100, 3};
    struct { const char *name; struct iovec *v; int n; } each[] = {
        {"middle", middle, 3}, {"first", first, 2}, {"into", into, 3}, {"empty", empty, 3}, {"nothing", nothing, 2},
        {"negative", negative, 2}, {"most", most, 2}, {"much", much, 2}, {"many", many, IOV_MAX}, {"too many", many, IOV_MAX + 1},
        {"none", many, 0}, {"less", many, -1}, {"nowhere", (struct iovec *)8, 2}, {"across", (struct iovec *)(end - 8), 2},
        {"no list", NULL, 0}};
    scatter(fd);
    for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
        printf("%s\n", each[i].name);
        memset(room, 'a' + (int)i, 2 * PAGE);
        for (int append = 0; append < 2; append++) {
            fcntl(fd, F_SETFL, append ? O_APPEND : 0);
            lseek(fd, 5 * PAGE - 300, SEEK_SET);
            SAY(writev(fd, each[i].v, each[i].n));
            SAY(lseek(fd, 0, SEEK_CUR));
        }
        fcntl(fd, F_SETFL, 0);
        SAY(pwritev(fd, each[i].v, each[i].n, 2 * PAGE + 17));
        SAY(pwritev(fd, each[i].v, each[i].n, -1));
        SAY(pwritev2(fd, each[i].v, each[i].n, 3 * PAGE, 0));
        SAY(pwritev2(fd, each[i].v, each[i].n, 3 * PAGE, RWF_DSYNC));
        SAY(pwritev2(fd, each[i].v, each[i].n, -1, RWF_SYNC));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(lseek(fd, 5 * PAGE - 300, SEEK_SET));
        SAY(readv(fd, each[i].v, each[i].n));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(preadv(fd, each[i].v, each[i].n, 2 * PAGE + 17));
        SAY(preadv(fd, each[i].v, each[i].n, -1));
        SAY(preadv(fd, each[i].v, each[i].n, SIZE * 9));
        SAY(preadv(fd, each[i].v, each[i].n, INT64_MAX));
        SAY(preadv2(fd, each[i].v, each[i].n, -1, 0));
        SAY(preadv2(fd, each[i].v, each[i].n, 7 * PAGE, RWF_HIPRI));
        SAY(preadv2(fd, each[i].v, each[i].n, -2, 0));
        sums("old");
        SAY(ftruncate(fd, SIZE));
        scatter(fd);
    }
}

static void case_one_buffer(void)
{
    char *end = before_a_hole() + 2 * PAGE;
    static const int before[] = {0, 1, 100, PAGE - 1, PAGE, PAGE + 7, 2 * PAGE};
    static const long places[] = {0, 5 * PAGE, 5 * PAGE + 100, 12 * PAGE + 1, SIZE - 50, SIZE, SIZE + 10};
    for (unsigned p = 0; p < sizeof places / sizeof *places; p++)
        for (unsigned i = 0; i < sizeof before / sizeof *before; i++) {
            scatter(fd);
            printf("%ld %d\n", places[p], before[i]);
            memset(end - 2 * PAGE, 'A' + (int)i, 2 * PAGE);
            long wrote;
            SAY(wrote = pwrite(fd, end - before[i], 3 * PAGE, places[p]));
            SAY(pread(fd, end - before[i], 3 * PAGE, places[p]));
            SAY(lseek(fd, places[p], SEEK_SET));
            SAY(read(fd, end - before[i], 3 * PAGE));
            SAY(lseek(fd, places[p], SEEK_SET));
            SAY(write(fd, end - before[i], 3 * PAGE));
            SAY(lseek(fd, 0, SEEK_CUR));
            SAY(pwrite(fd, end, 0, places[p]));
            SAY(pread(fd, end, 0, places[p]));
            if (wrote >= 0)            /* a file that grew before it failed: limits.md */
                sums("old");
            SAY(ftruncate(fd, SIZE));
        }
}

static void case_places(void)
{
    static const off_t places[] = {-1, -2, INT64_MIN, INT64_MAX, INT64_MAX - 1, INT64_MAX - 4095};
    scatter(fd);
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        struct iovec v = {room, 10};
        SAY(pread(fd, room, 10, places[i]));
        SAY(pread(fd, room, 0, places[i]));
        SAY(pwrite(fd, room, 10, places[i]));
        SAY(pwrite(fd, room, 0, places[i]));
        SAY(preadv(fd, &v, 1, places[i]));
        SAY(pwritev(fd, &v, 1, places[i]));
        SAY(ftruncate(fd, places[i]) < 0);
        SAY(truncate("old", places[i]) < 0);
        SAY(lseek(fd, places[i], SEEK_SET) < 0);
        SAY(lseek(fd, places[i], SEEK_CUR) < 0);
        SAY(lseek(fd, 0, SEEK_SET));
        SAY(lseek(fd, places[i], SEEK_DATA));
        SAY(lseek(fd, places[i], SEEK_HOLE));
        SAY(posix_fadvise(fd, places[i], 10, POSIX_FADV_WILLNEED));
        SAY(posix_fadvise(fd, 0, places[i], POSIX_FADV_WILLNEED));
        SAY(readahead(fd, places[i], 10));
        SAY(sync_file_range(fd, places[i], 10, SYNC_FILE_RANGE_WRITE));
        SAY(sync_file_range(fd, 10, places[i], SYNC_FILE_RANGE_WRITE));
        SAY(posix_fallocate(fd, places[i], 10));
        SAY(posix_fallocate(fd, 10, places[i]));
        SAY(fallocate(fd, 0, places[i], 10));
        SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10, places[i] < 0 ? places[i] : -3));
    }
    for (int whence = -1; whence < 8; whence++)
        SAY(lseek(fd, 3, whence));
    SAY(sync_file_range(fd, 0, 0, 64));
    SAY(posix_fadvise(fd, 0, 0, 77));
    SAY(fallocate(fd, 1 << 20, 0, 10));
    sums("old");
}

static void case_wrong_descriptors(void)
{
    int reads = open("old", O_RDONLY), writes = open("old", O_WRONLY), neither = open("old", O_PATH), folder = open(".", O_RDONLY);
    int both = open("old", 3), ends[2];
    struct iovec v = {room, 10};
    struct { int fd; } each[] = {{reads}, {writes}, {neither}, {folder}, {both}, {-1}, {999}};
    SAY(pipe(ends));
    scatter(fd);
    for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
        int f = each[i].fd;
        printf("%u\n", i);
        SAY(read(f, room, i == 1 || i > 3 ? 10 : 0));
        SAY(write(f, room, i == 1 ? 0 : 10));
        SAY(pread(f, (char *)8, 10, -1));
        SAY(pwrite(f, (char *)8, 10, -1));
        SAY(preadv2(f, &v, 1, 0, RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND));
        SAY(pwritev2(f, &v, 1, 0, RWF_APPEND | RWF_NOAPPEND));
        SAY(pwritev2(f, &v, 1, 0, 1 << 29 | RWF_APPEND | RWF_NOAPPEND));
        SAY(preadv2(f, &v, 1, 0, 1 << 29 | RWF_APPEND | RWF_NOAPPEND));
        SAY(preadv2(f, &v, 1, 0, RWF_APPEND | RWF_NOAPPEND));
        SAY(ftruncate(f, SIZE));
        SAY(fallocate(f, 0, 0, SIZE));
        SAY(posix_fallocate(f, 0, SIZE));
        SAY(fsync(f));
        SAY(fdatasync(f));
        SAY(sync_file_range(f, 0, 10, 0));
        SAY(posix_fadvise(f, 0, 10, POSIX_FADV_NORMAL));
        SAY(readahead(f, 0, 10));
        SAY(copy_file_range(f, NULL, fd, NULL, 10, 0));
        SAY(copy_file_range(fd, NULL, f, NULL, 10, 0));
        SAY(copy_file_range(fd, NULL, f, NULL, 10, 4));
        SAY(sendfile(f, fd, NULL, 10));
        SAY(sendfile(ends[1], f, NULL, 10));
        SAY(splice(f, NULL, ends[1], NULL, 10, 0));
        SAY(splice(ends[0], NULL, f, NULL, 10, SPLICE_F_NONBLOCK));
        SAY(tee(f, ends[1], 10, SPLICE_F_NONBLOCK));
        SAY(vmsplice(f, &v, 1, 0));
        SAY(fchmod(f, 0644));
        SAY(lseek(f, 0, SEEK_SET));
        SAY(dup3(f, f, 0));
        SAY(dup3(f, 900, 77));
        SAY(fcntl(f, F_GETFL));
        SAY(fcntl(f, F_SETFL, O_NONBLOCK));
        SAY(fcntl(f, F_GETFD));
        SAY(fcntl(f, F_GETLK, &(struct flock){.l_type = F_WRLCK}));
        SAY(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE));
        SAY(fcntl(f, F_GET_SEALS));
    }
    sums("old");
}

static void case_numbers(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    SAY(setrlimit(RLIMIT_NOFILE, &limit));
    scatter(fd);
    SAY(fcntl(fd, F_DUPFD, 64));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 64));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, -1));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 1 << 30));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 63));
    SAY(fcntl(63, F_GETFD));
    SAY(fcntl(fd, F_DUPFD_CLOEXEC, 63));
    SAY(dup2(fd, 64));
    SAY(dup3(fd, 64, O_CLOEXEC));
    SAY(dup2(fd, 62));
    SAY(dup3(fd, 61, O_CLOEXEC | O_NONBLOCK));
    SAY(dup3(fd, 61, O_CLOEXEC));
    SAY(write(61, "by 61", 5));
    SAY(lseek(62, 0, SEEK_CUR));
    SAY(close_range(61, 60, 0));
    SAY(close_range(61, 63, 8));
    SAY(close_range(62, 62, CLOSE_RANGE_CLOEXEC));
    SAY(fcntl(62, F_GETFD));
    SAY(close_range(61, 63, 0));
    SAY(close(61));
    SAY(fcntl(fd, F_SETFL, O_APPEND | O_NOATIME | O_ASYNC));
    SAY(fcntl(fd, F_GETFL));
    SAY(write(fd, "at the end", 10));
    SAY(pwrite(fd, "there too", 9, 4));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_SETFL, O_RDONLY));
    SAY(fcntl(fd, F_GETFL));
    SAY(pwrite(fd, "in place", 8, 4));
    SAY(open("old", O_RDWR | O_EXCL | O_CREAT, 0600));
    SAY(open("old", O_RDWR | O_DIRECTORY));
    SAY(open(".", O_RDWR));
    SAY(open(".", O_TMPFILE | O_RDONLY, 0600));
    SAY(open("old/", O_RDWR));
    SAY(open("none", O_TMPFILE | O_RDWR, 0600));
    sums("old");
}

static void case_data_and_holes(void)
{
    int f = open("holes", O_RDWR | O_CREAT, 0644);
    SAY(ftruncate(f, 40 * PAGE));
    pwrite(f, room, PAGE, 8 * PAGE), pwrite(f, room, 2 * PAGE, 20 * PAGE), pwrite(f, "end", 3, 40 * PAGE - 3);
    fsync(f);
    for (int round = 0; round < 3; round++) {
        metamori_checkpoint();
        for (long at = 0; at <= 41 * PAGE; at += PAGE - 1) {
            SAY(lseek(f, at, SEEK_DATA));
            SAY(lseek(f, at, SEEK_HOLE));
        }
        SAY(lseek(f, 0, SEEK_CUR));
        pwrite(f, "x", 1, (9 + round) * PAGE + 5), pwrite(f, room, PAGE, (30 + 2 * round) * PAGE), pwrite(f, room, 100, 21 * PAGE - 50);
        fsync(f);
    }
    sums("holes");
}

static void say_statx(const char *name, unsigned mask, int flags)
{
    struct statx st;
    memset(&st, 0, sizeof st);
    int r = statx(*name ? AT_FDCWD : fd, name, flags, mask, &st);
    printf("%x %x: %d %s %llu %o %u, %d %d\n", mask, flags, r, r < 0 ? strerrorname_np(errno) : "", (unsigned long long)st.stx_size,
           st.stx_mode, st.stx_nlink, st.stx_mtime.tv_sec != 0, st.stx_ctime.tv_sec != 0);
}

static void case_statx(void)
{
    static const unsigned masks[] = {0, STATX_SIZE, STATX_MTIME, STATX_BASIC_STATS, STATX_ALL, 1u << 31, ~0u & ~(1u << 31)};
    scatter(fd);
    pwrite(fd, "more", 4, SIZE + 100);
    SAY(symlink("old", "link"));
    for (unsigned i = 0; i < sizeof masks / sizeof *masks; i++) {
        say_statx("old", masks[i], 0), say_statx("", masks[i], AT_EMPTY_PATH), say_statx("", masks[i], 0);
        say_statx("link", masks[i], AT_SYMLINK_NOFOLLOW), say_statx("link", masks[i], AT_STATX_FORCE_SYNC);
        say_statx("old", masks[i], AT_STATX_DONT_SYNC), say_statx("old", masks[i], AT_STATX_SYNC_TYPE);
        say_statx("old", masks[i], 1 << 30), say_statx("none", masks[i], 0), say_statx("old/x", masks[i], 0);
    }
    SAY(statx(AT_FDCWD, "old", 0, STATX_SIZE, (struct statx *)8));
    SAY(statx(AT_FDCWD, (char *)8, 0, STATX_SIZE, (struct statx *)room));
    SAY(fstat(fd, (struct stat *)8));
    SAY(stat("old", (struct stat *)8));
}

static void in_pipe(int from)
{
    int left = -1;
    ioctl(from, FIONREAD, &left);
    printf("in the pipe: %d\n", left);
}

static void empty(int from)
{
    long total = 0, r;
    unsigned sum = 0;
    for (int left; ioctl(from, FIONREAD, &left) == 0 && left > 0 && (r = read(from, room, sizeof room)) > 0; total += r)
        for (long i = 0; i < r; i++)
            sum = sum * 31 + (unsigned char)room[i];
    printf("emptied: %ld %08x\n", total, sum);
}

/* A pipe takes what it has room for, and whoever sends hears how much that was. */
static void case_to_pipes(void)
{
    alarm(20);
    for (int blocks = 0; blocks < 2; blocks++)
        for (int size = 1; size <= 16; size *= 4) {
            int ends[2];
            printf("%s, %d pages\n", blocks ? "waits" : "does not wait", size);
            SAY(pipe2(ends, blocks ? 0 : O_NONBLOCK));
            SAY(fcntl(ends[1], F_SETPIPE_SZ, size * PAGE));
            scatter(fd);
            SAY(lseek(fd, 100, SEEK_SET));
            SAY(sendfile(ends[1], fd, NULL, SIZE));
            SAY(lseek(fd, 0, SEEK_CUR));
            in_pipe(ends[0]);
            if (!blocks)
                SAY(sendfile(ends[1], fd, NULL, SIZE));
            empty(ends[0]);
            off_t at = 5 * PAGE + 50;
            SAY(sendfile(ends[1], fd, &at, 3 * SIZE));
            SAY(at);
            empty(ends[0]);
            at = SIZE - 30;            /* the end lies in another page, for which a short pipe may have no room */
            SAY(sendfile(ends[1], fd, &at, 30));
            empty(ends[0]);
            SAY(sendfile(ends[1], fd, &at, 100));
            empty(ends[0]);
            SAY(sendfile(ends[1], fd, &at, 100));
            SAY(at);
            at = 3;
            SAY(sendfile(ends[1], fd, &at, 0));
            SAY(splice(fd, &at, ends[1], NULL, SIZE, 0));
            SAY(at);
            in_pipe(ends[0]);
            SAY(splice(fd, &at, ends[1], NULL, SIZE, SPLICE_F_NONBLOCK));
            empty(ends[0]);
            SAY(lseek(fd, 7 * PAGE, SEEK_SET));
            SAY(splice(fd, NULL, ends[1], NULL, 2 * PAGE + 9, 0));
            SAY(lseek(fd, 0, SEEK_CUR));
            empty(ends[0]);
            at = SIZE;
            SAY(splice(fd, &at, ends[1], NULL, SIZE, 0));
            at = -5;
            SAY(sendfile(ends[1], fd, &at, 10));
            SAY(splice(fd, &at, ends[1], NULL, 10, 0));
            signal(SIGPIPE, count);
            close(ends[0]);
            at = 0;
            SAY(sendfile(ends[1], fd, &at, SIZE));
            SAY(splice(fd, &at, ends[1], NULL, SIZE, 0));
            SAY(at);
            SAY(caught);
            close(ends[1]);
        }
}

static void case_from_pipes(void)
{
    int ends[2], more[2];
    SAY(pipe2(ends, O_NONBLOCK));
    SAY(pipe(more));
    scatter(fd);
    for (int round = 0; round < 2; round++) {
        loff_t at = 5 * PAGE + 50;
        SAY(splice(ends[0], NULL, fd, &at, 100, 0));
        SAY(splice(more[0], NULL, fd, &at, 100, SPLICE_F_NONBLOCK));
        memset(room, 'p' + round, SIZE);
        SAY(write(ends[1], room, SIZE));
        SAY(tee(ends[0], more[1], 3 * PAGE, 0));
        in_pipe(more[0]);
        SAY(splice(ends[0], NULL, fd, &at, 10000, 0));
        SAY(at);
        SAY(splice(ends[0], NULL, fd, &at, 3 * SIZE, SPLICE_F_MORE));
        SAY(at);
        SAY(lseek(fd, 11, SEEK_SET));
        SAY(splice(more[0], NULL, fd, NULL, SIZE, SPLICE_F_NONBLOCK));
        SAY(lseek(fd, 0, SEEK_CUR));
        struct iovec v[2] = {{"user", 4}, {room, 5000}};
        SAY(vmsplice(more[1], v, 2, SPLICE_F_NONBLOCK));
        SAY(splice(more[0], NULL, fd, NULL, 4000, 0));
        SAY(splice(more[0], NULL, fd, NULL, 4000, 0));
        SAY(splice(more[0], NULL, fd, NULL, 4000, SPLICE_F_NONBLOCK));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(splice(more[0], NULL, fd, NULL, 0, 0));
        SAY(splice(more[0], NULL, fd, NULL, 10, 1 << 10));
        SAY(splice(more[0], &at, fd, NULL, 10, 0));
        fcntl(fd, F_SETFL, O_APPEND);
        SAY(write(more[1], "appended", 8));
        SAY(splice(more[0], NULL, fd, NULL, 8, 0));
        SAY(sendfile(fd, fd, NULL, 8));
        fcntl(fd, F_SETFL, 0);
        empty(more[0]);
        sums("old");
        metamori_checkpoint();
    }
    close(more[1]);
    SAY(splice(more[0], NULL, fd, NULL, 10, 0));
}

static void case_to_sockets(void)
{
    for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type += type == SOCK_STREAM ? 1 : 3) {
        int pair[2];
        SAY(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, pair));
        scatter(fd);
        off_t at = 5 * PAGE + 50;
        SAY(sendfile(pair[0], fd, &at, 100));
        SAY(at);
        SAY(recv(pair[1], room, SIZE, 0));
        SAY(lseek(fd, SIZE - 10, SEEK_SET));
        SAY(sendfile(pair[0], fd, NULL, 100));
        SAY(sendfile(pair[0], fd, NULL, 100));
        SAY(recv(pair[1], room, SIZE, 0));
        close(pair[1]);
        signal(SIGPIPE, count);
        at = 0;
        SAY(sendfile(pair[0], fd, &at, 100));
        SAY(at);
        SAY(caught);
        close(pair[0]);
    }
}

static void case_copies(void)
{
    static const struct { off_t from, to; size_t count; unsigned flags; } each[] = {
        {0, 100, 100, 0}, {0, 99, 100, 0}, {50, 0, 100, 0}, {0, 0, 10, 0}, {0, SIZE, 0, 0}, {SIZE, 0, 10, 0}, {SIZE - 5, 0, 10, 0},
        {SIZE - 5, SIZE - 5, 10, 0}, {-1, 0, 10, 0}, {0, -1, 10, 0}, {INT64_MAX, 0, 10, 0}, {0, INT64_MAX, 10, 0},
        {0, INT64_MAX - 5, 10, 0}, {0, SIZE, SIZE_MAX, 0}, {0, SIZE, SSIZE_MAX, 0}, {10, SIZE, SSIZE_MAX, 0}, {0, SIZE, 10, 1}, {5 * PAGE, SIZE, 9 * PAGE, 0}};
    for (int same = 0; same < 2; same++)
        for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
            int to = open(same ? "old" : "twin", O_RDWR);
            off_t from = each[i].from, at = each[i].to;
            scatter(fd), scatter(to);
            printf("%u, %s\n", i, same ? "itself" : "another");
            SAY(copy_file_range(fd, &from, to, &at, each[i].count, each[i].flags));
            printf("%ld %ld\n", (long)from, (long)at);
            if (each[i].from >= 0 && each[i].from <= SIZE && each[i].to >= 0 && each[i].to <= SIZE) {
                lseek(fd, each[i].from, SEEK_SET), lseek(to, each[i].to, SEEK_SET);
                SAY(copy_file_range(fd, NULL, to, NULL, each[i].count, each[i].flags));
                printf("%ld %ld\n", (long)lseek(fd, 0, SEEK_CUR), (long)lseek(to, 0, SEEK_CUR));
                from = each[i].from;
                lseek(to, 2 * SIZE, SEEK_SET);
                if (!same)             /* it would send what it has sent */
                    SAY(sendfile(to, fd, &from, each[i].count));
                printf("%ld %ld\n", (long)from, (long)lseek(to, 0, SEEK_CUR));
            }
            if (each[i].from > SIZE) {
                from = each[i].from;
                SAY(sendfile(to, fd, &from, each[i].count));
                SAY(sendfile(-1, fd, &from, each[i].count));
            }
            sums("old"), sums("twin");
            ftruncate(fd, SIZE), ftruncate(to, SIZE);
            close(to);
        }
    off_t most = SIZE;                 /* that can be sought: as far as a file of this filesystem may reach */
    for (off_t step = 1l << 62; step; step >>= 1)
        if (step <= INT64_MAX - most && lseek(fd, most + step, SEEK_SET) >= 0)
            most += step;
    int to = open("twin", O_RDWR);
    for (int before = 10; before >= 0; before -= 5)
        for (size_t count = 0; count < 11; count += 5) {
            off_t from = most - before;
            SAY(sendfile(to, fd, &from, count));
            lseek(fd, most - before, SEEK_SET);
            SAY(sendfile(to, fd, NULL, count));
        }
    close(to);
}

CASES = {
    CASE(vectors), CASE(one_buffer), CASE(places), CASE(wrong_descriptors), CASE(numbers), CASE(data_and_holes), CASE(statx),
    CASE(to_pipes), CASE(from_pipes), CASE(to_sockets), CASE(copies),
};

MAIN
