/* Makes, opens, renames and removes files all the time: whichever moment an image is taken at, one is half open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAMES 8

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static uint64_t sum;

static void fill(int fd, long round)
{
    char text[32];
    int n = snprintf(text, sizeof text, "round %ld\n", round);
    must(write(fd, text, n) == n, "write");
    sum = sum * 31 + (uint64_t)lseek(fd, 0, SEEK_CUR);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (long round = 0; round < rounds; round++) {
        char name[16], other[16], text[64] = "";
        snprintf(name, sizeof name, "n%ld", round * 7 % NAMES);
        snprintf(other, sizeof other, "n%ld", (round * 5 + round / 3) % NAMES);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644), twice;
        switch (round % 6) {
        case 0:
            if (fd < 0)
                must(errno == EEXIST && unlink(name) == 0 && (fd = open(name, O_RDWR | O_CREAT, 0600)) >= 0, name);
            fill(fd, round);
            break;
        case 1:
            must(fd >= 0 || (fd = open(name, O_WRONLY | O_TRUNC)) >= 0, name);
            fill(fd, round);
            break;
        case 2:
            must(fd >= 0 || (fd = open(name, O_WRONLY | O_APPEND)) >= 0, name);
            fill(fd, round);
            must(rename(name, other) == 0, "rename");
            break;
        case 3:
            must(fd >= 0 || (fd = open(name, O_RDWR)) >= 0, name);
            must((twice = fcntl(fd, F_DUPFD, 20)) >= 0, "F_DUPFD");
            fill(twice, round);
            fill(fd, round);
            must(close(twice) == 0, "close");
            break;
        case 4:
            must(fd >= 0 || (fd = open(name, O_RDONLY)) >= 0, name);
            for (ssize_t n = read(fd, text, sizeof text), i = 0; i < n; i++)
                sum = sum * 31 + (unsigned char)text[i];
            must(unlink(name) == 0, "unlink");
            break;
        default:
            must(fd < 0 || close(fd) == 0, "close");
            must((fd = open(".", O_RDWR | O_TMPFILE, 0600)) >= 0, "O_TMPFILE");
            fill(fd, round);
            must(pread(fd, text, sizeof text, 0) > 0, "pread");
            sum = sum * 31 + (unsigned char)text[7];
        }
        must(close(fd) == 0, "close");
        if (round % 1000 == 0) {
            printf("%ld %016llx\n", round, (unsigned long long)sum);
            fflush(stdout);
        }
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
