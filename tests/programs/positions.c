/* One position shared by processes and threads that do nothing but use it: each call gets a place of its own.
 *
 * positions PROCESSES THREADS STEPS ROUNDS: in every round `slots` holds numbers of 8 bytes, as many as will be taken.
 * Each thread of each process overwrites the next ones, or reads them, or seeks over them, on one description that all
 * inherited, mostly one and sometimes a thousand, so that the others come while one is still at it; and it appends to
 * `log`, by a description of its own or by an inherited one. Then no slot may have been given twice, none left out, and
 * nobody may have gone back. What is wrong is said; a round without fault prints its checkpoint's index (0 without
 * Metamori) and the sums of both files.
 */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { MOST = 16, MANY = 1000 };
static struct shared { int arrived, wrong; unsigned char given[]; } *shared;
static int slots, log_file, processes, threads, steps, all;
static int kind_of(long me, int step) { return (step + step / 8 + 3 * me) % 8; }   /* below 4: something is written */
static int length_of(int step) { return step % 8 == 3 ? MANY : 1; }
static uint64_t *content;

static void wrong(const char *what, long who, uint64_t place, uint64_t found)
{
    if (__atomic_fetch_add(&shared->wrong, 1, __ATOMIC_SEQ_CST) < 10)
        fprintf(stderr, "%s: writer %ld, slot %lld, %llx\n", what, who, (long long)place, (unsigned long long)found);
}

static void *working(void *which)
{
    long me = (long)which;
    int own = open("log", O_WRONLY | O_APPEND);
    int64_t before = -1;
    __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < processes * threads)
        sched_yield();
    for (int step = 1; step <= steps; step++) {
        uint64_t record = (uint64_t)(me + 1) << 48 | (uint64_t)step << 16, many[MANY];
        int kind = kind_of(me, step), length = length_of(step), half = length * 4;
        struct iovec halves[2] = {{many, half}, {(char *)many + half, half}};
        for (int i = 0; kind < 4 && i < length; i++)
            many[i] = record + i;
        long r = kind < 3 ? write(slots, many, length * 8) : kind < 4 ? writev(slots, halves, 2)
            : kind < 6 ? read(slots, many, length * 8) : kind < 7 ? readv(slots, halves, 2)
            : lseek(slots, length * 8, SEEK_CUR);
        if (kind == 7) {
            for (int i = 0; i < length; i++)
                many[i] = r / 8 - length + i;
            r = length * 8;
        }
        if (r != length * 8)
            wrong("a short call", me, step, r);
        for (int i = 0; kind >= 4 && i < length; i++) {
            if (many[i] >= (uint64_t)all || (int64_t)many[i] <= before)
                wrong("not the slots that follow", me, many[i], before);
            else
                __atomic_add_fetch(&shared->given[before = many[i]], 1, __ATOMIC_RELAXED);
        }
        if (step % 4 == 0 && write(step % 8 ? own : log_file, &record, 8) != 8)
            wrong("a short append", me, step, 0);
    }
    close(own);
    return NULL;
}

/* Every writer's records of this round once each and in order; how many, and their sum with their places. */
static long looked_at(int fd, uint64_t from, uint64_t count, int are_slots, uint64_t *sum)
{
    uint64_t last[MOST * MOST] = {0};
    long written = 0;
    if (pread(fd, content, count * 8, from * 8) != (ssize_t)count * 8)
        wrong("not so long", -1, count, 0);
    *sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t record = content[i], who = record >> 48;
        *sum += record * (i + 1);
        if (are_slots && shared->given[i] != (who == 0))
            wrong(who ? "read and written" : "not given once", who - 1, i, shared->given[i]);
        if (who == 0 && (!are_slots || record != i))
            wrong("no record", -1, i, record);
        if (who == 0)
            continue;
        if (who > (uint64_t)(processes * threads))
            wrong("nobody's record", -1, i, record);
        else if (record <= last[who])
            wrong("not in order, or twice", who - 1, i, record);
        else
            last[who] = record, written++;
    }
    return written;
}

static uint64_t one_round(int round, uint64_t *log_sum)
{
    slots = open("slots", O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < all; i++)
        content[i] = i;
    memset(shared, 0, sizeof *shared + all);
    pwrite(slots, content, all * 8, 0);
    int head = open("log", O_RDWR);
    ftruncate(log_file, 8);
    pwrite(head, "overwritten head" + round % 2, 8, 0);
    close(head);
    if (round % 2)
        metamori_checkpoint();             /* what is overwritten from here on goes elsewhere: amid the calls */
    for (int process = 0; process < processes; process++) {
        if (fork())
            continue;
        pthread_t thread[MOST];
        for (long i = 0; i < threads; i++)
            pthread_create(&thread[i], NULL, working, (void *)(process * threads + i));
        for (int i = 0; i < threads; i++)
            pthread_join(thread[i], NULL);
        _exit(0);
    }
    for (int process = 0; process < processes; process++) {
        int status = 0;
        wait(&status);
        if (status)
            wrong("an end", process, 0, status);
    }
    uint64_t sum, appended = processes * threads * (steps / 4), writes = 0;
    for (long me = 0; me < processes * threads; me++)
        for (int step = 1; step <= steps; step++)
            writes += kind_of(me, step) < 4 ? length_of(step) : 0;
    if (lseek(slots, 0, SEEK_CUR) != all * 8)
        wrong("the position at the end", -1, lseek(slots, 0, SEEK_CUR) / 8, 0);
    if ((uint64_t)looked_at(slots, 0, all, 1, &sum) != writes)
        wrong("so many lost", -1, writes, 0);
    if (lseek(log_file, 0, SEEK_END) != (off_t)(appended + 1) * 8
        || (uint64_t)looked_at(log_file, 1, appended, 0, log_sum) != appended)
        wrong("appends lost", -1, appended, lseek(log_file, 0, SEEK_END));
    close(slots);
    return sum;
}

int main(int count, char **word)
{
    if (count < 5)
        return 2;
    processes = atoi(word[1]), threads = atoi(word[2]), steps = atoi(word[3]);
    for (int step = 1; step <= steps; step++)
        all += processes * threads * length_of(step);
    content = malloc(all * 8);
    shared = mmap(NULL, sizeof *shared + all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    log_file = open("log", O_RDWR | O_CREAT | O_APPEND, 0644);
    for (int round = 0; round < atoi(word[4]); round++) {
        uint64_t log_sum, sum = one_round(round, &log_sum);
        int index = metamori_checkpoint();
        if (shared->wrong)
            return 1;
        printf("%d %llu %llu\n", index < 0 ? 0 : index, (unsigned long long)sum, (unsigned long long)log_sum);
        fflush(stdout);
    }
    return 0;
}
