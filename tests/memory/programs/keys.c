/* Memory under a protection key.  77: there are none here. */
#define _GNU_SOURCE
#include <metamori.h>
#include <stdio.h>
#include <sys/mman.h>

static void taken(void)
{
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
}

int main(void)
{
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int key = pkey_alloc(0, 0);
    if (key < 0 || pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, key))
        return 77;
    *page = 'x';
    taken();
    pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, 0);
    pkey_free(key);
    taken();
    puts(*page == 'x' ? "as it was" : "not as it was");
    return 0;
}
