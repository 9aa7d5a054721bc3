/* One mapping of 6000 pages, every tenth never touched: more pieces than the kernel tells of at once, a third of them changing
 * between its checkpoints.  Every page is compared with what it must hold when it comes back, and at the end. */
#include <metamori.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 6000, PAGE = 4096, ROUNDS = 4 };

static unsigned want(int page, int round) { return page % 10 == 5 ? 0 : 1 + page + (page % 3 == 0 ? 7919 * round : 0); }

int main(void)
{
    char *room = mmap(0, (long)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(room, (long)PAGES * PAGE, MADV_NOHUGEPAGE);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PAGES; i++)
            if (i % 10 != 5 && (round == 0 || i % 3 == 0))
                *(unsigned *)(room + (long)i * PAGE) = want(i, round);
        int r = metamori_checkpoint();
        fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
        for (int i = 0; r == 0 && i < PAGES; i++)
            if (*(unsigned *)(room + (long)i * PAGE) != want(i, round))
                return 1;
    }
    puts("as it was");
    return 0;
}
