/* Threads that end instead of stopping for a checkpoint: each hears no signal, and goes when one waits for it. In the first checkpoint
 * it stands before one that stays, in the second behind one. */
#include <metamori.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int ready, taken, sum;

/* Not by a library that knows what signal that is. */
static long kernel(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}

static int is_asked(void)
{
    char text[4096] = { 0 };
    long fd = kernel(SYS_open, (long)"/proc/thread-self/status", O_RDONLY, 0, 0);
    kernel(SYS_read, fd, (long)text, sizeof text - 1, 0);
    kernel(SYS_close, fd, 0, 0, 0);
    const char *own = strstr(text, "SigPnd:");
    return own && strtoul(own + 7, NULL, 16) != 0;
}

static void *leaves(void *unused)
{
    unsigned long all = ~0ul;
    kernel(SYS_rt_sigprocmask, 0, (long)&all, 0, 8);
    ready++;
    while (!is_asked() && !taken)
        kernel(SYS_sched_yield, 0, 0, 0, 0);
    return unused;
}

static void *stays(void *unused)
{
    ready++;
    while (!taken)
        usleep(1000);
    sum++;
    return unused;
}

static void checkpoint(int threads)
{
    while (ready != threads)
        usleep(1000);
    printf("%s %d\n", metamori_checkpoint() < 0 && metamori_active() ? "refused" : "taken", sum);
    fflush(stdout);
    taken = 1;
}

static void two(void *(*first)(void *), void *(*second)(void *))
{
    pthread_t thread[2];
    ready = taken = 0;
    pthread_create(&thread[0], NULL, first, NULL);
    pthread_create(&thread[1], NULL, second, NULL);
    checkpoint(2);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
}

int main(void)
{
    two(leaves, stays);
    two(stays, leaves);
    printf("end %d\n", sum);
    return 3;
}
