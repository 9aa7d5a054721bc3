/* Memory mapped right behind memory that an image already has: for the kernel it is one mapping, which is moved and grows as one. */
#define _GNU_SOURCE
#include <metamori.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE (1 << 20)
#define PARTS 4

static char *mapped(char *at, int protection, int how)
{
    char *r = mmap(at, SIZE, protection, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
    return r == MAP_FAILED ? NULL : r;
}

static int holds(const char *all)
{
    for (long i = 0; i < (long)PARTS * SIZE; i++)
        if (all[i] != 'a' + i / SIZE)
            return 0;
    return 1;
}

int main(void)
{
    char *room = mmap(NULL, 2 * PARTS * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *all = room + SIZE;
    munmap(room, 2 * PARTS * SIZE);
    for (int i = 0; i < PARTS; i++) {
        if (!mapped(all + i * SIZE, PROT_READ | PROT_WRITE, MAP_FIXED))
            return 99;
        memset(all + i * SIZE, 'a' + i, SIZE);
        metamori_checkpoint();
    }
    all = mremap(all, PARTS * SIZE, (PARTS + 1) * SIZE, MREMAP_MAYMOVE);
    if (all == MAP_FAILED)
        return perror("mremap"), 1;
    printf("%d\n", holds(all));
    metamori_checkpoint();
    memset(all + SIZE, 'b', SIZE);
    metamori_checkpoint();
    printf("%d\n", holds(all));
    return 3;
}
