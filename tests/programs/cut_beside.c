/* Bytes that lie in a mapped file are written to another one, and read from it into them, while a thread cuts the mapped one over
 * and over: as many as are there, or EFAULT. */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096, TIMES = 4000 };
static int over;

static void *cuts(void *of)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        if (ftruncate(*(int *)of, 0) || ftruncate(*(int *)of, PAGE))
            return of;
    return NULL;
}

int main(void)
{
    static char block[PAGE];
    int to = open("to", O_RDWR | O_CREAT, 0644), of = open("mapped", O_RDWR | O_CREAT, 0644), wrong = 0;
    pthread_t thread;
    void *failed = NULL;
    pwrite(to, block, PAGE, 0), ftruncate(of, PAGE);
    metamori_checkpoint();
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, of, 0);
    pthread_create(&thread, NULL, cuts, &of);
    for (int i = 0; i < TIMES; i++) {
        ssize_t put = pwrite(to, map, 100, 50), got = pread(to, map, 100, 50);
        wrong += (put != 100 && !(put < 0 && errno == EFAULT)) + (got != 100 && !(got < 0 && errno == EFAULT));
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, &failed);
    printf("%d %d\n", wrong, failed != NULL);
    return 0;
}
