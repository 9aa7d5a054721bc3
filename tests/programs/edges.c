/* What the kernel refuses at the edge of what a call can be given: each case natively and under Metamori (corners.h).
 *   edges CASE */
#include "corners.h"
#include <fts.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* lists that cannot be read, or end where memory does */
static void case_exec_lists(void)
{
    static char *argv[] = {"true", NULL};
    char *good[] = {"A=1", NULL}, *bad[] = {"A=1", (char *)8, NULL};
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char **last = (char **)(pages + PAGE) - 1, *unended = pages + PAGE - 4;
    munmap(pages + PAGE, PAGE);
    *last = "A=1";
    memcpy(unended - PAGE / 2, "B=2", 4);
    scatter(fd);
    SAY(execve("/bin/true", argv, (char **)8));
    SAY(execve("/bin/true", argv, (char **)-1l));
    SAY(execve("/bin/true", argv, bad));
    SAY(execve("/bin/true", argv, last));
    SAY(execve("/bin/true", (char **)8, good));
    SAY(execve("/bin/true", bad, good));
    SAY(execve((char *)8, argv, good));
    SAY(execve("/none", argv, (char **)8));
    SAY(execveat(AT_FDCWD, "/bin/true", argv, bad, 0));
    SAY(execveat(fd, "", argv, (char **)8, AT_EMPTY_PATH));
    SAY(fexecve(fd, argv, bad));
    SAY(syscall(SYS_execve, "/bin/true", argv, (char **)8));
    memcpy(unended, "B=22", 4);
    bad[0] = unended;
    SAY(execve("/bin/true", argv, bad));
    SAY(pwrite(fd, "still here", 10, 100));
    fflush(stdout);
    if (!fork())
        _exit(execve("/bin/true", argv, NULL));
    int status = -1;
    wait(&status);
    SAY(status);
}

static void case_clone3(void)
{
    struct clone_args how = {.exit_signal = SIGCHLD};
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + PAGE, PAGE);
    scatter(fd);
    SAY(syscall(SYS_clone3, 8, sizeof how));
    SAY(syscall(SYS_clone3, -1l, sizeof how));
    SAY(syscall(SYS_clone3, pages + PAGE - 16, sizeof how));
    SAY(syscall(SYS_clone3, NULL, sizeof how));
    SAY(syscall(SYS_clone3, &how, 8));
    SAY(syscall(SYS_clone3, &how, 1 << 20));
    fflush(stdout);
    long pid = syscall(SYS_clone3, &how, sizeof how);
    if (!pid)
        _exit(pwrite(fd, "the child's", 11, 200) == 11 ? 7 : 8);
    int status = -1;
    waitpid((pid_t)pid, &status, 0);
    SAY(WEXITSTATUS(status));
    sums("old");
}

/* a lease for reading wants nobody who writes, one for writing nobody else at all */
static void case_leases(void)
{
    signal(SIGIO, SIG_IGN);
    int one = open("twin", O_RDONLY), other;
    SAY(fcntl(one, F_SETLEASE, F_RDLCK));
    SAY(fcntl(one, F_GETLEASE));
    SAY(fcntl(one, F_SETLEASE, F_UNLCK));
    scatter(fd);
    metamori_checkpoint();
    scatter(fd);
    SAY(pread(fd, room, 100, 5 * PAGE));
    SAY(fcntl(fd, F_SETLEASE, F_RDLCK));
    SAY(fcntl(fd, F_SETLEASE, F_WRLCK));
    SAY(fcntl(fd, F_GETLEASE));
    SAY(fcntl(fd, F_SETLEASE, F_UNLCK));
    other = open("old", O_RDONLY);
    SAY(pread(other, room, 100, 5 * PAGE));
    SAY(fcntl(fd, F_SETLEASE, F_WRLCK));
    SAY(fcntl(other, F_SETLEASE, F_RDLCK));
    close(fd);
    SAY(fcntl(other, F_SETLEASE, F_RDLCK));
    SAY(fcntl(other, F_GETLEASE));
    SAY(fcntl(other, F_SETLEASE, F_UNLCK));
    SAY(fcntl(other, F_SETLEASE, F_WRLCK));
    SAY(fcntl(other, F_SETLEASE, F_UNLCK));
    SAY(fcntl(other, F_SETLEASE, 77));
    metamori_checkpoint();
    fd = open("old", O_WRONLY);
    SAY(pwrite(fd, "by one that cannot read", 23, 300));
    close(fd);
    SAY(fcntl(other, F_SETLEASE, F_RDLCK));
    SAY(pread(other, room, 23, 300));
    sums("old");
}

/* whoever has a lease for writing writes, cuts and frees without a word to himself */
static void case_leased(void)
{
    signal(SIGIO, count);
    scatter(fd);
    metamori_checkpoint();
    SAY(fcntl(fd, F_SETLEASE, F_WRLCK));
    scatter(fd);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE));
    SAY(ftruncate(fd, SIZE - PAGE - 100));
    SAY(pread(fd, room, 100, 5 * PAGE));
    SAY(fcntl(fd, F_GETLEASE));
    SAY(caught);
    SAY(fcntl(fd, F_SETLEASE, F_UNLCK));
    sums("old");
}

/* a transfer up to the limit, one that begins there, and what lies in the pipe afterwards */
static void case_transfers_at_the_size_limit(void)
{
    int ends[2], left, from = open("twin", O_RDONLY);
    signal(SIGXFSZ, count);
    scatter(fd);
    for (int i = 0; i < 3; i++) {
        loff_t at = 3 * PAGE - 10, source = 0;
        struct rlimit limit = {i == 1 ? 3 * PAGE - 10 : i == 2 ? 2 * PAGE : 3 * PAGE, RLIM_INFINITY};
        SAY(pipe(ends));
        memset(room, 'p', 5000);
        SAY(write(ends[1], room, 5000));
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
        SAY(splice(ends[0], NULL, fd, &at, 5000, 0));
        SAY(at);
        SAY(caught);
        SAY(splice(ends[0], NULL, fd, &at, 5000, 0));
        SAY(caught);
        SAY(ioctl(ends[0], FIONREAD, &left) < 0 ? -1 : left);
        at = 3 * PAGE - 10;
        SAY(copy_file_range(from, &source, fd, &at, 5000, 0));
        SAY(caught);
        SAY(copy_file_range(from, &source, fd, &at, 5000, 0));
        SAY(caught);
        SAY(lseek(fd, 3 * PAGE - 10, SEEK_SET));
        SAY(sendfile(fd, from, NULL, 5000));
        SAY(sendfile(fd, from, NULL, 5000));
        SAY(caught);
        SAY(lseek(fd, 3 * PAGE - 10, SEEK_SET));
        SAY(splice(ends[0], NULL, fd, NULL, 5000, 0));
        SAY(splice(ends[0], NULL, fd, NULL, 5000, 0));
        SAY(caught);
        close(ends[0]), close(ends[1]);
        limit.rlim_cur = RLIM_INFINITY;
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
    }
    sums("old");
}

static void case_allocations_at_the_size_limit(void)
{
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_ZERO_RANGE,
        FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
    static const int limits[] = {SIZE + PAGE, SIZE, SIZE - PAGE, 0};
    signal(SIGXFSZ, count);
    for (unsigned i = 0; i < sizeof modes / sizeof *modes * 4; i++) {
        struct rlimit limit = {limits[i % 4], RLIM_INFINITY};
        scatter(fd);
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
        printf("%d below %d: ", modes[i / 4], limits[i % 4]);
        SAY(fallocate(fd, modes[i / 4], i & 1 ? PAGE : 0, 2 * PAGE));
        SAY(fallocate(fd, modes[i / 4], SIZE - PAGE, 2 * PAGE));
        SAY(lseek(fd, 0, SEEK_END));
        SAY(caught);
        limit.rlim_cur = RLIM_INFINITY;
        SAY(setrlimit(RLIMIT_FSIZE, &limit));
        SAY(ftruncate(fd, SIZE));
        sums("old");
    }
}

/* transfers past the page cache: places, lengths and memory that are not aligned */
static void case_direct(void)
{
    char *memory = aligned_alloc(PAGE, 4 * PAGE);
    memset(memory, 'd', 4 * PAGE);
    scatter(fd);
    metamori_checkpoint();
    int direct = open("old", O_RDWR | O_DIRECT), new = open("new", O_RDWR | O_DIRECT | O_CREAT, 0644);
    for (int i = 0; i < 2; i++) {
        int f = i ? new : direct;
        SAY(pwrite(f, memory, PAGE, 2 * PAGE));
        SAY(pwrite(f, memory, PAGE, 2 * PAGE));
        SAY(pwrite(f, memory, 100, 2 * PAGE));
        SAY(pwrite(f, memory, PAGE, 2 * PAGE + 100));
        SAY(pwrite(f, memory + 1, PAGE, 2 * PAGE));
        SAY(pread(f, memory, PAGE, 2 * PAGE));
        SAY(pread(f, memory, 100, 2 * PAGE));
        SAY(pread(f, memory, PAGE, 2 * PAGE + 100));
        SAY(pread(f, memory + 1, PAGE, 2 * PAGE));
        SAY(pread(f, memory, 100, 5 * SIZE));
        SAY(lseek(f, 2 * PAGE, SEEK_SET));
        SAY(write(f, memory, 10));
        SAY(write(f, memory, PAGE));
        SAY(lseek(f, 2 * PAGE, SEEK_SET));
        SAY(read(f, memory, 10));
        SAY(read(f, memory, PAGE));
        SAY(lseek(f, 0, SEEK_CUR));
        struct iovec v[2] = {{memory, PAGE}, {memory + 2 * PAGE, 512}}, odd[2] = {{memory, PAGE}, {memory + 2 * PAGE, 13}};
        SAY(pwritev(f, v, 2, 4 * PAGE));
        SAY(pwritev(f, odd, 2, 4 * PAGE));
        SAY(preadv(f, v, 2, 4 * PAGE));
        SAY(preadv(f, odd, 2, 4 * PAGE));
        SAY(fcntl(f, F_SETFL, 0));
        SAY(pwrite(f, memory + 1, 100, 2 * PAGE + 100));
        SAY(fcntl(f, F_SETFL, O_DIRECT));
        SAY(pwrite(f, memory + 1, 100, 2 * PAGE + 100));
    }
    sums("old"), sums("new");
}

/* glibc sets O_APPEND by a call inside itself */
static void case_stream_that_appends(void)
{
    int to = open("old", O_RDWR), only = open("old", O_WRONLY), reads = open("old", O_RDONLY);
    FILE *f = fdopen(to, "a+");
    SAY(fcntl(to, F_GETFL) & O_APPEND);
    SAY(lseek(to, 0, SEEK_CUR));
    SAY(fputs("at the end", f));
    SAY(fflush(f));
    SAY(pwrite(to, room, PAGE, 2 * PAGE));
    SAY(fdopen(only, "a+") == NULL);
    SAY(fdopen(reads, "a") == NULL);
    SAY(fcntl(only, F_GETFL) & O_APPEND);
    SAY(pwrite(only, "in between", 10, 3 * PAGE));
    f = fdopen(only, "a");
    SAY(lseek(only, 0, SEEK_CUR));
    SAY(write(only, "behind", 6));
    SAY(lseek(only, 0, SEEK_CUR));
    close(fd);
    const char *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, to, 0);
    SAY(memcmp(map + 3 * PAGE, "in between", 10));
    sums("old");
}

/* What cannot be opened is closed, and not freed: it can be opened again, or closed. */
static void case_stream_not_reopened(void)
{
    FILE *f = fopen("old", "r+"), *g = fopen("twin", "r+");
    SAY(fputs("first", f));
    for (int i = 0; i < 2; i++) {
        int number = fileno(f);
        SAY(freopen("none/such", "w", f) ? 0 : -1);
        SAY(fcntl(number, F_GETFD));
        SAY(fileno(f));
        SAY(fputs("lost", f));
        SAY(fflush(f));
        SAY(freopen("none/such", "r", f) ? 0 : -1);
        SAY(freopen("twin", "w", f) == f);
        SAY(fileno(f) == number);
        SAY(fcntl(number, F_GETFD));
        SAY(fputs("second", f));
        SAY(fflush(f));
        metamori_checkpoint();
    }
    SAY(freopen("old", "not a mode", f) ? 0 : -1);
    SAY(freopen("old", "ae", f) == f);
    SAY(fcntl(fileno(f), F_GETFD));
    SAY(ftell(f));
    SAY(fputs("third", f));
    SAY(fclose(f));
    SAY(freopen("none/such", "r", g) ? 0 : -1);
    SAY(fclose(g));
    g = fopen("twin", "r");
    SAY(freopen("none/such", "r", g) ? 0 : -1);
    SAY(fclose(g));
    fflush(stdout);
    SAY(freopen("none/such", "w", stdout) ? 0 : -1);
    SAY(freopen("old", "w", stdout) == stdout);
    SAY(fileno(stdout));
}

static void use_up_descriptors(int left)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 40;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(0) >= 0)
        ;
    while (left--)
        close(39 - left);
}

static void case_stream_reopened_with_the_last_number(void)
{
    FILE *f = fopen("old", "r+");
    use_up_descriptors(1);
    SAY(fputs("first", f));
    int number = fileno(f);
    SAY(freopen("twin", "r+", f) == f);
    SAY(fileno(f) == number);
    SAY(fputs("second", f));
    SAY(fclose(f));
    sums("old"), sums("twin");
}

/* The bytes have moved when the kernel finds that it cannot say how far. */
static void case_places_that_cannot_be_written(void)
{
    static const off_t at = PAGE;
    off_t *place = (off_t *)&at;
    int from = open("twin", O_RDONLY), ends[2];
    SAY(pipe(ends));
    SAY(copy_file_range(from, NULL, fd, place, PAGE, 0));
    SAY(lseek(from, 0, SEEK_CUR));
    SAY(copy_file_range(from, place, fd, NULL, PAGE, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(sendfile(fd, from, place, PAGE));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(write(ends[1], "piped", 5));
    SAY(splice(ends[0], NULL, fd, place, 5, 0));
    SAY(splice(fd, place, ends[1], NULL, 100, 0));
    SAY(read(ends[0], room, 200));
    SAY(copy_file_range(from, (off_t *)8, fd, NULL, PAGE, 0));
    SAY(sendfile(fd, from, (off_t *)8, PAGE));
    sums("old");
}

static void case_more_than_there_can_be(void)
{
    volatile size_t far = 1ul << 50, farther = 1ul << 62, farthest = SIZE_MAX / 2;
    char *room = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec much = {room, far};
    scatter(fd);
    memset(room, 'm', 2 * PAGE);
    munmap(room + 2 * PAGE, PAGE);
    SAY(pwrite(fd, room, far, 0));
    SAY(pwrite(fd, room, farther, 0));
    SAY(write(fd, room, farthest));
    SAY(pread(fd, room, far, 0));
    SAY(read(fd, room, farthest));
    SAY(pwritev(fd, &much, 1, 0));
    SAY(preadv(fd, &much, 1, 0));
    sums("old");
}

static void case_hole_beyond_what_is_in_place(void)
{
    SAY(pwrite(fd, "far", 3, SIZE + 32 * PAGE));
    SAY(lseek(fd, SIZE - 1, SEEK_HOLE));
    SAY(lseek(fd, SIZE, SEEK_HOLE));
    SAY(lseek(fd, SIZE + 4 * PAGE + 1, SEEK_HOLE));
    SAY(lseek(fd, SIZE + 4 * PAGE + 1, SEEK_DATA));
    SAY(lseek(fd, SIZE + 32 * PAGE, SEEK_HOLE));
}

static void mapped_privately(void)
{
    int own = open("twin", O_RDONLY);
    const char *map = own < 0 ? MAP_FAILED : mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, own, 0);
    SAY(map == MAP_FAILED);
    if (map != MAP_FAILED)
        say_bytes("mapped", map, 20), say_bytes("mapped", map + 5 * PAGE + 90, 20);
}

/* A file that nobody has open for writing, part of it redirected. */
static void case_private_mapping_with_the_last_number(void)
{
    int other = open("twin", O_RDWR);
    scatter(other);
    close(other);
    use_up_descriptors(1);
    mapped_privately();
}

static void case_private_mapping_under_a_size_limit(void)
{
    struct rlimit soft = {PAGE, RLIM_INFINITY};
    int other = open("twin", O_RDWR);
    scatter(other);
    close(other);
    SAY(setrlimit(RLIMIT_FSIZE, &soft));
    mapped_privately();
}

/* a link that fts goes through is what it leads to */
static void case_walks(void)
{
    char *start[] = {"link", NULL};
    SAY(symlink("old", "link"));
    scatter(fd);
    for (int i = 0; i < 4; i++) {
        FTS *walk = fts_open(start, (i & 1 ? FTS_PHYSICAL : FTS_LOGICAL) | (i & 2 ? FTS_COMFOLLOW : 0), NULL);
        for (FTSENT *entry; (entry = fts_read(walk));) {
            printf("%d %d %o %ld\n", i, entry->fts_info, entry->fts_statp->st_mode & S_IFMT, (long)entry->fts_statp->st_size);
            if (entry->fts_info == FTS_SL)
                SAY(fts_set(walk, entry, FTS_FOLLOW));
        }
        fts_close(walk);
    }
}

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static void say_entries(const char *how, const FTSENT *entry, int only)
{
    struct stat st;
    for (; entry; entry = only ? NULL : entry->fts_link) {
        printf("%s %s %d", how, entry->fts_name, entry->fts_info);
        if (entry->fts_info == FTS_F && entry->fts_statp)
            printf(" %ld bytes, %ld names", (long)entry->fts_statp->st_size, (long)entry->fts_statp->st_nlink);
        if (entry->fts_statp && strcmp(entry->fts_name, "sparse") == 0)
            printf(" %d", stat("sparse", &st) == 0 && st.st_blocks == entry->fts_statp->st_blocks);
        puts("");
    }
}

/* what fts tells of entries ahead, and of one whose blocks are looked at once more */
static void case_walks_ahead(void)
{
    char *start[] = {"sparse", "one", NULL};
    int sparse = open("sparse", O_RDWR | O_CREAT, 0600), a = open("one/a", O_RDWR);
    SAY(ftruncate(sparse, 1 << 20));
    SAY(pwrite(sparse, "old", 3, 5000));
    SAY(link("twin", "one/twin"));
    metamori_checkpoint();
    SAY(pwrite(sparse, "new", 3, 5000));
    SAY(pwrite(a, "longer", 6, 6000));
    SAY(unlink("twin"));
    for (int i = 0; i < 4; i++) {
        FTS *walk = fts_open(start, (i & 1 ? FTS_PHYSICAL : FTS_LOGICAL) | (i & 2 ? FTS_NOCHDIR : 0), by_name);
        for (int again = 0; again < 3; again++)
            say_entries("ahead", fts_children(walk, again == 2 ? FTS_NAMEONLY : 0), 0);
        for (FTSENT *entry; (entry = fts_read(walk));) {
            say_entries("there", entry, 1);
            for (int again = 0; again < 2 && entry->fts_info == FTS_D; again++)
                say_entries("below", fts_children(walk, 0), 0);
        }
        fts_close(walk);
    }
}

/* a walk that has no room for what stat says */
static void case_walks_without_stat(void)
{
    char *start[] = {"old", "one", NULL};
    scatter(fd);
    for (int i = 0; i < 2; i++) {
        FTS *walk = fts_open(start, FTS_PHYSICAL | FTS_NOSTAT | (i ? FTS_NOCHDIR : 0), by_name);
        for (FTSENT *entry = fts_children(walk, 0); entry; entry = entry->fts_link)
            printf("ahead %s %d\n", entry->fts_name, entry->fts_info);
        for (FTSENT *entry; (entry = fts_read(walk));)
            printf("%s %s %d\n", entry->fts_path, entry->fts_name, entry->fts_info);
        fts_close(walk);
    }
}

/* how many descriptors the program has, by every call that tells */
static void case_descriptors(void)
{
    struct stat st;
    struct statx more;
    long found[4] = {0};
    scatter(fd);
    for (int i = 0; i < 4096; i++) {
        found[0] += fcntl(i, F_GETFD) >= 0;
        found[1] += fstat(i, &st) == 0;
        found[2] += fstatat(i, "", &st, AT_EMPTY_PATH) == 0;
        found[3] += statx(i, "", AT_EMPTY_PATH, STATX_SIZE, &more) == 0;
    }
    SAY(found[1] == found[0] && found[2] == found[0] && found[3] == found[0]);
}

CASES = {
    CASE(exec_lists), CASE(clone3), CASE(leases), CASE(leased), CASE(transfers_at_the_size_limit),
    CASE(allocations_at_the_size_limit), CASE(direct),
    CASE(stream_that_appends), CASE(stream_not_reopened), CASE(stream_reopened_with_the_last_number),
    CASE(places_that_cannot_be_written), CASE(more_than_there_can_be), CASE(hole_beyond_what_is_in_place),
    CASE(private_mapping_with_the_last_number), CASE(private_mapping_under_a_size_limit),
    CASE(walks), CASE(walks_ahead), CASE(walks_without_stat), CASE(descriptors),
};

MAIN
