/* How threads are scheduled: each as itself, whatever the one has that makes them.  77: this user may not choose. */
#define _GNU_SOURCE
#include <metamori.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t before;
static sem_t told[2];

static int set(int policy, int priority)
{
    struct sched_param p = { priority };
    return sched_setscheduler(0, policy, &p);
}

static void tell(const char *who)
{
    struct sched_param p;
    cpu_set_t now;
    sched_getparam(0, &p);
    sched_getaffinity(0, sizeof now, &now);
    printf("%s: policy %x %d, nice %d, %d processors, i/o %lx\n", who, (unsigned)sched_getscheduler(0), p.sched_priority,
           getpriority(PRIO_PROCESS, 0), CPU_COUNT(&now), syscall(SYS_ioprio_get, 1, 0));
    fflush(stdout);
}

static void *usual(void *nothing)
{
    setpriority(PRIO_PROCESS, 0, -2);
    pthread_barrier_wait(&before), sem_wait(&told[0]);
    tell("usual");
    return nothing;
}

static void *urgent(void *nothing)
{
    set(SCHED_FIFO, 3);
    syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6);
    pthread_barrier_wait(&before), sem_wait(&told[1]);
    tell("urgent");
    return nothing;
}

int main(void)
{
    pthread_t thread[2];
    cpu_set_t given, one;
    pthread_barrier_init(&before, NULL, 3), sem_init(&told[0], 0, 0), sem_init(&told[1], 0, 0);
    pthread_create(&thread[0], NULL, usual, NULL), pthread_create(&thread[1], NULL, urgent, NULL);
    pthread_barrier_wait(&before);
    sched_getaffinity(0, sizeof given, &given);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &given))
            CPU_SET(i, &one);
    if (setpriority(PRIO_PROCESS, 0, -5) || set(SCHED_FIFO | SCHED_RESET_ON_FORK, 2) || sched_setaffinity(0, sizeof one, &one)
        || syscall(SYS_ioprio_set, 1, 0, 3 << 13))
        return 77;
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    tell("main");
    for (int i = 0; i < 2; i++) {
        sem_post(&told[i]);
        pthread_join(thread[i], NULL);
    }
    return 0;
}
