/* refused_early.c - calls on names in folders that are shut, an ordinary user: what the kernel refuses before it looks at the path
 * stays what it is, and a file that nobody may take away keeps its ctime.  shut/ may not be searched, fixed/ not written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TELL(call)                                                              \
    do {                                                                        \
        errno = 0;                                                              \
        int answer = call;                                                      \
        printf("%s: %d %s\n", #call, answer, answer ? strerror(errno) : "");    \
    } while (0)

static struct timespec changed(void)
{
    struct stat st;
    return stat("fixed/old", &st) < 0 ? (struct timespec){ 0 } : st.st_ctim;
}

int main(void)
{
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    TELL(mknod("shut/new", S_IFDIR | 0700, 0));
    TELL(mknod("shut/new", 0130000, 0));
    TELL(mknod("shut/new", S_IFREG | 0700, 0));
    TELL(symlink("", "shut/new"));
    TELL(symlink((char *)1, "shut/new"));
    TELL(symlink(longer, "shut/new"));
    TELL(symlink("target", "shut/new"));
    TELL(linkat(AT_FDCWD, "file", AT_FDCWD, "shut/new", 0x40000));
    TELL(link("file", "shut/new"));
    struct timespec before = changed();
    usleep(20000);
    TELL(unlink("fixed/old"));
    TELL(rename("fixed/old", "file"));
    TELL(rename("file", "fixed/old"));
    struct timespec after = changed();
    printf("ctime %s\n", before.tv_sec == after.tv_sec && before.tv_nsec == after.tv_nsec ? "as before" : "moved");
    return 0;
}
