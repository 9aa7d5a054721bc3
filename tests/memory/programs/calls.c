/* Nearly always in a call on one of its files: whichever moment an image is taken at, a call is about to begin.
 *
 * calls ROUNDS THREADS: each thread has four files of its own, f<thread><number>. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES 4
#define RECORD 64
#define RECORDS 64

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static long rounds;

static void *calls(void *number)
{
    int fd[FILES], early[FILES], me = (int)(intptr_t)number;
    char name[8];
    uint64_t state = 88172645463325252u + (uint64_t)me, sum = 0;
    for (int i = 0; i < FILES; i++) {      /* so that the numbers which a description has are not those it gets again */
        snprintf(name, sizeof name, "e%d%d", me, i);
        early[i] = open(name, O_RDWR | O_CREAT, 0644);
        must(early[i] >= 0 && write(early[i], name, 3) == 3, name);
    }
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%d%d", me, i);
        fd[i] = open(name, O_RDWR);
        must(fd[i] >= 0, name);
    }
    for (int i = 0; i < FILES; i++)
        must(close(early[i]) == 0, "close");
    for (long round = 0; round < rounds; round++) {
        uint64_t x = next(&state), record[RECORD / 8];
        int f = fd[x % FILES];
        off_t at = (off_t)(x >> 8) % RECORDS * RECORD, other = (off_t)(x >> 24) % RECORDS * RECORD;
        struct stat st;
        for (int i = 0; i < RECORD / 8; i++)
            record[i] = x + i;
        switch (x >> 40 & 7) {
        case 0:
            must(pwrite(f, record, RECORD, at) == RECORD, "pwrite");
            break;
        case 1:
            must(pread(f, record, RECORD, at) == RECORD, "pread");
            sum = sum * 31 + record[3];
            break;
        case 2:
            must(lseek(f, at, SEEK_SET) == at && read(f, record, RECORD) == RECORD, "read");
            sum = sum * 31 + record[5];
            break;
        case 3:
            must(fstat(f, &st) == 0, "fstat");
            sum = sum * 31 + (uint64_t)st.st_size + (uint64_t)lseek(f, 0, SEEK_CUR);
            break;
        case 4:
            if (x >> 48 & 63)
                break;
            must(ftruncate(f, RECORDS * RECORD + other) == 0, "ftruncate");
            break;
        default:
            must(lseek(f, at, SEEK_SET) == at && write(f, record, RECORD) == RECORD, "write");
        }
        if (me == 0 && round % 100000 == 0) {
            printf("%ld %016llx\n", round, (unsigned long long)sum);
            fflush(stdout);
        }
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
    pthread_t thread[8];
    long threads = argc > 2 ? atol(argv[2]) : 1;
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (long i = 1; i < threads && i < 8; i++)
        must(pthread_create(&thread[i], NULL, calls, (void *)i) == 0, "pthread_create");
    printf("%016llx\n", (unsigned long long)(uintptr_t)calls(NULL));
    for (long i = 1; i < threads && i < 8; i++) {
        void *sum;
        must(pthread_join(thread[i], &sum) == 0, "pthread_join");
        printf("%016llx\n", (unsigned long long)(uintptr_t)sum);
    }
    return 0;
}
