/* notified COUNT: microseconds for each of three calls that a static program makes under the eyes of a proxy.
 * Linked statically, so that the preload library is not in it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000, bad = 0;
    int fd = open("f", O_WRONLY | O_CREAT, 0644);
    bad |= fd < 0 || write(fd, "x", 1) != 1 || close(fd);
    double start = now();
    for (int i = 0; i < count; i++) {
        fd = open("f", O_WRONLY);
        bad |= fd < 0 || close(fd);
    }
    double opened = now();
    for (int i = 0; i < count; i++)
        bad |= chmod("f", 0600 + (i & 1)) != 0;
    double changed = now();
    for (int i = 0; i < count; i++)
        bad |= mkdir("d", 0755) != 0 || rmdir("d") != 0;
    double made = now();
    printf("%.2f %.2f %.2f\n", (opened - start) / count, (changed - opened) / count, (made - changed) / count / 2);
    return bad;
}
