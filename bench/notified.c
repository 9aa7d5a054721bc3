/* Linked statically, so that the preload library is not in it: its calls on names are notified to a proxy.
 *
 * notified COUNT         microseconds for each open for writing and close; chmod; mkdir or rmdir; and for what no notified call
 *                        can do without: a byte to another process and one back
 * notified time COMMAND  milliseconds of the command, and of CPU time
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

static int timed(char **command)
{
    int status = -1;
    struct rusage used;
    double start = now();
    pid_t child = fork();
    if (child == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    wait4(child, &status, 0, &used);
    printf("%.3f %.3f\n", (now() - start) / 1000, (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1000);
    return status != 0;
}

static double round_trip(int count)
{
    int to[2], back[2];
    char byte = 0;
    if (pipe(to) || pipe(back))
        return 0;
    if (fork() == 0) {
        for (int i = 0; i < count; i++)
            if (read(to[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
                break;
        _exit(0);
    }
    double start = now();
    for (int i = 0; i < count; i++)
        if (write(to[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            break;
    double took = now() - start;
    wait(NULL);
    return took / count;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "time") == 0)
        return timed(argv + 2);
    int count = argc > 1 ? atoi(argv[1]) : 0, bad = 0;
    if (!count)
        return 0;
    int fd = open("f", O_WRONLY | O_CREAT, 0644);
    bad |= fd < 0 || write(fd, "x", 1) != 1 || close(fd);
    double start = now();
    for (int i = 0; i < count; i++) {
        fd = open("f", O_WRONLY | O_CREAT, 0644);
        bad |= fd < 0 || close(fd);
    }
    double opened = now();
    for (int i = 0; i < count; i++)
        bad |= chmod("f", 0600 + (i & 1)) != 0;
    double changed = now();
    for (int i = 0; i < count / 10; i++)
        bad |= mkdir("d", 0755) != 0 || rmdir("d") != 0;
    double made = now();
    printf("%.2f %.2f %.2f %.2f\n", (opened - start) / count, (changed - opened) / count, (made - changed) / (count / 10) / 2,
           round_trip(count));
    return bad;
}
