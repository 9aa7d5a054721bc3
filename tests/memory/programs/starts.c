/* Timers that start threads (SIGEV_THREAD), of several clocks and kinds; checkpoints are taken amid them, or with a
 * count of rounds by others. */
#define _GNU_SOURCE
#include <metamori.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 8
#define STACK (1 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile int came[8];
static int wrong, is_blocked;
static sem_t begun, goes;

static void tell(int which, const char *what, int is_right)
{
    pthread_mutex_lock(&lock);
    came[which]++;
    if (!is_right) {
        wrong++;
        printf("%d: %s\n", which, what);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void ticks(union sigval value)
{
    sigset_t blocked;
    pthread_attr_t own;
    int detached;
    size_t size;
    void *stack;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    pthread_getattr_np(pthread_self(), &own);
    pthread_attr_getdetachstate(&own, &detached);
    pthread_attr_getstack(&own, &stack, &size);
    pthread_attr_destroy(&own);
    tell(value.sival_int, "signals", sigismember(&blocked, SIGUSR1) == sigismember(&blocked, SIGRTMAX));
    is_blocked = sigismember(&blocked, SIGUSR1);
    tell(value.sival_int, "attributes", detached == PTHREAD_CREATE_DETACHED && (value.sival_int != 1 || size == STACK));
}

/* One that is still running while its timer is deleted. */
static void waits(union sigval value)
{
    sem_post(&begun);
    while (sem_wait(&goes) < 0)
        ;
    tell(value.sival_int, "", 1);
}

static void await(int which, int count)
{
    pthread_mutex_lock(&lock);
    while (came[which] < count)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static timer_t made(clockid_t clock, void (*function)(union sigval), int which, pthread_attr_t *attributes)
{
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = function,
                              .sigev_notify_attributes = attributes, .sigev_value.sival_int = which };
    if (timer_create(clock, &event, &timer) < 0) {
        perror("timer_create");
        exit(1);
    }
    return timer;
}

static void arm(timer_t timer, long first_us, long each_us)
{
    struct itimerspec time = { { 0, each_us * 1000 }, { 0, first_us * 1000 } };
    if (timer_settime(timer, 0, &time, NULL) < 0)
        perror("timer_settime");
}

static int in_child(timer_t parents)
{
    struct itimerspec left;
    printf("child: %d %d", timer_gettime(parents, &left) < 0 ? errno : 0, timer_delete(parents) < 0 ? errno : 0);
    arm(made(CLOCK_MONOTONIC, ticks, 5, NULL), 5000, 0);
    await(5, 2);
    printf(", %d\n", came[5]);
    fflush(stdout);
    _exit(7);
}

static int threads(void)
{
    struct stat st;
    stat("/proc/self/task", &st);
    return (int)st.st_nlink - 2;
}

int main(int count, char **words)
{
    int rounds = count > 1 ? atoi(words[1]) : ROUNDS;
    pthread_attr_t large;
    struct itimerspec left;
    struct sigevent no_clock = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = ticks };
    int status = 0, once = 0;
    timer_t none;
    sem_init(&begun, 0, 0), sem_init(&goes, 0, 0);
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, STACK);
    printf("no such clock: %d\n", timer_create(77, &no_clock, &none) < 0 ? errno : 0);
    timer_t fast = made(CLOCK_MONOTONIC, ticks, 0, NULL), wide = made(CLOCK_REALTIME, ticks, 1, &large);
    timer_t single = made(CLOCK_MONOTONIC, ticks, 2, NULL), busy = made(CLOCK_PROCESS_CPUTIME_ID, ticks, 3, NULL);
    timer_t own = made(CLOCK_THREAD_CPUTIME_ID, ticks, 6, NULL);
    pthread_attr_destroy(&large);
    arm(fast, 1000, 1000), arm(wide, 3000, 7000);
    arm(busy, 20000, 20000), arm(own, 10000, 0);
    for (int n = 1; n <= rounds; n++) {
        arm(single, n % 9 * (n % 9) * 300 + 1, 0);      /* it runs out amid the checkpoint, or after it */
        if (count == 1)
            metamori_checkpoint();
        await(2, 2 * n);                   /* `tell` twice each time */
        once += came[2] == 2 * n;
        int before = came[0], others = came[1];
        await(0, before + 20);
        await(1, others + 4);
    }
    printf("each came once: %d of %d\n", once, rounds);
    fflush(stdout);
    arm(fast, 0, 0), arm(wide, 0, 0), arm(busy, 0, 0);
    usleep(50000);
    pthread_mutex_lock(&lock);             /* a thread that has it, or one of the C library's, would not be there in the child */
    pid_t child = fork();
    pthread_mutex_unlock(&lock);
    if (child == 0)
        in_child(fast);
    arm(fast, 1000, 1000), arm(wide, 3000, 7000), arm(busy, 20000, 20000);
    wait(&status);
    printf("child ended with %d\n", WEXITSTATUS(status));
    int before = came[3];
    for (volatile long n = 0; came[3] < before + 4 || came[6] < 2; n++)
        ;
    timer_t runs = made(CLOCK_MONOTONIC, waits, 4, NULL);
    arm(runs, 1000, 0);
    sem_wait(&begun);
    int deleted = timer_delete(runs), again = timer_delete(runs) < 0 ? errno : 0;
    sem_post(&goes);
    await(4, 1);
    printf("deleted amid: %d, then %d; overrun %d\n", deleted, again, timer_getoverrun(single));
    int is_known = timer_gettime(single, &left) == 0;
    printf("single is unarmed: %d\n", is_known && !left.it_value.tv_sec && !left.it_value.tv_nsec);
    timer_delete(fast), timer_delete(wide), timer_delete(busy), timer_delete(single), timer_delete(own);
    while (threads() > 2)                  /* that were begun by then; the C library keeps one */
        usleep(1000);
    before = came[0];
    usleep(50000);
    printf("none after it was deleted: %d; blocks: %d; wrong: %d\n", came[0] == before, is_blocked, wrong);
    return 0;
}
