/* Counts in several files, one after the other, in several threads and two processes, until stdin ends.
 *
 * Each thread N counts in aN (one line more), then bN (the same through a stream), then cN (8 digits overwritten in
 * place). The second process adds a line to `told` for each one that the first has added to `teller`. Files as of one
 * instant therefore never differ by more than the one step that is under way.
 */
#include "say.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 3 };
static volatile int stop;

static int opened(const char *letter, long n, int flags)
{
    char name[16];
    snprintf(name, sizeof name, "%s%ld", letter, n);
    return open(name, flags | O_CREAT, 0644);
}

static void *counting(void *which)
{
    long n = (long)which;
    char line[32];
    int a = opened("a", n, O_WRONLY | O_APPEND), c = opened("c", n, O_RDWR);
    FILE *b = fdopen(opened("b", n, O_WRONLY | O_APPEND), "a");
    for (long count = 1; !stop; count++) {
        snprintf(line, sizeof line, "%07ld\n", count);
        (void)!write(a, line, 8);
        fputs(line, b);
        fflush(b);
        (void)!pwrite(c, line, 8, 0);
        usleep(200);
    }
    fclose(b);
    close(a);
    close(c);
    return NULL;
}

static void *telling(void *to)
{
    int teller = open("teller", O_WRONLY | O_CREAT, 0644);
    while (!stop) {
        char answer;
        (void)!write(teller, "told\n", 5);
        (void)!write(((int *)to)[0], "x", 1);
        (void)!read(((int *)to)[1], &answer, 1);
    }
    close(teller);
    close(((int *)to)[0]);
    return NULL;
}

static int listener(int from, int back)
{
    int told = open("told", O_WRONLY | O_CREAT, 0644);
    for (char got; read(from, &got, 1) == 1;) {
        (void)!write(told, "told\n", 5);
        (void)!write(back, "x", 1);
    }
    return 0;
}

int main(void)
{
    int there[2], back[2], ends[2];
    (void)!pipe2(there, O_CLOEXEC);
    (void)!pipe2(back, O_CLOEXEC);
    pid_t pid = fork();
    if (!pid) {
        close(there[1]);
        close(back[0]);
        return listener(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    ends[0] = there[1];
    ends[1] = back[0];
    pthread_t thread[THREADS + 1];
    for (long n = 0; n < THREADS; n++)
        pthread_create(&thread[n], NULL, counting, (void *)n);
    pthread_create(&thread[THREADS], NULL, telling, ends);
    printf("counting\n");
    fflush(stdout);
    for (char got; read(0, &got, 1) > 0;)
        ;
    stop = 1;
    for (int n = 0; n <= THREADS; n++)
        pthread_join(thread[n], NULL);
    waitpid(pid, NULL, 0);
    return 0;
}
