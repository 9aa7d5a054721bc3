/* `rooted FOLDER`: writes to FOLDER/jail/shared, makes FOLDER/jail its root, reads that file, then changes FOLDER's files there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int in(const char *folder, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags, 0644);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

int main(int count, char **word)
{
    char bytes[17] = "", path[4096];
    int jail = count > 1 && chdir(word[1]) == 0 ? open("jail", O_PATH) : -1, shared = open("jail/shared", O_RDWR);
    if (jail < 0 || pwrite(shared, "changed ", 8, 0) != 8 || close(shared) < 0 || fchdir(jail) < 0 || chroot(".") < 0)
        return 2;
    if (read(in("", "shared", O_RDONLY), bytes, 16) != 16)
        return 3;
    puts(bytes);
    if (write(in(word[1], "old", O_RDWR), "written", 7) != 7 || write(in(word[1], "new", O_RDWR | O_CREAT), "made", 4) != 4)
        return 4;
    snprintf(path, sizeof path, "%s/gone", word[1]);
    memset(bytes, 0, sizeof bytes);
    if (unlink(path) < 0 || read(in(word[1], "old", O_RDONLY), bytes, 7) != 7)
        return 5;
    puts(bytes);
    return 0;
}
