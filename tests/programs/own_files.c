/* Threads, each with files of its own in one folder: whatever the others do, each sees exactly what it did itself.
 *
 * own_files THREADS STEPS CHECKPOINTS: each opens, writes, reads, truncates, renames and unlinks its files and compares
 * every answer with what it remembers; and appends small records to a file, never looking back. The first thread
 * checkpoints meanwhile; nobody ends before it has done so often enough. Says how many checkpoints and how many wrong
 * answers there were.
 */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

int metamori_checkpoint(void) __attribute__((weak));

enum { ROOM = 40000, FILES = 3, LOG = 400000 };
struct one {
    char name[32];
    int exists, fd;
    long size;
    unsigned char bytes[ROOM];
};
static int steps, wanted;
static atomic_int taken, failed, wrong;

static void check(const struct one *f, const char *what, long have, long want)
{
    if (have == want)
        return;
    fprintf(stderr, "%s: %s: have %ld, want %ld (%s)\n", f->name, what, have, want, strerror(errno));
    atomic_fetch_add(&wrong, 1);
}

static void resized(struct one *f, long size)
{
    if (size > f->size)
        memset(f->bytes + f->size, 0, size - f->size);
    f->size = size;
}

static void open_or_close(struct one *f, int truncate)
{
    struct stat st = { .st_size = -1 };
    if (f->fd >= 0) {
        check(f, "close", close(f->fd), 0);
        f->fd = -1;
        return;
    }
    f->fd = open(f->name, O_RDWR | O_CREAT | (truncate ? O_TRUNC : 0), 0644);
    if (!f->exists || truncate)
        f->exists = 1, f->size = 0;
    fstat(f->fd, &st);
    check(f, "size after open", st.st_size, f->size);
}

static void unlinked(struct one *f)
{
    check(f, "unlink", unlink(f->name), 0);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1, f->exists = 0, f->size = 0;
}

static void renamed(struct one *f, struct one *to)
{
    check(f, "rename", rename(f->name, to->name), 0);
    memcpy(to->bytes, f->bytes, ROOM);
    to->size = f->size, to->exists = 1;
    f->exists = 0, f->size = 0;
}

static void written(struct one *f, unsigned *seed, long at, long n)
{
    unsigned char bytes[15000];
    for (long i = 0; i < n; i++)
        bytes[i] = rand_r(seed);
    check(f, "pwrite", pwrite(f->fd, bytes, n, at), n);
    if (n && at + n > f->size)
        resized(f, at + n);
    memcpy(f->bytes + at, bytes, n);
}

static void compared(struct one *f, int fd, long at, long n)
{
    unsigned char bytes[ROOM];
    long want = at >= f->size ? 0 : f->size - at < n ? f->size - at : n;
    check(f, "pread", pread(fd, bytes, n, at), want);
    check(f, "what was read", memcmp(bytes, f->bytes + at, want), 0);
}

static void step(struct one *files, unsigned *seed)
{
    struct one *f = &files[rand_r(seed) % FILES], *to = &files[rand_r(seed) % FILES];
    int what = rand_r(seed) % 10, at = rand_r(seed) % 20000, small = rand_r(seed) % 3;
    if (what < 2)
        open_or_close(f, rand_r(seed) % 3 == 0);
    else if (what == 2 && f->exists)
        unlinked(f);
    else if (what == 3 && f->exists && f != to && f->fd < 0 && to->fd < 0)
        renamed(f, to);
    else if (what == 4 && f->fd >= 0) {
        check(f, "ftruncate", ftruncate(f->fd, 2 * at), 0);
        resized(f, 2 * at);
    } else if (what > 4 && what < 8 && f->fd >= 0)
        written(f, seed, at, rand_r(seed) % (small ? 300 : 15000));
    else if (what > 7 && f->fd >= 0)
        compared(f, f->fd, at, rand_r(seed) % 20000);
}

static void *working(void *which)
{
    long me = (long)which, logged = 0;
    unsigned seed = 7919 * me + 17;
    struct one *files = calloc(FILES, sizeof *files);
    char record[500], log_name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(files[i].name, sizeof files[i].name, "own%ld.%d", me, i);
        files[i].fd = -1;
    }
    snprintf(log_name, sizeof log_name, "log%ld", me);
    int log = open(log_name, O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < steps || (taken < wanted && !failed); i++) {
        step(files, &seed);
        memset(record, 'a' + logged % 26, sizeof record);
        check(&files[0], "log", pwrite(log, record, sizeof record, logged++ * sizeof record % LOG), sizeof record);
        if (me == 0 && taken < wanted && i % 50 == 0)
            metamori_checkpoint() > 0 ? atomic_fetch_add(&taken, 1) : atomic_fetch_add(&failed, 1);
    }
    for (int i = 0; i < FILES; i++) {
        if (files[i].exists) {
            int fd = open(files[i].name, O_RDONLY);
            compared(&files[i], fd, 0, ROOM);
            close(fd);
        }
    }
    return NULL;
}

int main(int count, char **word)
{
    (void)count;
    pthread_t id[64];
    int threads = atoi(word[1]);
    steps = atoi(word[2]), wanted = atoi(word[3]);
    for (long i = 0; i < threads; i++)
        pthread_create(&id[i], NULL, working, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(id[i], NULL);
    printf("%d checkpoints, %d failed, %d wrong\n", taken, failed, wrong);
    return failed || wrong;
}
