/* Stores number after number into many pages of a mapped file, syncs, and only then notes the number in the last page:
 * at every instant no page holds less than the note. Until it is killed. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 200

int main(void)
{
    int fd = open("data", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, (PAGES + 1) * PAGE))
        return 1;
    volatile unsigned *map = mmap(NULL, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return 1;
    for (unsigned n = 1;; n++) {
        for (int i = 0; i < PAGES * PAGE / 4; i += 64)
            map[i] = n;
        msync((void *)map, PAGES * PAGE, MS_ASYNC);
        map[PAGES * PAGE / 4] = n;
        msync((void *)map, PAGES * PAGE, MS_ASYNC);
        if (n == 1)
            dprintf(1, "%d\n", (int)getpid());
    }
}
