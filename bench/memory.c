/* memory.c - a program with so many MiB of heap.
 *   memory MIB                          for each line that it reads: "PERCENT" changes so many percent of its pages, "copy" copies
 *                                       all of it, "checkpoint" takes one by itself; answers with microseconds
 *   memory MIB steady PERCENT UNITS     computes, and changes so many percent of its pages in UNITS_A_CYCLE units; says how long
 *                                       all units took
 *   memory MIB tree N                   as with MIB alone, but that N processes have so much each, and change as much of it
 *   memory MIB idle                     waits for its end */
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define UNITS_A_CYCLE 1000

static char *heap;
static size_t pages;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Page number i of those that change, spread over all of them. */
static void change(size_t i, size_t many)
{
    heap[i % many * (pages / many) * 4096 + i % 4096]++;
}

static void steady(unsigned long percent, unsigned long units)
{
    size_t many = pages * percent / 100, next = 0;
    volatile unsigned long result;
    unsigned long s = 1;
    double start = now_us();
    for (unsigned long unit = 0; unit < units; unit++) {
        for (int i = 0; i < 10000000; i++)
            s = s * 6364136223846793005ul + 1442695040888963407ul;
        for (; next < many * (unit + 1) / UNITS_A_CYCLE; next++)
            change(next, many);
    }
    result = s;
    (void)result;
    printf("%.0f\n", now_us() - start);
}

static void change_all(unsigned long percent)
{
    size_t many = pages * percent / 100;
    for (size_t i = 0; i < many; i++)
        change(i, many);
}

static int to_child[1024], from_child[1024], children;

/* Each waits for a number of percent, changes them, and says so. */
static void become_tree(int processes)
{
    for (; children < processes - 1; children++) {
        int asked[2], said[2];
        unsigned char percent;
        if (pipe(asked) || pipe(said))
            exit(1);
        if (fork() == 0) {
            close(asked[1]), close(said[0]);
            for (int i = 0; i < children; i++)
                close(to_child[i]), close(from_child[i]);
            change_all(100);               /* its own from here on */
            for (; write(said[1], "", 1) == 1 && read(asked[0], &percent, 1) == 1;)
                change_all(percent);
            _exit(0);
        }
        close(asked[0]), close(said[1]);
        to_child[children] = asked[1], from_child[children] = said[0];
    }
}

static void await_children(void)
{
    char said;
    for (int i = 0; i < children; i++)
        if (read(from_child[i], &said, 1) != 1)
            exit(1);
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    char line[64];
    unsigned long seed = 1;
    pages = mib * 256;
    heap = mmap(NULL, (mib << 20) + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < mib << 20; i += 8) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        *(unsigned long *)(heap + i) = seed;
    }
    if (argc > 4) {
        steady(strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
        return 0;
    }
    if (argc > 3) {
        become_tree(atoi(argv[3]));
        await_children();
    }
    puts("0");
    fflush(stdout);
    while (argc == 3)
        pause();
    while (fgets(line, sizeof line, stdin)) {
        double start = now_us();
        if (!strcmp(line, "copy\n")) {
            char *copy = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memcpy(copy, heap, mib << 20);
            munmap(copy, mib << 20);
        } else if (!strcmp(line, "checkpoint\n")) {
            if (metamori_checkpoint() < 0)
                return 1;
        } else {
            unsigned char percent = (unsigned char)atoi(line);
            for (int i = 0; i < children; i++)
                if (write(to_child[i], &percent, 1) != 1)
                    return 1;
            change_all(percent);
            await_children();
        }
        printf("%.0f\n", now_us() - start);
        fflush(stdout);
    }
    return 0;
}
