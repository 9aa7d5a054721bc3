/* A file with set-user-id bits is given to somebody else, which takes the bits away; then all of it is taken back. */
#include "say.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static void show(int fd)
{
    struct stat st;
    SAY(fstat(fd, &st));
    printf("%o of %d:%d\n", st.st_mode, st.st_uid, st.st_gid);
}

int main(void)
{
    int fd = open("data", O_RDWR | O_CREAT, 0644);
    SAY(write(fd, "old\n", 4));
    SAY(fchmod(fd, 06755));
    int index = metamori_checkpoint();
    show(fd);
    SAY(fchown(fd, 1, 1));
    show(fd);
    SAY(metamori_restore(index));
    show(fd);
    return 0;
}
