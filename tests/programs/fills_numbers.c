/* Takes every number that a descriptor may have, by dup2; what it writes by each is in one file, what it overwrites in another. */
#include "say.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char block[8192];

int main(void)
{
    struct rlimit limit;
    struct stat st;
    getrlimit(RLIMIT_NOFILE, &limit);
    int old = open("f", O_RDWR), new = open("new", O_RDWR | O_CREAT, 0600), count = 0;
    if (old < 0 || new < 0 || limit.rlim_cur > 1000)
        return 1;
    for (int fd = new + 1; fd < (int)limit.rlim_cur; fd++)
        count += dup2(new, fd) == fd && write(fd, "x", 1) == 1;
    for (int i = 0; i < 100; i++)
        if (pwrite(old, block, sizeof block, 0) != sizeof block)
            return 2;
    fstat(new, &st);
    printf("%d bytes more\n", (int)st.st_size - count);
    return count < (int)limit.rlim_cur - 20;
}
