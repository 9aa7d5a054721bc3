/* memory.c - a program with so many MiB of heap; for each line that it reads it changes so many percent of its pages.
 *   memory MIB       then lines: "PERCENT" changes pages, "copy" copies all of it; answers with microseconds */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 100, pages = mib * 256;
    char *heap = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[64];
    unsigned long seed = 1;
    for (size_t i = 0; i < mib << 20; i += 8) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        *(unsigned long *)(heap + i) = seed;
    }
    puts("0");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        double start = now_us();
        if (!strcmp(line, "copy\n")) {
            char *copy = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memcpy(copy, heap, mib << 20);
            munmap(copy, mib << 20);
        } else {
            size_t many = pages * strtoul(line, NULL, 10) / 100, step = many ? pages / many : 1;
            for (size_t i = 0; i < many; i++)
                heap[i * step * 4096 + i % 4096]++;
        }
        printf("%.0f\n", now_us() - start);
        fflush(stdout);
    }
    return 0;
}
