/* A file is replaced over and over while another process opens it, and asks for it: `replaced SECONDS HOW`; HOW: rename, unlink.
 * It finds one version, whole, or none where there is none. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4096 };

static void replace(time_t end, int unlinks)
{
    char version[SIZE];
    for (int i = 0; time(NULL) < end; i++) {
        if (unlinks)
            unlink("f");
        int f = open("next", O_RDWR | O_CREAT | O_TRUNC, 0644);
        memset(version, 'a' + i % 26, SIZE);
        write(f, version, SIZE);
        close(f);
        rename("next", "f");
    }
}

int main(int count, char **word)
{
    time_t end = time(NULL) + atoi(word[1]) + 1;
    char found[2 * SIZE];
    long empty = 0, mixed = 0, sizes = 0;
    int unlinks = count > 2 && strcmp(word[2], "unlink") == 0;
    replace(time(NULL) + 1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        replace(end, unlinks);
        _exit(0);
    }
    while (time(NULL) < end) {
        struct stat st;
        sizes += stat("f", &st) == 0 && st.st_size != SIZE;
        int f = open("f", O_RDONLY);
        if (f < 0)
            continue;
        long got = read(f, found, sizeof found);
        empty += got != SIZE;
        for (long i = 1; i < got; i++)
            mixed += found[i] != found[0];
        sizes += fstat(f, &st) == 0 && st.st_size != SIZE;
        close(f);
    }
    waitpid(pid, NULL, 0);
    printf("%ld empty, %ld mixed, %ld sizes\n", empty, mixed, sizes);
    return 0;
}
