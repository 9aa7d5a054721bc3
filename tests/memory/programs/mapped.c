/* Files that it maps to read, and writes by other ways when it has come back: the mappings show it.
 * mapped [shut]: their modes allow nothing any more. */
#include <metamori.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *map(int fd, int how)
{
    return mmap(0, 4 * PAGE, PROT_READ, how, fd, 0);
}

int main(int count, char **word)
{
    int shared = open("shared", O_RDWR), private = open("private", O_RDWR), closed = open("closed", O_RDONLY);
    char *in_shared = map(shared, MAP_SHARED), *in_private = map(private, MAP_PRIVATE), *in_closed = map(closed, MAP_PRIVATE);
    close(closed);
    if (count > 1 && !strcmp(word[1], "shut"))
        fchmod(shared, 0444), fchmod(private, 0);
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    closed = open("closed", O_RDWR);
    if (pwrite(shared, "new", 3, PAGE) != 3 || pwrite(private, "new", 3, PAGE) != 3 || pwrite(closed, "new", 3, PAGE) != 3)
        return 1;
    printf("%.3s %.3s %.3s\n", in_shared + PAGE, in_private + PAGE, in_closed + PAGE);
    if (mprotect(in_shared, 4 * PAGE, PROT_READ | PROT_WRITE)) {
        perror("mprotect");
        return 2;
    }
    char seen[4] = "";
    memcpy(in_shared + 2 * PAGE, "too", 3);
    printf("%zd %s\n", pread(shared, seen, 3, 2 * PAGE), seen);
    return 0;
}
