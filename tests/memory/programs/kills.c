/* Threads that send signals by the C library's calls, to themselves and each other, and end others, which sleep; the main thread takes
 * checkpoints meanwhile. Every signal comes to its thread. */
#include <metamori.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECKPOINTS 12

static volatile int over;
static __thread volatile long came;

static void handler(int number) { (void)number, came++; }

static void require(int holds, const char *what, int why)
{
    if (holds)
        return;
    printf("%s: %s\n", what, strerror(why));
    exit(1);
}

/* For most of the time no number is in hand. */
static void rest(void)
{
    for (volatile int i = 0; i < 5000; i++)
        continue;
}

static void *kills_itself(void *unused)
{
    for (long sent = 1; !over; sent++) {
        rest();
        int r = sent % 2 ? pthread_kill(pthread_self(), SIGUSR1) : raise(SIGUSR1);
        require(r == 0 && came == sent, sent % 2 ? "pthread_kill" : "raise", r);
    }
    return unused;
}

static void *asks_of_another(void *other)
{
    int policy;
    struct sched_param parameters;
    while (!over) {
        rest();
        int r = pthread_kill(*(pthread_t *)other, 0);
        require(r == 0, "pthread_kill of another", r);
        r = pthread_getschedparam(*(pthread_t *)other, &policy, &parameters);
        require(r == 0, "pthread_getschedparam", r);
    }
    return NULL;
}

static void *sleeps(void *unused)
{
    for (;;)
        sleep(1000);
    return unused;
}

static void *cancels(void *unused)
{
    pthread_t thread;
    while (!over) {
        require(pthread_create(&thread, NULL, sleeps, NULL) == 0, "pthread_create", 0);
        int r = pthread_cancel(thread);
        require(r == 0, "pthread_cancel", r);
        pthread_join(thread, NULL);
    }
    return unused;
}

int main(void)
{
    pthread_t thread[4], self = pthread_self();
    signal(SIGUSR1, handler);
    pthread_create(&thread[0], NULL, kills_itself, NULL);
    pthread_create(&thread[1], NULL, kills_itself, NULL);
    pthread_create(&thread[2], NULL, asks_of_another, &self);
    pthread_create(&thread[3], NULL, cancels, NULL);
    for (int i = 0; i < CHECKPOINTS; i++) {
        usleep(10000);
        metamori_checkpoint();
    }
    over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    printf("end\n");
    return 3;
}
