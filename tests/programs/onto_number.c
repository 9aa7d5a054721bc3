/* How long another thread ran, in ns (the median), while a file's descriptor was duplicated onto a number in use. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 21 };

static void *run(void *unused)
{
    for (volatile long n = 0;; n++)
        ;
    return unused;
}

static long long ran(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int longer(const void *a, const void *b)
{
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    pthread_t thread;
    clockid_t clock;
    long long during[TIMES];
    int file = open("f", O_RDWR | O_CREAT, 0644);
    if (file < 0 || write(file, "f", 1) != 1 || pthread_create(&thread, NULL, run, NULL) ||
        pthread_getcpuclockid(thread, &clock))
        return 1;
    for (int i = 0; i < TIMES; i++) {
        int number = open("/dev/null", O_WRONLY);
        while (ran(clock) == 0)
            usleep(1000);
        long long before = ran(clock);
        if (dup2(file, number) != number)
            return 1;
        during[i] = ran(clock) - before;
        close(number);
    }
    qsort(during, TIMES, sizeof during[0], longer);
    printf("%lld\n", during[TIMES / 2]);
    return 0;
}
