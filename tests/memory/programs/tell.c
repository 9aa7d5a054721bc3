/* Timers that tell threads (SIGEV_THREAD_ID): by handlers, by waiting, of the thread's own time, and one that is told after it ended. */
#define _GNU_SOURCE
#include <metamori.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECKPOINTS 3

static __thread volatile int told, wrong;
static volatile int begins, rounds;
static volatile pid_t gone;

static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    told++;
    wrong |= info->si_code != SI_TIMER || info->si_value.sival_ptr != (void *)&told;      /* of this thread */
}

static timer_t made(clockid_t clock, int number, pid_t thread, void *value)
{
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = number, .sigev_value.sival_ptr = value };
    event._sigev_un._tid = thread;
    if (timer_create(clock, &event, &timer) < 0) {
        perror("timer_create");
        _exit(2);
    }
    return timer;
}

static void *ends(void *unused)
{
    gone = (pid_t)syscall(SYS_gettid);
    while (!begins)
        usleep(1000);
    return unused;
}

static void arm(timer_t timer, long first, long each)
{
    timer_settime(timer, 0, &(struct itimerspec){ { 0, each }, { 0, first } }, NULL);
}

/* A handler each 10 ms, one each 5 ms of this thread's own time, and one whose signal waits while the checkpoints are taken. */
static void *thread(void *result)
{
    sigset_t waits, pending;
    siginfo_t info;
    int value;
    pid_t me = (pid_t)syscall(SYS_gettid);
    sigemptyset(&waits);
    sigaddset(&waits, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &waits, NULL);
    timer_t ticks = made(CLOCK_MONOTONIC, SIGUSR1, me, (void *)&told), own = made(CLOCK_THREAD_CPUTIME_ID, SIGUSR1, me, (void *)&told);
    timer_t late = made(CLOCK_MONOTONIC, SIGUSR2, me, &value);
    for (int seen = 0; seen < CHECKPOINTS; seen++) {
        arm(late, 1, 0);
        do
            sigpending(&pending);
        while (!sigismember(&pending, SIGUSR2));
        begins++;
        while (rounds <= seen)
            usleep(1000);
        if (sigtimedwait(&waits, &info, &(struct timespec){ 5, 0 }) != SIGUSR2 || info.si_code != SI_TIMER || info.si_value.sival_ptr != &value)
            return "what waited is lost";
        int before = told;
        arm(ticks, 10000000, 10000000);
        while (told < before + 3)
            pause();
        arm(ticks, 0, 0);
        before = told;
        arm(own, 5000000, 5000000);
        while (told < before + 3)
            ;
        arm(own, 0, 0);
        pid_t now = (pid_t)syscall(SYS_gettid);
        timer_t another = made(CLOCK_MONOTONIC, SIGUSR1, now, (void *)&told);
        before = told;
        arm(another, 1000000, 0);
        while (told == before)
            pause();
        timer_delete(another);
    }
    *(int *)result = wrong;
    return NULL;
}

int main(void)
{
    int mistaken[2] = { 9, 9 };
    pthread_t threads[2], short_one;
    sigset_t set;
    sigaction(SIGUSR1, &(struct sigaction){ .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART }, NULL);
    pthread_create(&short_one, NULL, ends, NULL);
    while (!gone)
        usleep(1000);
    timer_t tells_nobody = made(CLOCK_MONOTONIC, SIGUSR1, gone, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, thread, &mistaken[i]);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 1; i <= CHECKPOINTS; i++) {
        while (begins < 2 * i)
            usleep(1000);
        if (i == 1)
            pthread_join(short_one, NULL);
        arm(tells_nobody, 1000000000 - i, 0);
        metamori_checkpoint();
        rounds++;
    }
    for (int i = 0; i < 2; i++) {
        void *why;
        pthread_join(threads[i], &why);
        if (why || mistaken[i])
            return printf("%s\n", why ? (char *)why : "another's signal came"), 1;
    }
    struct itimerspec left;
    return printf("told %d\n", timer_gettime(tells_nobody, &left)), 0;
}
