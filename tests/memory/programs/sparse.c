/* More address space than there can be memory: a file, and memory of which it needs little. */
#include <metamori.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

enum { FAR = 12345 };
#define LENGTH (1ul << 39)

int main(int count, char **word)
{
    int fd = open(word[count - 1], O_RDONLY);
    char *file = mmap(0, LENGTH, PROT_READ, MAP_PRIVATE, fd, 0);
    char *memory = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file == MAP_FAILED || memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    memory[FAR] = 'm';
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
    printf("%c %c %d\n", file[0], memory[FAR], memory[LENGTH - 1]);
    return 0;
}
