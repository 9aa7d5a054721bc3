/* Sealed memory files: shared with a child, mapped before and after, or only open; and what the seals say of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 16
#endif
#define NOEXEC 8u                        /* MFD_NOEXEC_SEAL, Linux 6.3 */
enum { SIZE = 20000, ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };

static int file(const char *name, unsigned flags)
{
    int fd = memfd_create(name, MFD_ALLOW_SEALING | flags);
    if (fd < 0)
        fd = memfd_create(name, MFD_ALLOW_SEALING);
    if (ftruncate(fd, SIZE) < 0 || pwrite(fd, name, strlen(name), 9000) < 0)
        _exit(2);
    return fd;
}

static char *map(int fd, int protection, int how)
{
    char *p = mmap(NULL, SIZE, protection, how, fd, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        _exit(3);
    }
    return p;
}

static void says(int fd)
{
    char path[64], name[64] = "";
    struct stat st;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fstat(fd, &st);
    if (readlink(path, name, sizeof name - 1) < 0)
        _exit(4);
    int r = (int)pwrite(fd, "x", 1, 0), e = r < 0 ? errno : 0;
    void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char text[16] = "";
    pread(fd, text, 15, 9000);
    printf("%s: seals %x, mode %o, size %ld, write %d, map %d, '%s'\n", name, fcntl(fd, F_GET_SEALS), st.st_mode, (long)st.st_size,
           e, p == MAP_FAILED, text);
    if (p != MAP_FAILED)
        munmap(p, SIZE);
}

int main(void)
{
    char path[64];
    int whole = file("whole", 0), future = file("future", 0), only = file("only", 0), plain = file("plain", NOEXEC);
    fcntl(whole, F_ADD_SEALS, ALL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", whole);
    int reads = open(path, O_RDONLY);
    char *seen = map(reads, PROT_READ, MAP_SHARED), *own = map(whole, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    char *written = map(future, PROT_READ | PROT_WRITE, MAP_SHARED);
    fcntl(future, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
    fcntl(only, F_ADD_SEALS, ALL);
    pid_t child = fork();
    for (int round = 0; round < 250; round++) {
        struct timespec part = { 0, 4000000 };
        written[round + (child ? 0 : 4096)] = (char)round;
        own[round + 9010] = (char)round;
        nanosleep(&part, NULL);
    }
    if (child == 0)
        return memcmp(seen + 9000, "whole", 5) ? 8 : 7;
    int status;
    waitpid(child, &status, 0);
    unsigned sum = 0;
    for (int i = 0; i < SIZE; i++)
        sum = sum * 31 + (unsigned char)written[i] + (unsigned char)own[i] * 7 + (unsigned char)seen[i] * 3;
    printf("%d, %x, '%.5s' '%.5s'\n", status >> 8, sum, seen + 9000, own + 9000);
    says(whole), says(future), says(only), says(plain);
    return 0;
}
