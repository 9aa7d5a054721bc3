/* stepped CALL FIRST STRIDE LAST: a call on tracked files, in a child that is killed after so many of its instructions; again, with
 * STRIDE more, to LAST or until the call comes to its end first.  Between two kills the other process, which goes on, looks
 * whether the files are as before the call, as after it, or on the way; writes to them; takes a checkpoint, and says what is in it.
 *
 * In the working folder: `w`, tracked, and `n`, which need not be: there the same call is played as the kernel does it.
 * Says `index I NAME SIZE SUM ...` for each checkpoint, `wrong ...` for what should not be, `kills N` at the end.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <metamori.h>

enum { ROOM = 262144, LENGTH = 45000, FILES = 3, GROWN = 9000 };
static const char *const name[FILES] = { "a", "b", "c" };
struct state { long size[FILES]; unsigned char bytes[FILES][ROOM]; };      /* size -1: it is not there */
static struct state before, after, now;
static unsigned seed = 1;
static long at_step, wrongs;
static int fd;                             /* of `a` */
static int *stage;                         /* of the child: 1 at the call, 2 behind it */

static unsigned next_random(unsigned below) { return (seed = seed * 1103515245 + 12345) / 65536 % below; }

static void wrong(const char *what, int file, long place)
{
    printf("wrong after %ld instructions: %s: %s, byte %ld\n", at_step, file < 0 ? "all" : name[file], what, place);
    wrongs++;
}

static void look(struct state *s)
{
    for (int i = 0; i < FILES; i++) {
        int f = open(name[i], O_RDONLY);
        s->size[i] = f < 0 ? -1 : 0;
        for (long n; f >= 0 && (n = read(f, s->bytes[i] + s->size[i], ROOM - s->size[i])) > 0;)
            s->size[i] += n;
        if (f >= 0)
            close(f);
    }
}

static int same(const struct state *a, const struct state *b)
{
    for (int i = 0; i < FILES; i++)
        if (a->size[i] != b->size[i] || (a->size[i] > 0 && memcmp(a->bytes[i], b->bytes[i], a->size[i])))
            return 0;
    return 1;
}

static void must_be(const struct state *want, const char *when)
{
    static struct state have;
    look(&have);
    for (int i = 0; i < FILES; i++) {
        long k = 0;
        while (k < have.size[i] && k < want->size[i] && have.bytes[i][k] == want->bytes[i][k])
            k++;
        if (have.size[i] != want->size[i] || (k < have.size[i]))
            wrong(when, i, k);
    }
}

static void checkpoint(void)
{
    int index = metamori_checkpoint();
    printf("index %d", index);
    for (int i = 0; i < FILES; i++) {
        uint64_t sum = 14695981039346656037u;
        for (long k = 0; k < now.size[i]; k++)
            sum = (sum ^ now.bytes[i][k]) * 1099511628211u;
        printf(" %s %ld %016llx", name[i], now.size[i], (unsigned long long)sum);
    }
    puts("");
    if (index < 0)
        wrong("no checkpoint", -1, errno);
    must_be(&now, "after the checkpoint");
}

/* Each byte of a file depends on its place and on the round. */
static void fill(const char *path, long size, int number, int chunk)
{
    static unsigned char bytes[ROOM];
    for (long i = 0; i < size; i++)
        bytes[i] = (unsigned char)(1 + (i * 7 + i / 251 + number * 31) % 251);
    int f = open(path, O_RDWR | O_CREAT, 0644);
    ftruncate(f, size);
    for (long at = 0; at < size; at += chunk)
        pwrite(f, bytes + at, at + chunk < size ? chunk : size - at, at);
    close(f);
}

/* -- the calls: each is one, with what it needs to be made ready before it ------------------------------------------- */

static unsigned char text[ROOM];
static int other;
static void *mapped;

static void open_it(void) { fd = open("a", O_RDWR); }
static void open_to_append(void) { fd = open("a", O_RDWR | O_APPEND); }
static void open_twice(void) { open_it(), other = dup(fd); }
static void open_removed(void) { open_it(), unlink("a"); }
static void small(void) { pwrite(fd, text, 100, 4200); }
static void across(void) { pwrite(fd, text, 100, 8150); }
static void large(void) { pwrite(fd, text, 10000, 5000); }
static void whole_blocks(void) { pwrite(fd, text, 16384, 8192); }
static void vector(void) { struct iovec v[2] = { { text, 3000 }, { text + 5000, 6000 } }; pwritev(fd, v, 2, 3000); }
static void append(void) { write(fd, text, 200); }
static void append_more(void) { write(fd, text, 9000); }
static void beyond(void) { pwrite(fd, text, 500, LENGTH + 6000); }
static void shorter(void) { ftruncate(fd, 10000); }
static void short_blocks(void) { ftruncate(fd, 8192); }
static void longer(void) { ftruncate(fd, LENGTH + 20000); }
static void sync_it(void) { fsync(fd); }
static void close_it(void) { close(fd); }
static void end(void) { _exit(0); }
static void dup_it(void) { dup2(fd, 60); }
static void open_other(void) { open("b", O_RDWR); }
static void create(void) { open("c", O_RDWR | O_CREAT, 0600); }
static void renew(void) { open("a", O_RDWR | O_TRUNC); }
static void onto(void) { rename("a", "b"); }
static void away(void) { rename("a", "c"); }
static void exchange(void) { syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2); }
static void linked(void) { link("a", "c"); }
static void removed(void) { unlink("a"); }
static void punch(void) { fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 9000); }
static void map_it(void) { mapped = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); }
static void map_now(void) { open_it(), map_it(); }
static void unmap_it(void) { munmap(mapped, LENGTH); }
static void read_it(void) { pread(fd, text, 9000, 100); }
static void copy(void) { loff_t to = 6000; copy_file_range(other, NULL, fd, &to, 10000, 0); }
static void open_both(void) { open_it(), other = open("b", O_RDONLY); }

static const struct call { const char *name; void (*ready)(void), (*make)(void); long least; } calls[] = {
    { "small", open_it, small, -1 }, { "across", open_it, across, -1 }, { "large", open_it, large, -1 },
    { "blocks", open_it, whole_blocks, -1 }, { "vector", open_it, vector, -1 }, { "append", open_to_append, append, -1 },
    { "append-more", open_to_append, append_more, -1 }, { "beyond", open_it, beyond, -1 }, { "shorter", open_it, shorter, -1 },
    { "short-blocks", open_it, short_blocks, -1 }, { "longer", open_it, longer, -1 }, { "sync", open_it, sync_it, -1 },
    { "close", open_it, close_it, -1 }, { "close-removed", open_removed, close_it, -1 }, { "end", open_it, end, -1 },
    { "dup", open_twice, dup_it, -1 }, { "open", open_it, open_other, -1 }, { "create", open_it, create, -1 },
    { "renew", open_it, renew, 0 }, { "onto", open_it, onto, -1 }, { "away", open_it, away, -1 },
    { "exchange", open_it, exchange, -1 }, { "link", open_it, linked, -1 }, { "unlink", open_it, removed, -1 },
    { "punch", open_it, punch, -1 }, { "map", open_it, map_it, -1 }, { "unmap", map_now, unmap_it, -1 },
    { "read", open_it, read_it, -1 }, { "copy", open_both, copy, -1 },
};

/* -- a round ------------------------------------------------------------------------------------------------------- */

static void stand(void)                    /* by no wrapper */
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "0"((long)SYS_kill), "D"((long)syscall(SYS_getpid)), "S"((long)SIGSTOP)
                     : "rcx", "r11", "memory");
}

/* The call in a child that ends after so many instructions: whether the call was over before. */
static int killed_in(const struct call *call, long steps)
{
    int status, over = 0;
    *stage = 0;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        stand();
        *stage = 1;
        call->make();
        *stage = 2;
        stand();
        for (;;)
            pause();
    }
    waitpid(child, &status, 0);
    long n = 0;
    while (n < steps && !over) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) < 0 || waitpid(child, &status, 0) != child)
            break;
        n += *stage != 0;
        over = *stage == 2 || WIFEXITED(status) || WIFSIGNALED(status);
    }
    at_step = n;
    if (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return over;
}

/* What was found is on the way from one to the other. */
static void on_the_way(const struct call *call)
{
    if (same(&now, &before) || same(&now, &after))
        return;
    for (int i = 0; i < FILES; i++) {
        long was = before.size[i], is = after.size[i], low = was < is ? was : is, high = was < is ? is : was, size = now.size[i];
        if (was < 0 || is < 0) {
            if (size != was && size != is)
                wrong("size", i, size);
            continue;
        }
        if (call->least >= 0 && call->least < low)
            low = call->least;
        if (size < low || size > high)
            wrong("size", i, size);
        for (long k = 0; k < size; k++)
            if (!(k < was && now.bytes[i][k] == before.bytes[i][k]) && !(k < is && now.bytes[i][k] == after.bytes[i][k])) {
                wrong(k < was ? "neither old nor new" : "neither nothing nor new", i, k);
                break;
            }
    }
}

/* Longer, and written to at places: nothing but zeros and that is there. */
static void go_on(void)
{
    for (int i = 0; i < FILES; i++) {
        if (now.size[i] < 0)
            continue;
        int f = open(name[i], O_RDWR);
        long size = now.size[i] + GROWN;
        memset(now.bytes[i] + now.size[i], 0, GROWN);
        ftruncate(f, now.size[i] = size);
        must_be(&now, "grown");
        for (int k = 0; k < 3; k++) {
            long at = next_random((unsigned)size), length = 1 + next_random(k == 0 ? 9000 : 300);
            if (at + length > ROOM)
                continue;
            memset(text, 1 + (int)next_random(250), (size_t)length);
            pwrite(f, text, (size_t)length, at);
            if (at + length > now.size[i])
                now.size[i] = at + length;
            memcpy(now.bytes[i] + at, text, (size_t)length);
        }
        close(f);
    }
    must_be(&now, "written to");
}

static void prepare(int number, int known)
{
    fill("a", LENGTH, number, 6000), fill("b", LENGTH - 7000, number + 1, 3000), unlink("c");
    if (known) {
        look(&now);
        checkpoint();
    }
    if (number % 2 == 0)                   /* some of it is redirected in this interval */
        fill("a", LENGTH, number + 2, number % 3 ? 700 : 5000);
}

static void play(const struct call *call, int number, int where, int known)
{
    fchdir(where);
    seed = (unsigned)number;
    prepare(number, known);
    memset(text, 251, sizeof text);
    for (int i = 0; i < LENGTH; i++)
        text[i] = (unsigned char)(252 + i % 4);
    call->ready();
}

static void leave(void)
{
    close(fd);
    if (other > 0)
        close(other);
    if (mapped)
        munmap(mapped, LENGTH);
    other = 0, mapped = NULL;
}

int main(int argc, char **argv)
{
    const struct call *call = calls;
    while (argc > 4 && strcmp(call->name, argv[1]))
        if (++call == calls + sizeof calls / sizeof *calls)
            return 2;
    long first = atol(argv[2]), stride = atol(argv[3]), last = atol(argv[4]), number = 0;
    int here = open("w", O_RDONLY), there = open("n", O_RDONLY), over = 0;
    stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (long steps = first; steps <= last && !over; steps += stride, number++) {
        play(call, (int)number, there, 0);
        look(&before);
        fflush(stdout);
        if (fork() == 0) {                 /* a call may end its process */
            call->make();
            _exit(0);
        }
        wait(NULL);
        look(&after);
        leave();
        play(call, (int)number, here, number % 4 != 3);
        must_be(&before, "made ready");
        over = killed_in(call, steps);
        look(&now);
        on_the_way(call);
        go_on();
        checkpoint();
        leave();
    }
    printf("kills %ld, of %ld instructions%s\n", number, at_step, over ? ", the call ended" : "");
    return wrongs != 0;
}
