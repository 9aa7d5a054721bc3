/* forks_beside.c - one thread forks while another makes a call for which the library opens a descriptor of its own.
 *
 * The folder `d` has COUNT old files.  Each is cut by one thread while the other forks; the child then writes to it.  The kernel
 * copies the table of descriptors before the memory: that takes the longer, the more there is of it.
 * Prints how many children failed. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY (64 << 20)

static int count, *fds;
static volatile int turn = -1;

static void *cuts(void *unused)
{
    for (int i = 0; i < count; i++) {
        while (turn < i)
            ;
        for (volatile int wait = 0; wait < i % 16 * 20000; wait++)
            ;
        ftruncate(fds[i], 4096);
    }
    return unused;
}

int main(int words, char **word)
{
    pthread_t thread;
    char path[32];
    int bad = 0, status;
    count = words > 1 ? atoi(word[1]) : 100;
    fds = malloc(sizeof *fds * count);
    memset(malloc(MEMORY), 1, MEMORY);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "d/%d", i);
        fds[i] = open(path, O_RDWR);
    }
    pthread_create(&thread, NULL, cuts, NULL);
    for (int i = 0; i < count; i++) {
        turn = i;
        pid_t pid = fork();
        if (pid == 0)
            _exit(pwrite(fds[i], "x", 1, 16) != 1);
        waitpid(pid, &status, 0);
        bad += status != 0;
    }
    pthread_join(thread, NULL);
    printf("%d\n", bad);
    return 0;
}
