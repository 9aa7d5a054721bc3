/* What a program has told the kernel of itself and of its threads: said before a checkpoint, and behind it. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <metamori.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t before, behind;

static void tell(const char *who)
{
    printf("%s: slack %d, securebits %x, dumpable %d, mdwe %d, personality %x, barriers %ld %ld\n", who, prctl(PR_GET_TIMERSLACK),
           prctl(PR_GET_SECUREBITS), prctl(PR_GET_DUMPABLE), prctl(66, 0, 0, 0, 0), personality(0xffffffff),
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0),
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    fflush(stdout);
}

static void *second(void *nothing)
{
    prctl(PR_SET_TIMERSLACK, 70000);
    personality(personality(0xffffffff) | UNAME26);
    pthread_barrier_wait(&before), pthread_barrier_wait(&behind);
    tell("thread");
    return nothing;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&before, NULL, 2), pthread_barrier_init(&behind, NULL, 2);
    pthread_create(&thread, NULL, second, NULL);
    pthread_barrier_wait(&before);
    prctl(PR_SET_TIMERSLACK, 90000);
    prctl(PR_SET_SECUREBITS, 1 << 4);      /* SECBIT_KEEP_CAPS, where the user may */
    prctl(65, 1, 0, 0, 0);                 /* PR_SET_MDWE */
    if (geteuid() == 0 && prctl(PR_CAPBSET_READ, 19) == 1)     /* CAP_SYS_PTRACE: nobody else could look into it then */
        prctl(PR_SET_DUMPABLE, 0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    tell("main");
    pthread_barrier_wait(&behind);
    pthread_join(thread, NULL);
    return 0;
}
