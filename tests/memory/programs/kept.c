/* kept wiped | absent: memory that a program keeps from its children (MADV_WIPEONFORK, MADV_DONTFORK), with more than is copied aside:
 * none of it is missing in an image, and the children have it no more than before. */
#define _GNU_SOURCE
#include <errno.h>
#include <metamori.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LARGE = 24 << 20 };

static char *made(int advice)
{
    char *p = mmap(0, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < LARGE; i += PAGE)
        p[i] = (char)('a' + i / PAGE % 26);
    if (advice)
        madvise(p, LARGE, advice);
    return p;
}

static int as_made(const char *p)
{
    for (long i = 0; i < LARGE; i += PAGE)
        if (p[i] != (char)('a' + i / PAGE % 26))
            return 0;
    return 1;
}

int main(int count, char **word)
{
    int wipes = count > 1 && !strcmp(word[1], "wiped");
    char *plain = made(0), *kept = made(wipes ? MADV_WIPEONFORK : MADV_DONTFORK);
    int r = metamori_checkpoint(), status = 0;
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    printf("%d %d\n", as_made(plain), as_made(kept));
    fflush(stdout);
    if (r > 0 && fork() == 0)              /* what has come back knows nothing of the advice */
        _exit(!as_made(plain) || (wipes ? kept[PAGE] : msync(kept, PAGE, MS_ASYNC) == 0 || errno != ENOMEM));
    if (r > 0)
        wait(&status);
    return status != 0;
}
