/* Threads that each give a signal one handler after another, with a number in its mask, and ask again and again which one it has; the
 * main thread takes checkpoints meanwhile. */
#include <metamori.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKPOINTS 8
#define THREADS 4
#define QUESTIONS 30

static volatile int over;

static void handler(int number) { (void)number; }

static void *set_and_ask(void *which)
{
    int number = SIGRTMIN + 10 + (int)(long)which;
    for (unsigned long wanted = 1; !over; wanted++) {
        struct sigaction set = { .sa_handler = handler }, now;
        unsigned long mask = wanted << 34, has;
        memcpy(&set.sa_mask, &mask, sizeof mask);
        sigaction(number, &set, NULL);
        for (int i = 0; i < QUESTIONS; i++) {
            sigaction(number, NULL, &now);
            memcpy(&has, &now.sa_mask, sizeof has);
            if (has != mask) {
                printf("handler %lu is that of %lu\n", wanted, has >> 34);
                exit(1);
            }
        }
    }
    return which;
}

int main(void)
{
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, set_and_ask, (void *)i);
    for (int i = 0; i < CHECKPOINTS; i++)
        metamori_checkpoint();
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    puts("each handler was the last that was set");
    return 0;
}
