/* steps FILE MIB [mapped]: writes a number to eight places of a file, one after the other, then the next number, for ever.
 * At any instant the numbers are equal or fall by one, once.  Says a line when all has been written once. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 8 };

int main(int argc, char **argv)
{
    size_t bytes = (size_t)atoi(argv[2]) << 20;
    int fd = open(argv[1], O_RDWR), mapped = argc > 3;
    volatile uint64_t *at = mmap(NULL, bytes, PROT_READ | (mapped ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (fd < 0 || at == MAP_FAILED)
        return 1;
    if (mapped)
        close(fd);
    for (uint64_t number = 1;; number++) {
        for (int i = 0; i < PLACES; i++) {
            size_t place = bytes / PLACES * (size_t)i;
            if (mapped)
                at[place / sizeof *at] = number;
            else if (pwrite(fd, &number, sizeof number, (off_t)place) != sizeof number)
                return 1;
        }
        if (number == 1) {
            puts("goes");
            fflush(stdout);
        }
    }
}
