/* Files that lost their names while they are mapped, shared with a child and alone, with and without a descriptor.
 *
 * nameless [LIBRARY]: which it loads by another name, and replaces; the child and the parent each change what they share. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 16, SHARED = 5 };
static unsigned char *shared[SHARED], *alone, *copied, *twice;
static int kept, temporary;

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        _exit(9);
    }
}

static void *map(int fd, int how)
{
    void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, how, fd, 0);
    must(p != MAP_FAILED, "mmap");
    return p;
}

static int file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && ftruncate(fd, SIZE) == 0, name);
    for (int i = 0; i < SIZE; i += 64)
        pwrite(fd, &i, sizeof i, i);
    return fd;
}

static unsigned long sum(const unsigned char *p)
{
    unsigned long s = 0;
    for (int i = 0; i < SIZE; i++)
        s = s * 31 + p[i];
    return s;
}

static void change(int round, int who)
{
    for (int i = 0; i < SHARED; i++)
        shared[i][(round * 7001 + who * 4099 + i) % SIZE] += (unsigned char)(round + who);
    pwrite(kept, &round, sizeof round, (round * 37 + who * 11) % SIZE);
    pwrite(temporary, &round, sizeof round, SIZE + who * 64);      /* where nobody maps it */
}

static void (*library(const char *path))(char *)
{
    char text[1 << 16];
    long n;
    int from = open(path, O_RDONLY), to = open("plugin.so", O_WRONLY | O_CREAT | O_TRUNC, 0700);
    while ((n = read(from, text, sizeof text)) > 0)
        must(write(to, text, n) == n, "copy");
    close(to);
    close(from);
    void *handle = dlopen("./plugin.so", RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(8);
    }
    to = open("plugin.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(write(to, "upgraded", 8) == 8 && rename("plugin.new", "plugin.so") == 0, "upgrade");
    close(to);
    return (void (*)(char *))dlsym(handle, "says");
}

int main(int count, char **word)
{
    int ask[2], answer[2], fd;
    void (*says)(char *) = count > 1 ? library(word[1]) : 0;
    shared[0] = map(fd = file("shared"), MAP_SHARED);
    close(fd);
    unlink("shared");
    shared[1] = map(kept = file("kept"), MAP_SHARED);
    unlink("kept");
    FILE *stream = tmpfile();
    temporary = fileno(stream);
    must(ftruncate(temporary, SIZE * 3) == 0, "tmpfile");
    shared[2] = map(temporary, MAP_SHARED);
    shm_unlink("/nameless");
    fd = shm_open("/nameless", O_RDWR | O_CREAT | O_EXCL, 0600);
    must(fd >= 0 && ftruncate(fd, SIZE) == 0, "shm_open");
    shared[3] = map(fd, MAP_SHARED);
    close(fd);
    shm_unlink("/nameless");
    char outside[] = "/var/tmp/namelessXXXXXX";        /* not in the folder that is tracked */
    must((fd = mkstemp(outside)) >= 0 && ftruncate(fd, SIZE) == 0, outside);
    shared[4] = map(fd, MAP_SHARED);
    unlink(outside);
    close(fd);
    alone = map(fd = file("alone"), MAP_PRIVATE);
    twice = map(fd, MAP_PRIVATE);
    memset(alone, 7, SIZE / 2);
    madvise(alone, SIZE / 2, MADV_DONTNEED);           /* the file's again */
    close(fd);
    unlink("alone");
    copied = map(fd = memfd_create("m", MFD_CLOEXEC), MAP_PRIVATE);
    must(ftruncate(fd, SIZE) == 0 && pwrite(fd, "in a memory file", 16, 8000) == 16, "memfd");
    close(fd);
    must(pipe(ask) == 0 && pipe(answer) == 0, "pipe");
    pid_t child = fork();
    char one = 0;
    if (child == 0) {
        close(ask[1]);
        for (int round = 0; read(ask[0], &one, 1) == 1; round++) {
            change(round, 1);
            alone[round] ^= 1;
            must(write(answer[1], &one, 1) == 1, "write");
        }
        printf("child %lx %lx\n", sum(alone), sum(twice));
        return 3;
    }
    close(ask[0]);
    for (int round = 0; round < 300; round++) {
        struct timespec part = { 0, 3000000 };
        change(round, 0);
        alone[round * 200] += 3;
        copied[round * 100] += 5;
        must(write(ask[1], &one, 1) == 1 && read(answer[0], &one, 1) == 1, "child");
        if (round % 40 == 39) {
            printf("%d %lx %lx", round, sum(alone), sum(copied));
            for (int i = 0; i < SHARED; i++)
                printf(" %lx", sum(shared[i]));
            printf("\n");
            fflush(stdout);
        }
        nanosleep(&part, NULL);
    }
    close(ask[1]);
    int status, last[3] = { 0 };
    struct stat st;
    must(waitpid(child, &status, 0) == child && fstat(temporary, &st) == 0, "wait");
    pread(temporary, &last[0], 4, SIZE);
    pread(temporary, &last[1], 4, SIZE + 64);
    pread(kept, &last[2], 4, 299 * 37 % SIZE);
    char text[64] = "no library";
    if (says)
        says(text);
    printf("%d %d %d %d of %ld, %lx, %.16s, %s\n", status >> 8, last[0], last[1], last[2], (long)st.st_size, sum(twice), copied + 8000, text);
    return 4;
}
