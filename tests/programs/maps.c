/* Mappings, asynchronous engines and O_DIRECT, one case a run: prints what the kernel answers. The file "data" has 64 KB;
 * its first half has been overwritten since a checkpoint, so that under Metamori bytes of it are in the buffer. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <metamori.h>

#define PAGE 4096
#define SIZE (16 * PAGE)

static int fd;
static char *map;

static void say(const char *what, long r) { printf("%s: %ld %s\n", what, r, r < 0 ? strerrorname_np(errno) : ""); }
static void mapped(const char *what, void *p) { say(what, p == MAP_FAILED ? -1 : 0); }

static unsigned sum(const char *p, size_t n)
{
    unsigned s = 0;
    for (size_t i = 0; i < n; i++)
        s = s * 31 + (unsigned char)p[i];
    return s;
}

static char *shared(int protection) { return mmap(NULL, SIZE, protection, MAP_SHARED, fd, 0); }

static void told(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d code %d at %ld\n", number, info->si_code, (long)((char *)info->si_addr - map));
    fflush(stdout);
    _exit(7);
}

static void handle(int number)
{
    struct sigaction action = { .sa_sigaction = told, .sa_flags = SA_SIGINFO };
    sigaction(number, &action, NULL);
}

static void case_bus(void) { map = mmap(NULL, 2 * SIZE, PROT_READ, MAP_SHARED, fd, 0); printf("%d\n", map[SIZE + 5]); }
static void case_bus_handled(void) { handle(SIGBUS); case_bus(); }
static void case_bus_after_truncate(void)
{
    handle(SIGBUS);
    map = shared(PROT_READ | PROT_WRITE);
    map[9 * PAGE] = 1;
    ftruncate(fd, PAGE);
    map[9 * PAGE] = 2;
}
static void case_segv(void) { map = shared(PROT_READ); map[3] = 1; }
static void case_segv_handled(void) { handle(SIGSEGV); map = shared(PROT_READ); metamori_checkpoint(); map[PAGE + 3] = 1; }

static void case_refused(void)
{
    int reader = open("data", O_RDONLY), writer = open("data", O_WRONLY);
    mapped("writable of a reader", mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0));
    mapped("private of a reader", mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0));
    mapped("of a writer", mmap(NULL, SIZE, PROT_READ, MAP_SHARED, writer, 0));
    mapped("no length", mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
    mapped("odd place", mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 100));
    mapped("no kind", mmap(NULL, SIZE, PROT_READ, 0, fd, 0));
    mapped("closed", mmap(NULL, SIZE, PROT_READ, MAP_SHARED, 999, 0));
    mapped("validate, unknown flag", mmap(NULL, SIZE, PROT_READ, MAP_SHARED_VALIDATE | 1 << 27, fd, 0));
    mapped("sync", mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
    mapped("huge", mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_HUGETLB, fd, 0));
    mapped("far", mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 1l << 40));
    map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, reader, 0);
    say("protect a reader's", mprotect(map, SIZE, PROT_READ | PROT_WRITE));
    say("remove of a reader's", madvise(map, PAGE, MADV_REMOVE));
}
static void case_msync(void)
{
    map = shared(PROT_READ | PROT_WRITE);
    say("sync", msync(map, SIZE, MS_SYNC));
    say("odd", msync(map + 1, PAGE, MS_SYNC));
    say("both", msync(map, PAGE, MS_SYNC | MS_ASYNC));
    say("unknown", msync(map, PAGE, 64));
    say("lock", mlock(map, PAGE));
    say("invalidate locked", msync(map, PAGE, MS_INVALIDATE));
    say("unlock", munlock(map, PAGE));
    say("invalidate", msync(map, PAGE, MS_INVALIDATE));
    munmap(map + 4 * PAGE, PAGE);
    say("over a hole", msync(map, SIZE, MS_SYNC));
}
static void case_remap(void)
{
    map = shared(PROT_READ | PROT_WRITE);
    char *to = mremap(map, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    mapped("grown", to);
    ftruncate(fd, 2 * SIZE);
    metamori_checkpoint();
    to[2 * SIZE - 1] = 'z';
    to[100] = 'y';
    char *twin = mremap(to, 2 * SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    mapped("twin", twin);
    twin[5 * PAGE] = 'x';
    printf("both show it: %c\n", to[5 * PAGE]);
    mapped("shrunk", mremap(twin, 2 * SIZE, PAGE, 0));
    mapped("not there", mremap(twin + 8 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    metamori_checkpoint();
    twin[50] = 'w';
    say("pages", remap_file_pages(to, PAGE, 0, 3, 0));
    printf("%u\n", sum(to, PAGE));
}
static void case_protect_later(void)
{
    map = shared(PROT_READ);
    printf("%u\n", sum(map, SIZE));
    pwrite(fd, "written", 7, 5 * PAGE + 3);
    printf("%.7s\n", map + 5 * PAGE + 3);
    close(fd);
    metamori_checkpoint();
    say("protect", mprotect(map + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE));
    memcpy(map + 6 * PAGE, "stored", 6);
    munmap(map + 4 * PAGE, 2 * PAGE);
    munmap(map, PAGE);
    metamori_checkpoint();
    memcpy(map + 7 * PAGE, "again", 5);
}
static void case_remove(void)
{
    map = shared(PROT_READ | PROT_WRITE);
    metamori_checkpoint();
    say("remove", madvise(map + PAGE, 2 * PAGE, MADV_REMOVE));
    say("do not need", madvise(map, PAGE, MADV_DONTNEED));
    printf("%u\n", sum(map, SIZE));
    char text[8] = "";
    pread(fd, text, 7, PAGE);
    printf("%d\n", text[0]);
}
static void case_fixed_over(void)
{
    map = shared(PROT_READ | PROT_WRITE);
    map[0] = 'a';
    mapped("over it", mmap(map, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 2 * PAGE));
    map[0] = 'b';
    mapped("anonymous over it", mmap(map + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0));
    map[PAGE] = 'c';
    map[2 * PAGE] = 'd';
    metamori_checkpoint();
    map[3 * PAGE] = 'e';
    char text[4] = "";
    for (int page = 0; page < 4; page++)
        pread(fd, text, 1, page * PAGE), printf("%c ", text[0]);
    puts("");
}
static void case_two_processes(void)
{
    int up[2], down[2];
    char c;
    pipe(up), pipe(down);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int other = open("data", O_RDWR);
        char *its = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
        for (int i = 0; i < 3; i++) {
            read(down[0], &c, 1);
            its[i * PAGE] = its[(i + 4) * PAGE] + 1;
            pwrite(other, "w", 1, (i + 8) * PAGE);
            write(up[1], "x", 1);
        }
        _exit(0);
    }
    map = shared(PROT_READ);
    char *writable = shared(PROT_READ | PROT_WRITE);
    for (int i = 0; i < 3; i++) {
        writable[(i + 4) * PAGE] = 'a' + i;
        metamori_checkpoint();
        write(down[1], "x", 1);
        read(up[0], &c, 1);
        printf("%c%c\n", map[i * PAGE], map[(i + 8) * PAGE]);
    }
    waitpid(pid, NULL, 0);
}
static void case_reader_first(void)
{
    int reader = open("later", O_RDONLY);      /* nobody writes to it yet */
    char *seen = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, reader, 0);
    printf("%c\n", seen[PAGE]);
    int writer = open("later", O_RDWR);
    pwrite(writer, "Q", 1, PAGE);
    printf("%c\n", seen[PAGE]);
    metamori_checkpoint();
    pwrite(writer, "R", 1, PAGE);
    printf("%c\n", seen[PAGE]);
}
static void case_exec_drops(void)
{
    map = shared(PROT_READ | PROT_WRITE);
    memcpy(map + PAGE, "before exec", 11);
    metamori_checkpoint();
    memcpy(map + 2 * PAGE, "after", 5);
    execlp("sh", "sh", "-c", "printf overwritten | dd of=data bs=1 seek=9000 conv=notrunc 2>/dev/null; cksum data", NULL);
}
static void case_aio(void)
{
    static char text[PAGE];
    memset(text, 'i', sizeof text);
    struct aiocb block = { .aio_fildes = fd, .aio_offset = PAGE, .aio_buf = text, .aio_nbytes = PAGE };
    const struct aiocb *list[1] = { &block };
    for (int i = 0; i < 3; i++) {
        block.aio_offset = (2 + i) * PAGE;
        say("write", aio_write(&block));
        while (aio_error(&block) == EINPROGRESS)
            aio_suspend(list, 1, NULL);
        printf("%d %zd\n", aio_error(&block), aio_return(&block));
        metamori_checkpoint();
        text[0]++;
    }
    block.aio_offset = 0;
    say("read", aio_read(&block));
    aio_suspend(list, 1, NULL);
    printf("%zd %u\n", aio_return(&block), sum(text, PAGE));
    say("sync", aio_fsync(O_SYNC, &block));
    aio_suspend(list, 1, NULL);
    printf("%zd\n", aio_return(&block));
    block.aio_fildes = 999;
    say("closed", aio_write(&block));
    aio_suspend(list, 1, NULL);
    printf("%d\n", aio_error(&block));
}

/* a ring by raw system calls, one write at a time */
static void case_ring(void)
{
    struct io_uring_params p = { 0 };
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0) {
        say("no ring here", ring);
        return;
    }
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED,
                    ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, p.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                                        IORING_OFF_SQES);
    int later = open("later", O_RDWR);
    for (int i = 0; i < 4; i++) {
        unsigned *tail = (unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask);
        char text[PAGE];
        memset(text, 'A' + i, sizeof text);
        entries[*tail & mask] = (struct io_uring_sqe){
            .opcode = IORING_OP_WRITE, .fd = i % 2 ? later : fd, .off = (uint64_t)i * PAGE + 100,
            .addr = (uint64_t)(uintptr_t)text, .len = PAGE };
        ((unsigned *)(sq + p.sq_off.array))[*tail & mask] = *tail & mask;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        say("enter", syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0));
        unsigned *head = (unsigned *)(cq + p.cq_off.head), end = *(unsigned *)(cq + p.cq_off.ring_mask);
        printf("%d\n", ((struct io_uring_cqe *)(cq + p.cq_off.cqes))[*head & end].res);
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        metamori_checkpoint();
    }
}
static void direct(int d)
{
    char *buffer = aligned_alloc(PAGE, 4 * PAGE);
    memset(buffer, 'D', 4 * PAGE);
    say("aligned", pwrite(d, buffer, 2 * PAGE, PAGE));
    say("odd length", pwrite(d, buffer, 100, 0));
    say("odd place", pwrite(d, buffer, PAGE, 100));
    say("odd address", pwrite(d, buffer + 1, PAGE, 0));
    say("read odd length", pread(d, buffer, 100, PAGE));
    say("read odd address", pread(d, buffer + 1, PAGE, PAGE));
    say("read", pread(d, buffer, 4 * PAGE, 0));
    printf("%u\n", sum(buffer, 4 * PAGE));
    say("past the end", pread(d, buffer, PAGE, SIZE));
    ftruncate(fd, SIZE - 1000);
    say("read at the end", pread(d, buffer, 4 * PAGE, SIZE - 2 * PAGE));
    memset(buffer, 'E', 4 * PAGE);     /* a direct read leaves what it likes beyond the bytes that it counts */
    metamori_checkpoint();
    say("write", write(d, buffer, PAGE));
    say("write over the end", pwrite(d, buffer, 2 * PAGE, SIZE - PAGE));
    say("size", lseek(d, 0, SEEK_END));
    char *seen = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, d, 0);
    printf("%u\n", sum(seen, SIZE));
    say("write while mapped", pwrite(d, buffer, PAGE, 3 * PAGE));
    say("odd while mapped", pwrite(d, buffer, 77, 3 * PAGE));
    printf("%u\n", sum(seen, SIZE));
}
static void case_direct(void)
{
    int d = open("data", O_RDWR | O_DIRECT);
    say("open", d < 0 ? -1 : 0);
    if (d >= 0)
        direct(d);
}
static void case_direct_later(void)
{
    int flags = fcntl(fd, F_GETFL);
    say("set", fcntl(fd, F_SETFL, flags | O_DIRECT));
    printf("%d\n", (fcntl(fd, F_GETFL) & O_DIRECT) != 0);
    direct(fd);
    say("unset", fcntl(fd, F_SETFL, flags));
    say("odd", pwrite(fd, "odd", 3, 77));
}

#define CASE(name) { #name, case_##name }
static const struct { const char *name; void (*run)(void); } cases[] = {
    CASE(bus), CASE(bus_handled), CASE(bus_after_truncate), CASE(segv), CASE(segv_handled), CASE(refused), CASE(msync),
    CASE(remap), CASE(protect_later), CASE(remove), CASE(fixed_over), CASE(two_processes), CASE(reader_first),
    CASE(exec_drops), CASE(aio), CASE(ring), CASE(direct), CASE(direct_later) };

int main(int count, char **word)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    fd = open("data", O_RDWR);
    metamori_checkpoint();
    static char text[SIZE / 2];
    for (int i = 0; i < SIZE / 2; i++)
        text[i] = 'a' + i / 50 % 26;
    if (fd < 0 || count != 2 || pwrite(fd, text, sizeof text, 0) != sizeof text)
        return 99;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(word[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    return 98;
}
