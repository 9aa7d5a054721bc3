/* The hot calls, each many times, for a counter of instructions.
 *
 *   hot FOLDER COMMAND     works with the files there and prints one line per measured call: its name
 *
 * COMMAND is executed first: under Metamori it takes a checkpoint, which finds that the static program at work when
 * valgrind started (nobody can follow that one) is gone; as long as it lived all files would have stayed in place.
 * Under callgrind each measurement is one dump ("hot" in its description): instructions of COUNT calls and of the loop
 * around them. It does the same natively, so what a call adds is the difference between two runs of the same program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <valgrind/callgrind.h>

enum { COUNT = 1000, SMALL = 100, BYTES = 1 << 20 };

static char block[65536];

static void must(long right, const char *what)
{
    if (!right) {
        fprintf(stderr, "hot: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

/* Twice: what happens only the first time (a frame, a table page, a symbol bound late) is not the call's price. */
#define MEASURE(name, call) \
    do { \
        for (long i = 0; i < COUNT; i++) \
            must((call), name); \
        CALLGRIND_ZERO_STATS; \
        for (long i = 0; i < COUNT; i++) \
            must((call), name); \
        CALLGRIND_DUMP_STATS_AT(name); \
        puts(name); \
    } while (0)

static int scattered(long i) { return (int)(i * 7919 % (BYTES / SMALL - 1)) * SMALL; }

static int old_file(const char *name, int flags)
{
    int fd = open(name, flags);
    must(fd >= 0, name);
    return fd;
}

static void bytes_of(const char *file, int fd)
{
    char name[5][40];
    const char *calls[] = { "pread", "read", "lseek", "fstat", "read4k" };
    for (int i = 0; i < 5; i++)
        snprintf(name[i], sizeof name[i], "%s %s", file, calls[i]);
    MEASURE(name[0], pread(fd, block, SMALL, scattered(i)) == SMALL);
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    MEASURE(name[1], read(fd, block, SMALL) == SMALL);
    MEASURE(name[2], lseek(fd, scattered(i), SEEK_SET) >= 0);
    struct stat st;
    MEASURE(name[3], fstat(fd, &st) == 0);
    MEASURE(name[4], pread(fd, block, 4096, i % 200 * 4096) == 4096);
}

static void writes(const char *file, int fd)
{
    char name[3][40];
    const char *calls[] = { "pwrite", "write", "pwrite4k" };
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof name[i], "%s %s", file, calls[i]);
    MEASURE(name[0], pwrite(fd, block, SMALL, scattered(i)) == SMALL);
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    MEASURE(name[1], write(fd, block, SMALL) == SMALL);
    MEASURE(name[2], pwrite(fd, block, 4096, i % 200 * 4096) == 4096);
}

static void characters(const char *file, int fd)
{
    char name[2][40];
    snprintf(name[0], sizeof name[0], "%s fputc", file);
    snprintf(name[1], sizeof name[1], "%s fgetc", file);
    FILE *f = fdopen(dup(fd), "r+");
    must(f != NULL, "fdopen");
    rewind(f);
    MEASURE(name[0], fputc('x', f) == 'x');
    rewind(f);
    MEASURE(name[1], fgetc(f) != EOF);
    fclose(f);
}

int main(int argc, char **argv)
{
    must(argc == 3 && chdir(argv[1]) == 0, "usage: hot FOLDER COMMAND");
    must(system(argv[2]) == 0, argv[2]);
    memset(block, 'm', sizeof block);
    struct stat st;

    int fd = old_file("unfollowed", O_RDONLY);
    bytes_of("unfollowed", fd);
    close(fd);
    MEASURE("unfollowed open+close", (fd = open("unfollowed", O_RDONLY)) >= 0 && close(fd) == 0);
    MEASURE("unfollowed stat", stat("unfollowed", &st) == 0);

    fd = open("fresh", O_RDWR | O_CREAT | O_EXCL, 0600);
    must(fd >= 0, "fresh");
    for (int i = 0; i < BYTES; i += sizeof block)
        must(write(fd, block, sizeof block) == sizeof block, "fresh");
    writes("fresh", fd);
    MEASURE("fresh fchmod", fchmod(fd, 0600) == 0);
    bytes_of("fresh", fd);
    characters("fresh", fd);
    close(fd);

    fd = old_file("followed", O_RDWR);
    bytes_of("followed", fd);
    close(fd);
    MEASURE("followed open+close", (fd = open("followed", O_RDWR)) >= 0 && close(fd) == 0);

    fd = old_file("window", O_RDWR);                    /* old bytes overwritten in small pieces: frames of the cache */
    must(pread(fd, block, sizeof block, 0) == sizeof block, "window");
    MEASURE("window first write", write(fd, block, SMALL) == SMALL);
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    MEASURE("window write", write(fd, block, SMALL) == SMALL);
    MEASURE("window pwrite", pwrite(fd, block, SMALL, scattered(i) % (1000 * SMALL)) == SMALL);
    MEASURE("window pread", pread(fd, block, SMALL, scattered(i) % (1000 * SMALL)) == SMALL);
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    MEASURE("window read", read(fd, block, SMALL) == SMALL);
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    MEASURE("window byte", write(fd, block, 1) == 1);
    close(fd);

    fd = old_file("redirected", O_RDWR);
    for (int i = 0; i < BYTES; i += sizeof block)       /* every block of it is in the buffer from here on */
        must(pwrite(fd, block, sizeof block, i) == sizeof block, "redirected");
    writes("redirected", fd);
    bytes_of("redirected", fd);
    characters("redirected", fd);
    close(fd);
    MEASURE("redirected stat", stat("redirected", &st) == 0);

    /* locked while it is only read, and written later: the library has to have it open, and cannot move that out of the way */
    must(fcntl(old_file("locked", O_RDONLY), F_SETLK, &(struct flock){ .l_type = F_RDLCK }) == 0, "lock");
    must(pwrite(old_file("locked", O_WRONLY), block, SMALL, SMALL) == SMALL, "locked");
    fd = old_file("unfollowed", O_RDONLY);
    MEASURE("above ours read", read(fd, block, SMALL) == SMALL);
    return 0;
}
