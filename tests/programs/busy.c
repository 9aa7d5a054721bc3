/* Threads that do everything to files at once, each checking what it alone can know; one takes checkpoints.
 *
 * busy SECONDS CHECKPOINTS (0 seconds: until stdin ends): exits with 0 when every check held; says on stdout the first that did not, and exits with 1.
 * A thread has files of its own, whose whole content it knows, and shares one file in which it owns every eighth
 * 512-byte record, and one log to which all append lines.
 */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

enum { THREADS = 8, RECORD = 512, RECORDS = 400, OWN = 20000 };
static int shared, stop, failed;
static long lines[THREADS];

#define CHECK(what)                                                                                             \
    do {                                                                                                        \
        if (!(what) && !__atomic_exchange_n(&failed, 1, __ATOMIC_SEQ_CST))                                      \
            printf("thread %d, line %d: %s (errno %s)\n", me, __LINE__, #what, strerrorname_np(errno));         \
    } while (0)

static unsigned pick(unsigned *seed, unsigned below) { return (*seed = *seed * 1103515245u + 12345u) / 65536 % below; }

/* Overwrite some of the thread's own file by descriptor, read all of it back. */
static void own_file(int me, unsigned *seed, char *content, const char *name)
{
    char back[OWN];
    int fd = open(name, O_RDWR | O_CREAT, 0644), other = dup(fd);
    CHECK(fd >= 0 && other >= 0);
    for (int i = 0; i < 8; i++) {
        unsigned at = pick(seed, OWN - 5000), count = 1 + pick(seed, i % 2 ? 100 : 5000);
        memset(content + at, 'A' + (int)pick(seed, 26), count);
        CHECK(pwrite(i % 3 ? fd : other, content + at, count, at) == (ssize_t)count);
    }
    CHECK(pread(other, back, OWN, 0) == OWN && !memcmp(back, content, OWN));
    close(fd);
    CHECK(lseek(other, 0, SEEK_END) == OWN);
    close(other);
}

static void names(int me, unsigned *seed, const char *name)
{
    char to[40], line[40];
    snprintf(to, sizeof to, "moved%d.%u", me, pick(seed, 3));
    FILE *f = fopen(name, "w+");
    CHECK(f && fprintf(f, "line %d\n", me) > 0 && fflush(f) == 0);
    CHECK(rename(name, to) == 0);
    rewind(f);
    CHECK(fgets(line, sizeof line, f) && atoi(line + 5) == me);
    fclose(f);
    struct stat st;
    CHECK(stat(name, &st) < 0 && stat(to, &st) == 0 && st.st_size == 7);
    if (pick(seed, 2))
        CHECK(unlink(to) == 0);
}

static void records(int me, unsigned *seed)
{
    char mine[RECORD], back[RECORD];
    unsigned record = pick(seed, RECORDS) * THREADS + me;
    memset(mine, 'a' + (int)pick(seed, 26), RECORD);
    CHECK(pwrite(shared, mine, RECORD, (off_t)record * RECORD) == RECORD);
    CHECK(pread(shared, back, RECORD, (off_t)record * RECORD) == RECORD && !memcmp(mine, back, RECORD));
}

static void *work(void *which)
{
    int me = (int)(long)which;
    unsigned seed = 77u + me;
    char own[20], scratch[20], content[OWN], line[20];
    snprintf(own, sizeof own, "own%d", me);
    snprintf(scratch, sizeof scratch, "scratch%d", me);
    memset(content, '.', OWN);
    int fd = open(own, O_WRONLY | O_CREAT, 0644), log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK(write(fd, content, OWN) == OWN);
    close(fd);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        own_file(me, &seed, content, own);
        names(me, &seed, scratch);
        for (int i = 0; i < 20; i++)
            records(me, &seed);
        snprintf(line, sizeof line, "%d %06ld\n", me, lines[me]++);
        CHECK(write(log, line, 9) == 9);
    }
    close(log);
    return NULL;
}

/* Every line of the log is there once, each thread's in order. */
static void check_log(void)
{
    int me = -1, who;
    long number, seen[THREADS] = { 0 };
    FILE *log = fopen("log", "r");
    while (fscanf(log, "%d %ld\n", &who, &number) == 2)
        CHECK(number == seen[who]++);
    for (int i = 0; i < THREADS; i++)
        CHECK(seen[i] == lines[i]);
    fclose(log);
}

int main(int argc, char **argv)
{
    int me = -1;
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int checkpoints = argc > 2 ? atoi(argv[2]) : 5;
    pthread_t threads[THREADS];
    unlink("log");
    shared = open("shared", O_RDWR | O_CREAT, 0644);
    CHECK(ftruncate(shared, (off_t)RECORDS * THREADS * RECORD) == 0);
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < 5; i++) {
        if (seconds == 0 && getchar() == EOF)
            break;
        nanosleep(&(struct timespec){ .tv_nsec = (long)(seconds * 2e8) }, NULL);
        CHECK(i >= checkpoints || metamori_checkpoint() > 0 || errno == ENOSYS || errno == EAGAIN);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_log();
    return failed;
}
