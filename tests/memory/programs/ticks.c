/* Two timers whose signals wait while checkpoints are taken, each with a pointer sent along. */
#include <metamori.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#define CHECKPOINTS 3

int main(void)
{
    int of_one = 0, of_other = 0;
    timer_t one, other;
    sigset_t set, waits;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2, .sigev_value.sival_ptr = &of_one };
    timer_create(CLOCK_MONOTONIC, &event, &one);
    event.sigev_signo = SIGUSR1, event.sigev_value.sival_ptr = &of_other;
    timer_create(CLOCK_MONOTONIC, &event, &other);
    for (int expected = 1; expected <= CHECKPOINTS; expected++) {
        timer_settime(one, 0, &(struct itimerspec){ { 0, 0 }, { 0, 1 } }, NULL);
        timer_settime(other, 0, &(struct itimerspec){ { 0, 0 }, { 0, 1 } }, NULL);
        do
            sigpending(&waits);
        while (!sigismember(&waits, SIGRTMIN + 2) || !sigismember(&waits, SIGUSR1));
        metamori_checkpoint();
        for (int k = 0; k < 2; k++) {
            if (sigtimedwait(&set, &info, &(struct timespec){ 5, 0 }) < 0 || info.si_code != SI_TIMER || !info.si_value.sival_ptr)
                return printf("signal %d, code %d, with %p\n", info.si_signo, info.si_code, info.si_value.sival_ptr), 1;
            ++*(int *)info.si_value.sival_ptr;
        }
        if (of_one != expected || of_other != expected)
            return printf("%d and %d, not %d\n", of_one, of_other, expected), 1;
    }
    puts("each came with what was sent along");
    return 0;
}
