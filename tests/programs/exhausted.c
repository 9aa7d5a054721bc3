/* Every call on names, and those on descriptors, in a program that has used up its own descriptors: what needs none goes on.
 *
 * exhausted HOW: it begins under a limit that could be raised (soft), or that nobody may raise (hard); without HOW it sets its
 * own limit later.
 */
#include "say.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <utime.h>

enum { LIMIT = 40 };
static const char *self;
static char block[20000];

static int waited(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

static void make(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    pwrite(fd, block, sizeof block, 0);
    close(fd);
}

static int size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) < 0 ? -1 : (int)st.st_size;
}

static int seen(const char *name, const struct stat *st, int type)
{
    (void)name, (void)st;
    return type == 77;
}

static void prepare(void)
{
    const char *const names[] = {"old", "gone", "moved", "onto", "linked", "mode", "time", "cut", "data", "only", "ends", "both", NULL};
    for (int i = 0; names[i]; i++)
        make(names[i]);
    mkdir("folder", 0755), mkdir("folder/deep", 0755), mkdir("empty", 0755), mkdir("removed", 0755);
    make("folder/inside"), make("folder/deep/inner"), make("folder/second");
    symlink("cut", "way"), symlink("folder", "there"), symlink("nowhere", "dangling");
}

/* New descriptors: the numbers that natively are, or EMFILE. */
static void opening(int dir)
{
    char pattern[] = "tempXXXXXX", folder[] = "foldXXXXXX";
    int two[2];
    SAY(open("old", O_RDONLY));
    SAY(open("old", O_RDWR));
    SAY(open("old", O_RDWR | O_TRUNC));
    SAY(size_of("old"));
    SAY(open("never", O_RDWR | O_CREAT, 0644));
    SAY(open("dangling", O_RDWR | O_CREAT, 0644));
    SAY(creat("never", 0644));
    SAY(openat(dir, "never", O_WRONLY | O_CREAT | O_EXCL, 0644));
    SAY(open(".", O_RDWR | O_TMPFILE, 0600));
    SAY(open("not there", O_RDONLY));
    SAY(access("never", F_OK));
    SAY(access("nowhere", F_OK));
    SAY(mkstemp(pattern));
    SAY(mkdtemp(folder) == NULL);
    SAY(rmdir(folder));
    SAY(tmpfile() == NULL);
    SAY(fopen("old", "r+") == NULL);
    SAY(fopen("never", "w") == NULL);
    SAY(opendir(".") == NULL);
    SAY(dup(0));
    SAY(fcntl(0, F_DUPFD, 0));
    SAY(pipe(two));
}

static void names(int dir)
{
    SAY(mkdir("made", 0755));
    SAY(mkdirat(dir, "made too", 0755));
    SAY(rmdir("removed"));
    SAY(rename("moved", "elsewhere"));
    SAY(rename("./elsewhere", "there/elsewhere"));
    SAY(renameat(dir, "elsewhere", AT_FDCWD, "onto"));
    SAY(renameat2(dir, "second", dir, "inside", 1));
    SAY(renameat2(dir, "second", dir, "inside", 2));
    SAY(rename("folder/deep", "made/deep"));
    SAY(rename("made", "carried"));
    SAY(size_of("carried/deep/inner"));
    SAY(link("linked", "second name"));
    SAY(linkat(AT_FDCWD, "way", dir, "third name", AT_SYMLINK_FOLLOW));
    SAY(linkat(dir, "inside", AT_FDCWD, "there/../fourth", 0));
    SAY(unlink("linked"));
    SAY(unlink("gone"));
    SAY(unlinkat(dir, "inside", 0));
    SAY(unlinkat(AT_FDCWD, "empty", AT_REMOVEDIR));
    SAY(remove("second name"));
    SAY(remove("carried/../dangling"));
    SAY(symlink("any", "new link"));
    SAY(symlinkat("any", dir, "new link"));
    SAY(mkfifo("pipe", 0644));
    SAY(mknod("there/pipe", S_IFIFO | 0644, 0));
    SAY(mkdir("no/where", 0755));
    SAY(mkdir("old/file", 0755));
    SAY(mkdir("carried", 0755));
    SAY(mkdir("", 0755));
    SAY(mkdir("./", 0755));
    SAY(rmdir("there/."));
    SAY(rename("folder", "folder/deeper"));
    SAY(chdir("there"));
    SAY(mkdir("from here", 0755));
    SAY(rename("../way", "way"));
    SAY(unlink("../both"));
    SAY(fchdir(dir));
    SAY(chdir(".."));
}

static void attributes(int fd)
{
    struct timeval two[2] = {{1000, 0}, {2000, 0}};
    struct timespec times[2] = {{3000, 0}, {4000, 0}};
    struct utimbuf when = {5000, 6000};
    struct statvfs vfs;
    char text[64];
    SAY(chmod("mode", 0600));
    SAY(fchmod(fd, 0640));
    SAY(fchmodat(AT_FDCWD, "there/../mode", 0604, 0));
    SAY(chown("mode", -1, getgid()));
    SAY(lchown("way", -1, getgid()));
    SAY(fchown(fd, -1, getgid()));
    SAY(utime("time", &when));
    SAY(utimes("time", two));
    SAY(utimensat(AT_FDCWD, "way", times, AT_SYMLINK_NOFOLLOW));
    SAY(futimens(fd, times));
    SAY(setxattr("time", "user.one", "1", 1, 0));
    SAY(getxattr("time", "user.one", text, sizeof text));
    SAY(removexattr("time", "user.one"));
    SAY(truncate("cut", 7777));
    SAY(truncate("way", 5555));
    SAY(size_of("cut"));
    SAY(truncate("not there", 1));
    SAY(truncate("folder", 1));
    SAY(access("there/deep", W_OK));
    SAY(readlink("there", text, sizeof text));
    SAY(statvfs(".", &vfs));
    SAY(realpath("there/second", NULL) != NULL);
    SAY(getcwd(block + 10000, 9000) != NULL);
    SAY(ftw("there", seen, 4));
}

static void data(int fd, int only, int ends, int both)
{
    char text[16] = "";
    struct flock l = {.l_type = F_WRLCK, .l_len = 10};
    SAY(pwrite(fd, "changed", 7, 100));
    SAY(pread(fd, text, 9, 99));
    say_bytes("data", text, 9);
    SAY(pwrite(only, "changed", 7, 4090));
    SAY(write(ends, "more", 4));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(write(fd, block, sizeof block));
    SAY(ftruncate(fd, 9000));
    SAY(fsync(fd));
    SAY(fallocate(fd, 3, 4096, 4096));
    SAY(posix_fallocate(fd, 0, 30000));
    SAY(lseek(fd, 0, SEEK_DATA));
    off_t from = 0, to = 500;
    SAY(copy_file_range(both, &from, fd, &to, 5000, 0));
    from = 100;
    lseek(fd, 200, SEEK_SET);
    SAY(sendfile(fd, both, &from, 3000));
    SAY(fcntl(fd, F_SETLK, &l));
    SAY(lockf(only, F_TLOCK, 5));
    SAY(flock(both, LOCK_EX | LOCK_NB));
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
    SAY(at != MAP_FAILED);
    if (at != MAP_FAILED) {
        at[5000] = 'M';
        SAY(msync(at, 8192, MS_SYNC));
        SAY(pread(both, text, 3, 4999));
        say_bytes("both", text, 3);
        munmap(at, 8192);
    }
}

/* Others, who have as few. */
static void others(int fd)
{
    char text[16] = "";
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        SAY(pwrite(fd, "child", 5, 5000));
        SAY(mkdir("of the child", 0755));
        SAY(unlink("carried/deep/inner"));
        fflush(stdout);
        _exit(3);
    }
    SAY(waited(pid));
    SAY(pread(fd, text, 5, 5000));
    say_bytes("data", text, 5);
    fflush(stdout);
    pid = fork();
    if (!pid) {                        /* the new program has all of its descriptors again */
        execl(self, self, "child", NULL);
        _exit(99);
    }
    SAY(waited(pid));
    SAY(pread(fd, text, 5, 6000));
    say_bytes("data", text, 5);
    if (metamori_checkpoint() < 0 && errno != ENOSYS)
        printf("checkpoint: %s\n", strerrorname_np(errno));
    SAY(pwrite(fd, "after", 5, 7000));
    SAY(rename("of the child", "after"));
}

static void exercise(int few)
{

    prepare();
    if (metamori_checkpoint() < 0 && errno != ENOSYS)
        printf("checkpoint: %s\n", strerrorname_np(errno));
    SAY(open("old", O_RDONLY | O_CLOEXEC));
    int dir = open("folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = open("data", O_RDWR | O_CLOEXEC);
    int only = open("only", O_WRONLY | O_CLOEXEC), ends = open("ends", O_WRONLY | O_APPEND | O_CLOEXEC);
    int both = open("both", O_RDWR | O_CLOEXEC);
    printf("numbers %d %d %d %d %d\n", dir, fd, only, ends, both);
    while (fcntl(0, F_DUPFD_CLOEXEC, 3) >= 0)
        ;
    opening(dir);
    names(dir);
    attributes(fd);
    if (!few) {                        /* each may need another descriptor of ours for as long as it is open */
        data(fd, only, ends, both);
        others(fd);
    }
    opening(dir);

}

/* Root may raise any limit: not so here. */
static void drop_rights(void)
{
    struct { unsigned version; int pid; } head = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } sets[2];
    if (syscall(SYS_capget, &head, sets) == 0) {
        sets[0].effective &= ~(1u << 24), sets[0].permitted &= ~(1u << 24);
        syscall(SYS_capset, &head, sets);
    }
}

int main(int count, char **word)
{
    const char *how = count > 1 ? word[1] : "plain";
    self = word[0];
    memset(block, 'o', sizeof block);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (strcmp(how, "child") == 0) {
        int fd = open("data", O_RDWR);
        SAY(fd);
        SAY(pwrite(fd, "other", 5, 6000));
        fflush(stdout);
        return 5;
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = LIMIT;
    if (strcmp(how, "hard") == 0)
        limit.rlim_max = LIMIT;
    if (count > 1) {                   /* it begins under its limit */
        setrlimit(RLIMIT_NOFILE, &limit);
        if (strcmp(how, "hard") == 0)
            drop_rights();
        execl(self, self, NULL);
    }
    int few = limit.rlim_max == LIMIT;
    setrlimit(RLIMIT_NOFILE, &limit);
    exercise(few);
    fflush(stdout);
    return 0;
}
