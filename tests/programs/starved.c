/* A lock that one process takes again and again, and another one that wants it too: compiled with the rooms `area` and `base`
 * (tests/unit/test_lock_order.py).
 *
 * starved WAITS: says how often the first had it, at most, while the second waited once.
 * starved killed: five times, after one for which it was kept was killed.
 */
#define _GNU_SOURCE
#include "area/area.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared { uint32_t lock, turns, over; } *all;

static int started(void (*what)(void))
{
    int pid = fork();
    if (pid)
        return pid;
    mm_tid = 0;
    what();
    exit(0);
}

static void takes_it_again(void)
{
    while (!__atomic_load_n(&all->over, __ATOMIC_SEQ_CST)) {
        mm_lock(&all->lock, MM_LOCK_NAME);
        __atomic_add_fetch(&all->turns, 1, __ATOMIC_SEQ_CST);
        for (uint64_t until = sys_now_ns() + 500000; sys_now_ns() < until;)
            ;
        mm_unlock(&all->lock);
    }
}

static void takes_it_once(void)
{
    mm_lock(&all->lock, MM_LOCK_NAME);
    mm_unlock(&all->lock);
}

static int is_held(void) { return (__atomic_load_n(&all->lock, __ATOMIC_SEQ_CST) & MM_OWNER) != 0; }

static unsigned waited(void)
{
    while (!is_held())
        usleep(50);
    uint32_t before = __atomic_load_n(&all->turns, __ATOMIC_SEQ_CST);
    takes_it_once();
    return __atomic_load_n(&all->turns, __ATOMIC_SEQ_CST) - before;
}

int main(int count, char **word)
{
    (void)count;
    all = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cpu_set_t one;                     /* it runs when the other one has nothing to do: as if it always came too late */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    int pid = started(takes_it_again);
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 });
    while (!__atomic_load_n(&all->turns, __ATOMIC_SEQ_CST))
        usleep(100);
    unsigned most = 0;
    if (strcmp(word[1], "killed") == 0) {
        for (;; kill(pid, SIGCONT), usleep(100)) {
            kill(pid, SIGSTOP);
            usleep(2000);
            if (is_held())
                break;
        }
        int other = started(takes_it_once);
        usleep(100000);
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
        kill(pid, SIGCONT);
    }
    for (int i = strcmp(word[1], "killed") ? atoi(word[1]) : 5; i > 0; i--) {
        unsigned turns = waited();
        most = turns > most ? turns : most;
    }
    __atomic_store_n(&all->over, 1, __ATOMIC_SEQ_CST);
    waitpid(pid, NULL, 0);
    printf("%u\n", most);
    return 0;
}
