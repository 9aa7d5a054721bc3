/* Appends, overwrites what it has read, unlinks and renames; three checkpoints of its own, and once it goes back to the first.
 * Its files and its status do not depend on how often it came back.
 */
#include <fcntl.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned state = 1, *heap;
static int first, tried;

static void step(int i)
{
    char line[16] = "", name[16];
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    dprintf(fd, "%d %u\n", i, state);
    close(fd);
    fd = open("table", O_RDWR);
    pread(fd, line, 8, i * 8);
    for (int k = 0; k < 8; k++)
        state = state * 31 + (unsigned char)line[k];
    for (int k = 0; k < 20000; k++)
        heap[(state + (unsigned)k * 7) % 50000] += state;
    state += heap[state % 50000];
    snprintf(line, sizeof line, "%08x", state);
    pwrite(fd, line, 8, i * 8);
    close(fd);
    snprintf(name, sizeof name, "part%d", i);
    rename(name, "part");
    fd = open("part", O_RDONLY);
    state += fd < 0 ? 1000003u : (unsigned)read(fd, line, sizeof line);
    close(fd);
    unlink("part");
}

int main(void)
{
    heap = calloc(50000, sizeof *heap);
    for (int i = 0; i < 4; i++) {
        step(i);
        if (i == 3 && first && !tried)
            metamori_restore(first);
        int index = metamori_checkpoint();
        if (index == 0)
            tried = 1;
        else if (index > 0)
            dprintf(2, "taken %d\n", index);
        if (i == 0 && index > 0)
            first = index;
    }
    int fd = open("end", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dprintf(fd, "%u\n", state);
    close(fd);
    return 5;
}
