/* Appends, overwrites what it has read, unlinks and renames; three checkpoints of its own, and once it goes back to the first.
 * With an argument a child has a part in each step.  Files and status do not depend on how often it came back.
 */
#include <fcntl.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned state = 1, *heap;
static int first, tried;

static int asked[2], answered[2];

static void child(void)
{
    unsigned x, own = 7;
    close(asked[1]), close(answered[0]);
    while (read(asked[0], &x, sizeof x) == sizeof x) {
        int fd = open("log.child", O_WRONLY | O_CREAT | O_APPEND, 0644);
        own = own * 31 + x;
        dprintf(fd, "%u\n", own);
        close(fd);
        rename("log.child", own & 1 ? "odd" : "even");
        if (write(answered[1], &own, sizeof own) != sizeof own)
            break;
    }
    _exit(3);
}

static unsigned by_child(unsigned x)
{
    if (write(asked[1], &x, sizeof x) != sizeof x || read(answered[0], &x, sizeof x) != sizeof x)
        exit(1);
    return x;
}

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

int main(int argc, char **argv)
{
    int ended = 0;
    (void)argv;
    heap = calloc(50000, sizeof *heap);
    if (argc > 1) {
        if (pipe(asked) || pipe(answered))
            return 1;
        if (fork() == 0)
            child();
        close(asked[0]), close(answered[1]);
    }
    for (int i = 0; i < 4; i++) {
        step(i);
        if (argc > 1)
            state += by_child(state);
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
    if (argc > 1) {
        close(asked[1]);
        wait(&ended);
    }
    int fd = open("end", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dprintf(fd, "%u %d\n", state, ended);
    close(fd);
    return 5;
}
