/* refused_early.c - calls on names in folders that are shut, an ordinary user: what the kernel refuses before it looks at the path
 * stays what it is, and a file that nobody may take away keeps its ctime.  shut/ may not be searched, fixed/ not written;
 * two has another name in fixed/, and ../out/ is out of the scope. */
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

static struct timespec changed(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? (struct timespec){ 0 } : st.st_ctim;
}

static const char *same(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec ? "as before" : "moved";
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
    struct timespec fixed = changed("fixed/old"), file = changed("file"), two = changed("two");
    usleep(20000);
    TELL(unlink("fixed/old"));
    TELL(rename("fixed/old", "file"));
    TELL(rename("file", "fixed/old"));
    TELL(unlink("file/"));
    TELL(rename("other", "file/"));
    TELL(rename("other/", "file"));
    TELL(rename("fixed/two", "../out/two"));
    TELL(rename("two", "../out/fixed/two"));
    TELL(rename("two", "/dev/shm/two"));
    TELL(renameat2(AT_FDCWD, "two", AT_FDCWD, "../out/there", RENAME_NOREPLACE));
    printf("ctime %s, %s, %s\n", same(fixed, changed("fixed/old")), same(file, changed("file")), same(two, changed("two")));
    return 0;
}
