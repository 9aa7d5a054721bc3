/* Restartable sequences (rseq) that threads register themselves, as allocators do where the C library leaves them: each is registered
 * as it was, and says on which processor its thread runs.  77: this kernel has none, or the C library has them. */
#define _GNU_SOURCE
#include <errno.h>
#include <metamori.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNATURE 0x4d6d5273
struct area { uint32_t first, cpu; uint64_t sequence; uint32_t flags, more[3]; } __attribute__((aligned(32)));
static __thread struct area own;
static pthread_barrier_t before, behind, told;

static long registered(int flags) { return syscall(SYS_rseq, &own, sizeof own, flags, SIGNATURE); }

static int follows(void)
{
    cpu_set_t given, one;
    sched_getaffinity(0, sizeof given, &given);
    int right = 1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &given)) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            sched_setaffinity(0, sizeof one, &one);
            right &= *(volatile uint32_t *)&own.cpu == (uint32_t)i;
        }
    sched_setaffinity(0, sizeof given, &given);
    return right;
}

static void tell(const char *who)
{
    int again = registered(0) < 0 ? errno : 0;
    printf("%s: %s, %d\n", who, again == EBUSY ? "registered" : "not registered", follows());
    fflush(stdout);
}

static void *second(void *nothing)
{
    if (registered(0) < 0)
        exit(77);
    pthread_barrier_wait(&before), pthread_barrier_wait(&behind);
    tell("thread");
    if (registered(1) < 0)
        printf("not taken away\n");
    pthread_barrier_wait(&told), pthread_barrier_wait(&behind);
    printf("without: %s\n", registered(1) < 0 && errno == EINVAL ? "none" : "one");
    return nothing;
}

static void taken(void)
{
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
}

int main(void)
{
    pthread_t thread;
    for (pthread_barrier_t *each[] = { &before, &behind, &told }, **b = each; b < each + 3; b++)
        pthread_barrier_init(*b, NULL, 2);
    if (registered(0) < 0)
        return 77;
    pthread_create(&thread, NULL, second, NULL);
    pthread_barrier_wait(&before);
    taken();
    tell("main");
    pthread_barrier_wait(&behind), pthread_barrier_wait(&told);
    taken();
    tell("main");
    pthread_barrier_wait(&behind);
    pthread_join(thread, NULL);
    return 0;
}
