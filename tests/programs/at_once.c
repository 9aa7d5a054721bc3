/* What one thread asks of the library while another one is in it: `at_once WHAT TIMES`. Prints what went wrong. */
#include "metamori.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over, bad;
static int file;

static void *takes_checkpoints(void *unused)
{
    while (!over)
        bad |= metamori_checkpoint() < 0;
    return unused;
}

enum { KEPT = 240 };                     /* the library looks through them all, each time */

static void *maps(void *unused)
{
    for (int i = 0; i < KEPT; i++)
        mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    while (!over) {
        char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
        if (at != MAP_FAILED)
            munmap(at, 4096);
    }
    return unused;
}

static int in_child(int maps_too)
{
    char *at = maps_too ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) : NULL;
    return at == MAP_FAILED || (!maps_too && metamori_checkpoint() < 0);
}

static void fork_one(int maps_too)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(in_child(maps_too));
    waitpid(pid, &status, 0);
    bad |= status;
}

int main(int count, char **word)
{
    pthread_t other;
    file = open("file", O_RDWR | O_CREAT, 0644);
    int maps_too = !strcmp(word[1], "maps"), times = count > 2 ? atoi(word[2]) : 10;
    int index = write(file, "before", 6) == 6 ? metamori_checkpoint() : -1;
    pthread_create(&other, NULL, maps_too ? maps : takes_checkpoints, NULL);
    for (int i = 0; i < times && !bad; i++) {
        usleep(rand() % 3000);
        if (strcmp(word[1], "restore"))
            fork_one(maps_too);
        else if (pwrite(file, "after ", 6, 0) != 6 || metamori_restore(index) < 0)
            printf("restore %d: %s\n", i, strerror(errno)), bad = 1;
    }
    over = 1;
    pthread_join(other, NULL);
    puts(bad ? "bad" : "good");
    return bad;
}
