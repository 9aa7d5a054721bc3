/* A handler of the program's only thread begins another one, which writes to the same file.  Needs a file `f` of 30000 bytes. */
#include "metamori.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static int fd;
static pthread_t other;
static volatile int begun;

static void *writes(void *unused)
{
    for (int i = 0; i < 1000; i++)
        if (pwrite(fd, "b", 1, 1) != 1)
            return &fd;
    return unused;
}
static void handler(int number) { begun = number && pthread_create(&other, NULL, writes, NULL) == 0; }

int main(void)
{
    void *failed = NULL;
    struct sigaction how = {.sa_handler = handler};
    if (sigaction(SIGUSR1, &how, NULL) < 0 || (fd = open("f", O_RDWR)) < 0 || metamori_checkpoint() < 0
        || pwrite(fd, "aa", 2, 0) != 2)
        return 1;
    printf("%d\n", (int)getpid());
    fflush(stdout);
    getchar();
    if (pwrite(fd, "c", 1, 0) != 1 || !begun || pthread_join(other, &failed) != 0 || failed || metamori_checkpoint() < 0)
        return 2;
    return 0;
}
