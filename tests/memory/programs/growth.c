/* growth.c - a random tree of processes that fork, execute, spawn, die, leave orphans, and tell each other what they found:
 * what it prints and writes depends on nothing but the seed.
 *
 *   growth SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)
#define SHARED 64
#define LATER 16
extern char **environ;

static uint64_t *shared;               /* of all that forked; who executes a program has it no more */
static char *self;

struct node { uint64_t random, found; int depth, steps; char name[64]; };
struct child { int from; pid_t pid; };

static uint64_t mixed(uint64_t h, uint64_t with)
{
    h = (h ^ with) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t next(struct node *n) { return (n->random = mixed(n->random, 0x5bd1e995)) >> 8; }

static uint64_t work(uint64_t h, int times)
{
    for (int i = 0; i < times * 30000; i++)
        h = mixed(h, (uint64_t)i);
    return h;
}

static void put(int fd, const void *from, size_t n)
{
    for (ssize_t r; n; n -= (size_t)r, from = (const char *)from + r)
        MUST((r = write(fd, from, n)) > 0);
}

static void grow(struct node *n);

/* What a child does in the end: what it found, and as much more as fills a pipe, or not. */
static void tell(struct node *n, int to)
{
    static char much[200000];
    size_t bytes = next(n) % 3 ? next(n) % 2000 : 70000 + next(n) % 130000;
    memset(much, (int)(n->found & 127), bytes);
    put(to, much, bytes);
    put(to, &n->found, sizeof n->found);
}

static void begin(struct node *n, uint64_t seed, int depth, const char *name)
{
    memset(n, 0, sizeof *n);
    n->random = n->found = mixed(seed, 77);
    n->depth = depth;
    n->steps = 3 + (int)(next(n) % 5);
    snprintf(n->name, sizeof n->name, "%s", name);
}

static void live(uint64_t seed, int depth, const char *name, int to)
{
    struct node n;
    begin(&n, seed, depth, name);
    grow(&n);
    if (to >= 0)
        tell(&n, to);
    if (next(&n) % 6 == 0)
        raise(SIGKILL);
    _exit((int)(n.found & 63));
}

/* The words with which it becomes another program. */
struct words { char seed[24], depth[16], to[16], *argv[7]; };
static void as_words(struct words *w, uint64_t seed, int depth, const char *name, int to)
{
    snprintf(w->seed, sizeof w->seed, "%llu", (unsigned long long)seed);
    snprintf(w->depth, sizeof w->depth, "%d", depth);
    snprintf(w->to, sizeof w->to, "%d", to);
    char *argv[] = { self, w->seed, "child", w->depth, (char *)name, w->to, NULL };
    memcpy(w->argv, argv, sizeof argv);
}

static struct child start(struct node *n, int how, int number)
{
    int ends[2];
    uint64_t seed = next(n);
    struct words w;
    char name[64];
    struct child c;
    snprintf(name, sizeof name, "%.50s.%d", n->name, number);
    MUST((next(n) % 2 ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
    as_words(&w, seed, n->depth + 1, name, ends[1]);
    if (how == 3) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        MUST(posix_spawn(&c.pid, self, &actions, NULL, w.argv, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
    } else if (how == 2) {
        MUST((c.pid = vfork()) >= 0);
        if (c.pid == 0) {
            execv(self, w.argv);
            _exit(98);
        }
    } else {
        MUST((c.pid = fork()) >= 0);
        if (c.pid == 0) {
            close(ends[0]);
            if (how == 1)
                execv(self, w.argv);
            if (how == 4 && fork() != 0)
                _exit(7);              /* an orphan tells */
            live(seed, n->depth + 1, name, ends[1]);
        }
    }
    close(ends[1]);
    c.from = ends[0];
    return c;
}

static void end(struct node *n, struct child c)
{
    static char some[4096];
    int status;
    for (ssize_t r; (r = read(c.from, some, sizeof some)) != 0;) {
        MUST(r > 0);
        for (ssize_t i = 0; i < r; i++)
            n->found = mixed(n->found, (unsigned char)some[i]);
    }
    close(c.from);
    MUST(waitpid(c.pid, &status, 0) == c.pid);
    MUST(!WIFEXITED(status) || WEXITSTATUS(status) < 64);
    n->found = mixed(n->found, (uint64_t)status);
}

static void *counts(void *argument)
{
    uint64_t *h = argument;
    *h = work(*h, 3);
    return NULL;
}

static void write_own(struct node *n)
{
    char other[80];
    FILE *f = fopen(n->name, "a");
    MUST(f && fprintf(f, "%016llx\n", (unsigned long long)n->found) > 0);
    MUST(fclose(f) == 0);
    snprintf(other, sizeof other, "%s.moved", n->name);
    if (next(n) % 3 == 0)
        MUST(rename(n->name, other) == 0);
    else if (next(n) % 5 == 0)
        MUST(truncate(n->name, 10) == 0);
}

static void grow(struct node *n)
{
    struct child later[LATER];
    int waiting = 0, number = 0;
    for (int i = 0; i < n->steps; i++) {
        uint64_t what = next(n) % 8;
        if (what < 3 && n->depth < 3 && waiting < LATER) {
            struct child c = start(n, (int)(next(n) % 5), number++);
            if (next(n) % 2)
                later[waiting++] = c;
            else
                end(n, c);
        } else if (what == 3) {
            uint64_t h[3] = { n->found, n->random, 5 };
            pthread_t thread[3];
            for (int j = 0; j < 3; j++)
                MUST(pthread_create(&thread[j], NULL, counts, &h[j]) == 0);
            for (int j = 0; j < 3; j++) {
                MUST(pthread_join(thread[j], NULL) == 0);
                n->found = mixed(n->found, h[j]);
            }
        } else if (what == 4) {
            uint64_t slot = next(n) % SHARED, more = next(n);
            if (shared)
                __atomic_add_fetch(&shared[slot], more, __ATOMIC_SEQ_CST);
        } else if (what == 5) {
            nanosleep(&(struct timespec){ 0, (long)(next(n) % 5000000) }, NULL);
        } else {
            n->found = work(n->found, 4 + (int)(next(n) % 20));
        }
        write_own(n);
    }
    while (waiting)
        end(n, later[--waiting]);
}

int main(int count, char **words)
{
    self = words[0];
    uint64_t seed = strtoull(words[1], NULL, 10);
    if (count > 2)
        live(seed, atoi(words[3]), words[4], atoi(words[5]));
    shared = mmap(NULL, SHARED * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        struct node n;
        char name[16];
        snprintf(name, sizeof name, "root%d", i);
        begin(&n, seed + (uint64_t)i, 0, name);
        n.steps = 8;
        grow(&n);
        printf("%016llx\n", (unsigned long long)n.found);
        fflush(stdout);
    }
    uint64_t sum = 0;
    for (int i = 0; i < SHARED; i++)
        sum = mixed(sum, shared[i]);
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
