/* Change random blocks of a large file, take a checkpoint, and again. A second thread writes all the time.
 *
 *   steady FILE MEBIBYTES ROUNDS BLOCKS   BLOCKS of 4 KiB are changed before each; prints per checkpoint "index call_us stall_us": how long the call took and
 *                                  the longest time that one write of the other thread took meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static atomic_int stop;
static atomic_long longest_ns;

static long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Overwrites the same 100 bytes of a small file: all it sees is its own call, the kernel and the freeze. */
static void *writer(void *name)
{
    char text[100];
    memset(text, 'w', sizeof text);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    while (fd >= 0 && !atomic_load(&stop)) {
        long start = now_ns();
        if (pwrite(fd, text, sizeof text, 0) != sizeof text)
            break;
        long took = now_ns() - start;
        if (took > atomic_load(&longest_ns))
            atomic_store(&longest_ns, took);
        usleep(20);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: steady FILE MEBIBYTES ROUNDS BLOCKS\n");
        return 2;
    }
    long blocks = (atol(argv[2]) << 20) / BLOCK;
    int rounds = atoi(argv[3]), changed = atoi(argv[4]), fd = open(argv[1], O_RDWR);
    char block[BLOCK], other[4096];
    snprintf(other, sizeof other, "%s.small", argv[1]);
    pthread_t thread;
    if (fd < 0 || pthread_create(&thread, 0, writer, other)) {
        perror(argv[1]);
        return 1;
    }
    srandom(1);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < changed; i++) {
            memset(block, 'a' + round % 26, sizeof block);
            if (pwrite(fd, block, sizeof block, random() % blocks * BLOCK) != sizeof block)
                return 1;
        }
        usleep(rounds > 20 ? 1000 : 50000);
        atomic_store(&longest_ns, 0);
        long start = now_ns();
        int index;
        while ((index = metamori_checkpoint()) < 0 && errno == EAGAIN)   /* a loaded machine: no rest within a second */
            start = now_ns();
        long took = now_ns() - start;
        if (index < 1) {
            perror("metamori_checkpoint");
            return 1;
        }
        usleep(rounds > 20 ? 1000 : 20000);
        printf("%d %.1f %.1f\n", index, took / 1e3, atomic_load(&longest_ns) / 1e3);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, 0);
    return 0;
}
