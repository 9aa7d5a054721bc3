/* Calls that meet each other seldom: each case natively and under Metamori, the same lines and the same files.
 *   corners CASE     in a folder with the files old (65536 bytes), twin (the same) and the folders one, two (each with
 *                    the files a and b of 5000 bytes, and the folder in with the file c) */
#include "corners.h"
#include <spawn.h>
#include <aio.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void case_aio_and_close(void)
{
    struct aiocb one = {.aio_fildes = fd, .aio_offset = 100, .aio_buf = "asynchronous", .aio_nbytes = 12}, two = one;
    const struct aiocb *wait[] = {&one};
    scatter(fd);
    SAY(aio_write(&one));
    SAY(aio_suspend(wait, 1, NULL));
    SAY(aio_error(&one));
    closefrom(3);
    SAY(aio_return(&one));
    SAY(fcntl(fd, F_GETFD));
    SAY(aio_write(&two) ? -1 : 0);
    wait[0] = &two;
    while (aio_error(&two) == EINPROGRESS)
        aio_suspend(wait, 1, NULL);
    SAY(aio_error(&two));
    SAY(aio_return(&two));
    SAY(fd = open("old", O_RDWR));
    two.aio_fildes = fd;
    SAY(aio_read(&(struct aiocb){.aio_fildes = fd, .aio_buf = room, .aio_nbytes = 200}) ? -1 : 0);
    SAY(close_range(3, ~0u, 0));
    SAY(write(fd, "x", 1));
    SAY(fd = open("old", O_RDWR));
    SAY(close_range(3, 100, CLOSE_RANGE_CLOEXEC));
    SAY(fcntl(fd, F_GETFD));
    SAY(pwrite(fd, "after", 5, 20000));
    SAY(close_range(7, 5, 0));
}

static void case_size_limit(void)
{
    static const int places[] = {3 * PAGE, 3 * PAGE + 1, 8 * PAGE - 7};
    signal(SIGXFSZ, count);
    scatter(fd);
    metamori_checkpoint();
    for (int i = 0; i < 3; i++) {
        struct rlimit limit = {places[i], RLIM_INFINITY};
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
        struct iovec v[3] = {{"before", 6}, {room, 2000}, {"after", 5}};
        memset(room, 'a' + i, 2000);
        SAY(pwritev(fd, v, 3, places[i] - 1000));
        SAY(caught);
        SAY(pwritev(fd, v, 3, places[i] - 3));
        SAY(pwritev(fd, v, 3, places[i]));
        SAY(caught);
        SAY(lseek(fd, places[i] - 8, SEEK_SET));
        SAY(writev(fd, v, 3));
        SAY(writev(fd, v, 3));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(pwritev2(fd, v, 3, -1, RWF_APPEND));
        SAY(ftruncate(fd, SIZE + 1));
        SAY(caught);
        SAY(fallocate(fd, 0, places[i] - 1, 2));
        limit.rlim_cur = RLIM_INFINITY;
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
    }
    sums("old");
}

static void case_mapping_outlives(void)
{
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    scatter(fd);
    SAY(close(fd));
    map[100] = 'A';
    metamori_checkpoint();
    map[200] = 'B';
    map = mremap(map, SIZE, 3 * SIZE, MREMAP_MAYMOVE);
    SAY(map == MAP_FAILED ? -1 : 0);
    SAY(truncate("old", 2 * SIZE));
    map[2 * SIZE - 1] = 'C';
    char *other = mremap(map + SIZE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map + 2 * SIZE);
    SAY(other == MAP_FAILED ? -1 : 0);
    metamori_checkpoint();
    other[7] = 'D';
    SAY(rename("old", "renamed"));
    map[5 * PAGE] = 'E';
    SAY(unlink("renamed"));
    map[6 * PAGE] = 'F';
    SAY(fd = open("old", O_RDWR | O_CREAT | O_EXCL, 0644));
    SAY(write(fd, map, SIZE));
    SAY(munmap(other, PAGE));
    SAY(munmap(map, SIZE));
}

static void case_collapse_and_insert(void)
{
    static const struct { int mode; long at, length; } each[] = {
        {FALLOC_FL_COLLAPSE_RANGE, PAGE, 2 * PAGE}, {FALLOC_FL_INSERT_RANGE, 3 * PAGE, PAGE},
        {FALLOC_FL_COLLAPSE_RANGE, 5 * PAGE, 20 * PAGE}, {FALLOC_FL_INSERT_RANGE, 100 * PAGE, PAGE},
        {FALLOC_FL_COLLAPSE_RANGE, 100, PAGE}, {FALLOC_FL_INSERT_RANGE, 0, 3 * PAGE},
        {FALLOC_FL_ZERO_RANGE, 3 * PAGE - 10, 2 * PAGE}, {FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, SIZE, SIZE},
        {FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * PAGE + 7, 2 * PAGE}, {FALLOC_FL_PUNCH_HOLE, 0, 10},
        {FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE, 0, PAGE}, {FALLOC_FL_UNSHARE_RANGE, 0, PAGE}};
    for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
        scatter(fd);
        printf("%u: ", i);
        SAY(fallocate(fd, each[i].mode, each[i].at, each[i].length));
        SAY(lseek(fd, 0, SEEK_END));
        SAY(pread(fd, room, 40, each[i].at - 20 < 0 ? 0 : each[i].at - 20));
        say_bytes("around", room, 40);
        sums("old");
        if (i % 3 == 2)
            metamori_checkpoint();
    }
}

static void case_copy_within(void)
{
    scatter(fd);
    loff_t from = 10, to = 30000;
    SAY(copy_file_range(fd, &from, fd, &to, 7000, 0));
    printf("%ld %ld\n", (long)from, (long)to);
    from = 100, to = 200;
    SAY(copy_file_range(fd, &from, fd, &to, 150, 0));
    from = SIZE - 100, to = 2 * SIZE;
    SAY(copy_file_range(fd, &from, fd, &to, 5000, 0));
    printf("%ld %ld\n", (long)from, (long)to);
    from = 3 * SIZE, to = 0;
    SAY(copy_file_range(fd, &from, fd, &to, 10, 0));
    to = LONG_MAX;
    SAY(copy_file_range(fd, &from, fd, &to, -1, 0));
    SAY(lseek(fd, 50, SEEK_SET));
    to = 60000;
    SAY(copy_file_range(fd, NULL, fd, &to, 20, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(copy_file_range(fd, NULL, fd, NULL, 20, 0));
    int twin = open("twin", O_RDWR | O_APPEND);
    SAY(copy_file_range(fd, NULL, twin, NULL, 20, 0));
    SAY(sendfile(twin, fd, NULL, 20));
    fcntl(twin, F_SETFL, 0);
    SAY(lseek(twin, 8 * PAGE - 5, SEEK_SET));
    metamori_checkpoint();
    SAY(copy_file_range(fd, NULL, twin, NULL, SIZE, 0));
    SAY(lseek(twin, 0, SEEK_CUR));
    from = 5;
    SAY(sendfile(twin, fd, &from, 3 * PAGE));
    printf("%ld\n", (long)from);
    sums("old"), sums("twin");
}

static void case_splice(void)
{
    int ends[2], twin = open("twin", O_RDWR);
    SAY(pipe(ends));
    scatter(fd), scatter(twin);
    for (int round = 0; round < 2; round++) {
        loff_t from = 5 * PAGE, to = 7 * PAGE + 50;
        SAY(splice(fd, &from, ends[1], NULL, 10000, 0));
        printf("%ld\n", (long)from);
        SAY(splice(ends[0], NULL, twin, &to, 4000, SPLICE_F_MOVE));
        printf("%ld\n", (long)to);
        SAY(lseek(twin, 100, SEEK_SET));
        SAY(splice(ends[0], NULL, twin, NULL, SIZE, 0));
        SAY(lseek(twin, 0, SEEK_CUR));
        SAY(splice(ends[0], NULL, twin, NULL, 1, SPLICE_F_NONBLOCK));
        SAY(lseek(fd, SIZE - 20, SEEK_SET));
        SAY(splice(fd, NULL, ends[1], NULL, SIZE, 0));
        SAY(lseek(fd, 0, SEEK_CUR));
        SAY(read(ends[0], room, 100));
        say_bytes("out", room, 30);
        struct iovec v = {"vmspliced", 9};
        SAY(vmsplice(ends[1], &v, 1, 0));
        SAY(splice(ends[0], NULL, fd, &(loff_t){SIZE - 4}, 100, 0));
        SAY(splice(fd, NULL, twin, NULL, 10, 0));
        metamori_checkpoint();
    }
    sums("old"), sums("twin");
}

static void case_flags(void)
{
    struct iovec v[2] = {{"flag", 4}, {"ged", 3}};
    scatter(fd);
    SAY(lseek(fd, 30, SEEK_SET));
    SAY(pwritev2(fd, v, 2, -1, RWF_APPEND));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, v, 2, 50, RWF_APPEND | RWF_DSYNC));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pwritev2(fd, v, 2, 4090, RWF_DSYNC));
    SAY(pwritev2(fd, v, 2, 5000, RWF_SYNC | RWF_DSYNC));
    SAY(lseek(fd, 0, SEEK_END));
    int append = open("old", O_RDWR | O_APPEND);
    long plain = pwritev2(append, v, 2, 60, RWF_NOAPPEND);   /* since Linux 6.9 */
    printf("%s\n", plain == 7 || (plain < 0 && errno == EOPNOTSUPP) ? "as it should" : strerrorname_np(errno));
    SAY(pwritev2(append, v, 2, 60, RWF_NOAPPEND | RWF_APPEND)); SAY(pwritev2(append, v, 2, 60, -1));
    SAY(pwritev2(append, v, 2, 60, 0));
    SAY(pwritev2(append, v, 2, 60, 1 << 30));
    SAY(preadv2(append, v, 0, 60, 1 << 30));
    struct iovec in[2] = {{room, 3}, {room + 3, 30}};
    SAY(preadv2(append, in, 2, 4088, 0));
    say_bytes("read", room, 33);
    SAY(preadv2(append, in, 2, 4088, RWF_APPEND));
    SAY(preadv2(append, in, 2, -1, RWF_HIPRI) < 0 ? -1 : 0);
    SAY(lseek(append, 0, SEEK_CUR) > 0);
    sums("old");
}

static void case_nameless_gets_a_name(void)
{
    char path[40];
    int f = open(".", O_TMPFILE | O_RDWR, 0640), excl = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    SAY(write(f, "nameless", 8));
    metamori_checkpoint();
    SAY(pwrite(f, "NAME", 4, 2));
    snprintf(path, sizeof path, "/proc/self/fd/%d", f);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "old", AT_SYMLINK_FOLLOW));
    metamori_checkpoint();
    SAY(pwrite(f, "xy", 2, 6));
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "one/again", AT_SYMLINK_FOLLOW));
    SAY(unlink("linked"));
    snprintf(path, sizeof path, "/proc/self/fd/%d", excl);
    SAY(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW));
    sums("one/again");
}

static void put(const char *name, const char *words)
{
    int f = open(name, O_WRONLY | O_CREAT, 0644);
    SAY(pwrite(f, words, strlen(words), 50));
    close(f);
}

static void case_exchanged_folders(void)
{
    int a = open("one/a", O_RDWR), inner = open("two/in/c", O_RDWR);
    put("one/a", "in one"), put("two/a", "in two"), put("one/in/c", "inner one");
    metamori_checkpoint();
    put("two/in/c", "inner two"), put("one/new", "new in one"), put("two/new", "new in two");
    SAY(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE));
    put("one/a", "was two's"), put("two/b", "was one's b");
    SAY(pwrite(a, "by descriptor", 13, 4090));
    metamori_checkpoint();
    SAY(unlink("two/a"));
    SAY(rename("one/in", "two/gone"));
    SAY(renameat2(AT_FDCWD, "one", AT_FDCWD, "two/in", RENAME_EXCHANGE));
    SAY(pwrite(inner, "moved twice", 11, 0));
    put("two/in/b", "under another");
    SAY(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE));
    sums("one/in/b"), sums("two/c"), sums("one/gone/c");
}

/* a file whose redirected bytes go to a process that has the descriptor only */
static void case_descriptor_passed(void)
{
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t pid = fork();
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int))]; } control = {0};
    char one = 'x';
    struct iovec v = {&one, 1};
    struct msghdr message = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (!pid) {
        close(fd);
        recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC);
        int got;
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
        printf("place %ld, flags %d\n", (long)lseek(got, 0, SEEK_CUR), fcntl(got, F_GETFD));
        SAY(read(got, room, 10));
        say_bytes("received", room, 10);
        SAY(write(got, "by the child", 12));
        fflush(stdout);
        _exit(0);
    }
    scatter(fd);
    SAY(lseek(fd, 8, SEEK_SET));
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    fflush(stdout);
    sendmsg(pair[0], &message, 0);
    waitpid(pid, NULL, 0);
    SAY(lseek(fd, 0, SEEK_CUR));
    sums("old");
}

/* memory of a device, which cannot be populated: the kernel's clock page (perf writes its rings like that) */
static void case_memory_of_a_device(void)
{
    char line[512], *page = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!page && fgets(line, sizeof line, maps))
        if (strstr(line, "[vvar]"))
            page = (char *)strtoul(line, NULL, 16);
    fclose(maps);
    if (!page)
        return;
    scatter(fd);
    SAY(pwrite(fd, "small ones lie in memory", 24, 4096));
    SAY(pwrite(fd, page, 16, 4099));
    SAY(pread(fd, page, 16, 4099));
    SAY(pwrite(fd, page, 5000, 5000));
    SAY(pwrite(fd, room, 16, 4099));
    SAY(pwrite(fd, room, 5000, 5000));
    sums("old");
}

static void say_blocks(int f, const char *what)
{
    struct stat st;
    struct statx stx;
    fstat(f, &st);
    statx(f, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx);
    printf("%s: %ld bytes, %s, the same by statx: %d\n", what, (long)st.st_size,
           !st.st_blocks ? "no block" : st.st_blocks * 512 < st.st_size ? "with holes" : "no holes",
           stx.stx_blocks == (uint64_t)st.st_blocks);
}

/* by them cp and tar ask whether a file has holes; one with no block at all is not even read */
static void case_blocks(void)
{
    say_blocks(fd, "as it was");
    scatter(fd);
    say_blocks(fd, "scattered");
    int f = open("new", O_RDWR | O_CREAT, 0644);
    say_blocks(f, "new");
    SAY(write(f, "x", 1));
    fsync(f);                          /* where the filesystem gives blocks late */
    say_blocks(f, "a byte");
    SAY(ftruncate(f, 1 << 20));
    say_blocks(f, "a hole behind it");
    SAY(pwrite(f, "y", 1, 1 << 19));
    fsync(f);
    say_blocks(f, "a byte in its middle");
    SAY(pwrite(f, room, sizeof room, 0));
    metamori_checkpoint();
    SAY(pwrite(f, room, sizeof room, 0));
    fsync(f);
    say_blocks(f, "written twice");
    SAY(ftruncate(f, sizeof room));
    say_blocks(f, "cut");
    SAY(ftruncate(f, 0));
    say_blocks(f, "empty");
    close(f);
    f = open("hole", O_RDWR | O_CREAT, 0644);
    SAY(ftruncate(f, 1 << 20));
    metamori_checkpoint();
    say_blocks(f, "a hole only");
    SAY(pwrite(f, "z", 1, 1 << 19));
    fsync(f);
    say_blocks(f, "and a byte");
    close(f);
}

/* What cannot be executed is not opened: a FIFO would wait for its writer. */
static void case_exec_of_a_fifo(void)
{
    char *words[] = { "pipe", NULL };
    int f = open("script", O_RDWR | O_CREAT, 0755);
    write(f, "#!pipe\n", 7);
    close(f);
    alarm(20);
    SAY(mkfifo("pipe", 0755));
    SAY(execv("pipe", words));
    SAY(execv("script", words));
    SAY(execv("one", words));
    SAY(execv("/dev/zero", words));
    printf("spawned: %d\n", posix_spawn(&(pid_t){0}, "pipe", NULL, NULL, words, environ));
}

/* A memfd that is opened by its name in /proc is memory still: sized, sealed and emptied as natively. */
static void case_memfd_by_its_name(void)
{
    char link[40];
    int m = memfd_create("memory", MFD_ALLOW_SEALING);
    snprintf(link, sizeof link, "/proc/self/fd/%d", m);
    SAY(ftruncate(m, 8 * PAGE));
    SAY(pwrite(m, "bytes", 5, PAGE));
    int again = open(link, O_RDWR);
    SAY(pwrite(again, "more", 4, PAGE + 2));
    int emptied = open(link, O_RDWR | O_CREAT | O_TRUNC, 0600);
    SAY(lseek(m, 0, SEEK_END));
    SAY(ftruncate(m, 4 * PAGE));
    SAY(lseek(emptied, 0, SEEK_END));
    SAY(fcntl(m, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW));
    SAY(pwrite(emptied, "x", 1, 0));
    SAY(pwrite(again, "x", 1, 5 * PAGE));
    SAY(ftruncate(again, PAGE));
    SAY(lseek(m, 0, SEEK_END));
}

/* A stream that would rather read from a mapping (glibc's "m") reads what was written, however it was opened. */
static void case_stream_that_maps(void)
{
    char line[12] = "";
    int f = open("old", O_RDWR);
    SAY(pwrite(f, "written", 7, 0));
    FILE *stream = fopen("old", "rm");
    SAY(fgets(line, 8, stream) != NULL);
    say_bytes("fopen", line, 7);
    stream = freopen("old", "rm", stream);
    SAY(fgets(line, 8, stream) != NULL);
    say_bytes("freopen", line, 7);
    SAY(pwrite(f, "again", 5, 3 * PAGE));
    FILE *given = fdopen(open("old", O_RDONLY), "rme");
    SAY(fseek(given, 3 * PAGE, SEEK_SET));
    SAY(fgets(line, 8, given) != NULL);
    say_bytes("fdopen", line, 7);
    SAY(fseek(given, 0, SEEK_END));
    SAY(ftell(given));
    SAY(fdopen(f, "mr") == NULL);
    fclose(given);
    fclose(stream);
}

/* What the kernel refuses is asked for nothing: no name of the root folder is noted before it says so. */
static void case_into_itself(void)
{
    SAY(renameat2(AT_FDCWD, "one", AT_FDCWD, "/", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "/", AT_FDCWD, "one", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "old", AT_FDCWD, "/", RENAME_EXCHANGE));
    SAY(renameat2(AT_FDCWD, "old", AT_FDCWD, "/", RENAME_EXCHANGE | RENAME_NOREPLACE));
    SAY(renameat2(AT_FDCWD, "one/in", AT_FDCWD, "one", RENAME_EXCHANGE));
    SAY(rename("one/a", "one"));
    SAY(rename("one/in", "one"));
    SAY(rename("one", "one/in/deeper"));
    SAY(rename("/", "one"));
}

/* 4095 bytes are the longest that the kernel takes */
static void case_longest_path(void)
{
    char path[5000] = "";
    for (int i = 0; i < 4092; i++)
        path[i] = i < 4088 ? "one/../"[i % 7] : '/';
    strcat(path, "old");
    scatter(fd);
    SAY(rename(path, "moved"));
    SAY(rename("twin", path));
    SAY(truncate(path, 5000));
    SAY(symlink(path, "longer"));
    SAY(chmod("longer", 0604));
    sums("moved"), sums("old");
    path[4095] = '/', path[4096] = 0;
    SAY(unlink(path));
}

/* Who would make a file hears of another reason than who opens it; a name that is refused changes nothing of the file there. */
static void case_refused(void)
{
    struct stat was, is;
    SAY(symlink("old/", "into"));
    SAY(open("into", O_RDWR | O_CREAT, 0644));
    SAY(open("into", O_RDWR));
    SAY(creat("old/new", 0644));
    SAY(stat("one/a", &was));
    usleep(20000);
    SAY(rename("two", "one/a"));
    SAY(stat("one/a", &is));
    SAY(memcmp(&was.st_ctim, &is.st_ctim, sizeof is.st_ctim));
}

/* What is no descriptor, and never can be: nothing is done to the tracked one beside it. */
static void case_no_descriptors(void)
{
    static const int none[] = { -1, -100, INT_MIN, INT_MAX, 1 << 20, 1 << 30 };
    scatter(fd);
    for (unsigned i = 0; i < sizeof none / sizeof *none; i++) {
        printf("%d: ", none[i]);
        SAY(dup2(none[i], fd));
        SAY(dup3(none[i], fd, O_CLOEXEC));
        SAY(dup2(fd, none[i] == 1 << 20 ? -1 : none[i]));
        SAY(close_range(none[i], none[i], 0));
        SAY(close_range(none[i], ~0u, 0));
        SAY(close(none[i]));
        SAY(pwrite(fd, "still there", 11, 100 * i));
    }
    SAY(close_range(~0u, ~0u, CLOSE_RANGE_UNSHARE));
    SAY(close_range(~0u, ~0u, 64));
    sums("old");
}

CASES = {
    CASE(aio_and_close), CASE(size_limit), CASE(mapping_outlives), CASE(collapse_and_insert),
    CASE(copy_within), CASE(splice), CASE(flags), CASE(nameless_gets_a_name), CASE(exchanged_folders),
    CASE(descriptor_passed), CASE(memory_of_a_device), CASE(blocks),
    CASE(exec_of_a_fifo), CASE(memfd_by_its_name), CASE(stream_that_maps), CASE(into_itself), CASE(longest_path), CASE(refused),
    CASE(no_descriptors),
};

MAIN
