/* ns per call of write, read, pwrite and pread of one size, over one file that exists already.
 *
 *   calls FILE MEBIBYTES SIZE [COMMAND]    FILE has that many MiB. Prints lines "operation ns". COMMAND is executed first.
 *
 * The file is written in random order at multiples of SIZE (its bytes are old), read in that order,
 * overwritten in sequence, overwritten again, and read in sequence. Each pass makes at most LIMIT calls and
 * ends after SECONDS, so that no size takes minutes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 200000, SECONDS = 2, LARGEST = 1 << 20 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void must(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static unsigned next_random(unsigned *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Looked at every 64 calls only: the clock takes as long as a small call. */
static int over(double start, long calls)
{
    return calls % 64 == 0 && now_ns() - start > SECONDS * 1e9;
}

static void sequence(int fd, const char *name, int writing, char *block, size_t size, long calls)
{
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    double start = now_ns();
    long i = 0;
    for (; i < calls && !over(start, i); i++)
        must((writing ? write(fd, block, size) : read(fd, block, size)) == (ssize_t)size, name);
    printf("%s %.1f\n", name, (now_ns() - start) / i);
}

static void at_random(int fd, const char *name, int writing, char *block, size_t size, long calls, long places)
{
    unsigned state = 2463534242u;
    double start = now_ns();
    long i = 0;
    for (; i < calls && !over(start, i); i++) {
        off_t where = (off_t)(next_random(&state) % places) * size;
        must((writing ? pwrite(fd, block, size, where) : pread(fd, block, size, where)) == (ssize_t)size, name);
    }
    printf("%s %.1f\n", name, (now_ns() - start) / i);
}

int main(int argc, char **argv)
{
    static char block[LARGEST];
    must(argc == 4 || argc == 5, "usage: calls FILE MEBIBYTES SIZE [COMMAND]");
    must(argc == 4 || system(argv[4]) == 0, "the command");
    long bytes = atol(argv[2]) << 20, size = atol(argv[3]);
    must(size >= 1 && size <= LARGEST && bytes >= size, "sizes");
    memset(block, 'm', sizeof block);
    int fd = open(argv[1], O_RDWR);
    must(fd >= 0, argv[1]);
    long places = bytes / size, calls = places < LIMIT ? places : LIMIT;
    at_random(fd, "pwrite-random", 1, block, size, calls, places);
    at_random(fd, "pread-random", 0, block, size, calls, places);
    sequence(fd, "write", 1, block, size, calls);
    sequence(fd, "write-again", 1, block, size, calls);
    sequence(fd, "read", 0, block, size, calls);
    must(close(fd) == 0, "close");
    return 0;
}
