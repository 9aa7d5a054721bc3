/* A parent and children map two files whose modes allow nothing any more, one privately and one shared. */
#include <metamori.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 60 };

int main(void)
{
    int private = open("private", O_RDONLY), shared = open("shared", O_RDWR), end[2], status, wrong = 0;
    char *a = mmap(0, 4096, PROT_READ, MAP_PRIVATE, private, 0), *b = mmap(0, 4096, PROT_READ, MAP_SHARED, shared, 0), byte;
    close(private), close(shared);
    if (chmod("private", 0) || chmod("shared", 0) || pipe(end))
        return 1;
    for (int i = 0; i < CHILDREN; i++)
        if (fork() == 0) {
            close(end[1]);
            while (read(end[0], &byte, 1) < 0)
                ;
            _exit(*a == 'a' && *b == 'a' ? 0 : 2);
        }
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    close(end[1]);
    for (int i = 0; i < CHILDREN; i++)
        wrong += wait(&status) < 0 || status != 0;
    printf("%d wrong, %c %c\n", wrong, *a, *b);
    return wrong;
}
