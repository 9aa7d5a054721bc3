/* names COUNT PREFIX: COUNT names that begin with PREFIX are made, moved, given a mode and removed, others made folders. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int n, char **words)
{
    char path[4096], other[4096], folder[4096];
    int failed = n != 3, count = n == 3 ? atoi(words[1]) : 0;
    for (int i = 0; i < count && !failed; i++) {
        snprintf(path, sizeof path, "%s%d", words[2], i);
        snprintf(other, sizeof other, "%s-%d", words[2], i);
        snprintf(folder, sizeof folder, "%s+%d", words[2], i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
        failed = fd < 0 || close(fd) || rename(path, other) || chmod(other, 0600) || unlink(other) || mkdir(folder, 0755);
    }
    return failed;
}
