/* Threads that pass a signal on from one to the next: where one is lost, all wait. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#define THREADS 6
#define ROUNDS 30000

static pthread_t thread[THREADS];

static void *passes_on(void *argument)
{
    long this = (long)argument;
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int i = 0; i < ROUNDS; i++) {
        sigwait(&set, &number);
        if (this < THREADS - 1 || i < ROUNDS - 1)
            pthread_kill(thread[(this + 1) % THREADS], SIGUSR1);
    }
    return NULL;
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, passes_on, (void *)i);
    pthread_kill(thread[0], SIGUSR1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return puts("all rounds") < 0;
}
