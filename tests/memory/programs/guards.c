/* Pages that nobody may touch (MADV_GUARD_INSTALL), set and taken away between its checkpoints.  77: this kernel has none. */
#define _GNU_SOURCE
#include <metamori.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, GUARD = 102, FREE = 103, LARGE = 48 << 20 };

static char *small, *large;
static int nowhere[2];

/* 0: it may not be touched */
static int at(char *page) { return write(nowhere[1], page, 1) == 1 ? *page : 0; }

static void taken(const char *when)
{
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    printf("%s:", when);
    for (int i = 0; i < 4; i++)
        printf(" %d", at(small + i * PAGE));
    printf(", %d %d\n", at(large), at(large + LARGE - PAGE));
    fflush(stdout);
}

int main(void)
{
    small = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    large = mmap(0, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++)
        small[i * PAGE] = (char)('a' + i);
    for (long i = 0; i < LARGE; i += PAGE)
        large[i] = 'x';
    if (pipe(nowhere) || madvise(small + PAGE, PAGE, GUARD))
        return 77;
    taken("one is guarded");
    madvise(small + 2 * PAGE, PAGE, GUARD);
    madvise(large, PAGE, GUARD);
    taken("three are");
    taken("the same");
    madvise(small + 2 * PAGE, PAGE, FREE);
    taken("one was given back");
    return 0;
}
