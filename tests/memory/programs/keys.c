/* keys HOW: has had protection keys, before its second checkpoint.  77: there are none here. */
#define _GNU_SOURCE
#include <metamori.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void taken(void)
{
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
}

int main(int count, char **word)
{
    const char *how = count > 1 ? word[1] : "";
    int plain = PROT_READ | PROT_WRITE;
    char *page = mmap(0, 4096, plain, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = 'x';
    if (!strcmp(how, "of the kernel")) {   /* which keeps it when nothing is under it any more */
        char *code = mmap(0, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(code, 4096, plain);
    }
    taken();
    int first = strcmp(how, "by number") ? pkey_alloc(0, 0) : (int)syscall(SYS_pkey_alloc, 0, 0), key = first;
    if (first < 0)
        return 77;
    if (!strcmp(how, "the second"))
        key = pkey_alloc(0, 0), pkey_free(first);
    if (strcmp(how, "unused") && strcmp(how, "of the kernel") && pkey_mprotect(page, 4096, plain, key))
        return 1;
    taken();
    pkey_set(key, 0);
    puts(*page == 'x' ? "as it was" : "not as it was");
    return 0;
}
