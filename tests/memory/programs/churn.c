/* churn.c - threads that start the next one and end, or wait for those that they start. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAINS 64
#define JOINING 4
static long enough, over;
static pthread_attr_t apart;

static int goes_on(void) { return !__atomic_load_n(&enough, __ATOMIC_RELAXED); }

static void *next(void *argument)
{
    pthread_t one;
    int more = goes_on();
    while (more && pthread_create(&one, &apart, next, argument) != 0)
        usleep(100);
    if (!more)
        __atomic_add_fetch(&over, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void *none(void *argument) { return argument; }

static void *joins(void *argument)
{
    pthread_t one[4];
    while (goes_on()) {
        for (int i = 0; i < 4; i++)
            if (pthread_create(&one[i], NULL, none, argument) != 0)
                abort();
        for (int i = 0; i < 4; i++)
            pthread_join(one[i], NULL);
    }
    __atomic_add_fetch(&over, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

int main(int count, char **words)
{
    int chain = count > 1 && strcmp(words[1], "chain") == 0, all = chain ? CHAINS : JOINING;
    pthread_attr_init(&apart);
    pthread_attr_setdetachstate(&apart, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&apart, 65536);
    for (int i = 0; i < all; i++) {
        pthread_t one;
        if (pthread_create(&one, &apart, chain ? next : joins, NULL) != 0)
            return 1;
    }
    while (__atomic_load_n(&over, __ATOMIC_SEQ_CST) < all) {
        usleep(1000);
        enough = access("enough", F_OK) == 0;
    }
    return 0;
}
