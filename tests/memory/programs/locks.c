/* locks - shared mutexes by which the kernel knows their owner, held while a checkpoint is taken: one that lends its priority,
 * which another process waits for; one that a process, and one that a thread, holds when it ends. */
#define _GNU_SOURCE
#include <metamori.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
    pthread_mutex_t lends, dies, both;
    volatile int has_both, has_dies;
} *shared;
static int ends[2], go[2];

static void make(pthread_mutex_t *mutex, int lends, int dies)
{
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    if (lends)
        pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
    if (dies)
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &how);
}

static void say(const char *what, int r)
{
    printf("%s: %s\n", what, r ? strerror(r) : "yes");
    fflush(stdout);
}

static void *holds_both(void *unused)
{
    char byte;
    pthread_mutex_lock(&shared->both);
    shared->has_both = 1;
    if (read(go[0], &byte, 1) != 1)
        _exit(3);
    return unused;                         /* and holds it */
}

int main(void)
{
    pthread_t thread;
    char byte;
    alarm(60);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make(&shared->lends, 1, 0), make(&shared->dies, 0, 1), make(&shared->both, 1, 1);
    if (pipe(ends) || pipe(go))
        return 2;
    pthread_mutex_lock(&shared->lends);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        pthread_mutex_lock(&shared->dies);
        shared->has_dies = 1;
        say("the child gets what was lent", pthread_mutex_lock(&shared->lends));
        say("and gives it back", pthread_mutex_unlock(&shared->lends));
        _exit(read(ends[0], &byte, 1) == 1 ? 7 : 8);       /* and holds the other */
    }
    pthread_create(&thread, NULL, holds_both, NULL);
    while (!shared->has_both || !shared->has_dies || !(*(volatile int *)&shared->lends & (int)0x80000000))
        usleep(1000);                      /* somebody waits, the kernel says */
    if (metamori_checkpoint() < 0)
        return 4;
    say("the parent gives it", pthread_mutex_unlock(&shared->lends));
    do
        usleep(1000);
    while (pthread_mutex_trylock(&shared->lends) && !usleep(1000));
    pthread_mutex_unlock(&shared->lends);
    if (write(go[1], "x", 1) != 1 || write(ends[1], "x", 1) != 1)
        return 5;
    say("of a thread that ended", pthread_mutex_lock(&shared->both));
    say("is consistent", pthread_mutex_consistent(&shared->both));
    say("is given back", pthread_mutex_unlock(&shared->both));
    say("of a process that ended", pthread_mutex_lock(&shared->dies));
    pthread_join(thread, NULL);
    int status;
    return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 6;
}
