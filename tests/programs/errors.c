/* What calls say that must fail, and that signals interrupt. Each line: the call, and its result or its errno's name.
 *
 * errors denied FILE FOLDER: every call that a file, or a name in a folder, can be asked; nothing needs to be allowed.
 * errors interrupted: calls that wait, with a handler that restarts them and one that does not; writes in a storm of
 * signals, each whole; needs a file `old` of 100000 bytes.
 */
#include "say.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static void told(const char *call, long r)
{
    printf("%s %s\n", call, r < 0 ? strerrorname_np(errno) : "done");
    fflush(stdout);
}
static int opened(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd;
}
static long streamed(FILE *f) { return f ? fclose(f) : -1; }

static void denied(const char *file, const char *folder)
{
    char new[4096], other[4096];
    struct timespec times[2] = {{1, 2}, {3, 4}};
    snprintf(new, sizeof new, "%s/new", folder);
    snprintf(other, sizeof other, "%s/in", folder);
    told("open r", opened(open(file, O_RDONLY)));
    told("open w", opened(open(file, O_WRONLY)));
    told("open rw append", opened(open(file, O_RDWR | O_APPEND)));
    told("open noatime", opened(open(file, O_RDONLY | O_NOATIME)));
    told("open trunc", opened(open(file, O_WRONLY | O_TRUNC)));
    told("open r trunc", opened(open(file, O_RDONLY | O_TRUNC)));
    told("open creat", opened(open(new, O_RDWR | O_CREAT, 0600)));
    told("open in", opened(open(other, O_RDWR)));
    told("tmpfile", opened(open(folder, O_RDWR | O_TMPFILE, 0600)));
    told("creat", opened(creat(other, 0600)));
    told("fopen w", streamed(fopen(file, "w")));
    told("fopen a", streamed(fopen(new, "a")));
    told("truncate", truncate(file, 3));
    told("access w", access(file, W_OK));
    told("access in", faccessat(AT_FDCWD, other, R_OK, AT_EACCESS));
    told("chmod", chmod(file, 0640));
    told("chmod in", fchmodat(AT_FDCWD, other, 0600, 0));
    told("chown", chown(file, 0, 0));
    told("chown in", lchown(other, 0, 0));
    told("utimens", utimensat(AT_FDCWD, file, times, 0));
    told("utimens now", utimensat(AT_FDCWD, file, NULL, 0));
    told("setxattr", setxattr(file, "user.a", "1", 1, 0));
    told("setxattr trusted", setxattr(file, "trusted.a", "1", 1, 0));
    told("removexattr", removexattr(file, "user.none"));
    told("link", link(file, new));
    told("link here", link(file, "linked"));
    told("unlink linked", unlink("linked"));
    told("symlink", symlink("x", new));
    told("rename in", rename(other, "came"));
    told("rename over", rename(file, other));
    told("exchange", renameat2(AT_FDCWD, file, AT_FDCWD, other, RENAME_EXCHANGE));
    told("mkdir", mkdir(new, 0700));
    told("mknod", mknod(new, S_IFIFO | 0600, 0));
    told("rmdir", rmdir(folder));
    told("unlink in", unlink(other));
    told("unlink", unlink(file));
    told("remove folder", remove(folder));
}

static volatile int caught;
static void handler(int number) { caught += number > 0; }
static void alarms(int restarts, long first_us, long every_us)
{
    struct sigaction how = {.sa_handler = handler, .sa_flags = restarts ? SA_RESTART : 0};
    sigaction(SIGALRM, &how, NULL);
    struct itimerval when = {{0, every_us}, {0, first_us}};
    setitimer(ITIMER_REAL, &when, NULL);
}

enum { READS, OPENS, LOCKS, LOCKS_A_RANGE };
static int ends[2], old, again;

/* A child makes the call of its parent possible some signals later. */
static pid_t release_later(int what)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    signal(SIGALRM, SIG_IGN);
    usleep(300000);
    if (what == READS)
        write(ends[1], "late", 4);
    if (what == OPENS)
        opened(open("fifo", O_WRONLY));
    if (what == LOCKS)
        flock(again, LOCK_UN);
    _exit(0);
}

static long wait_for(int what)
{
    char room[8];
    struct flock all = {.l_type = F_WRLCK};
    switch (what) {
    case READS: return read(ends[0], room, 8);
    case OPENS: return opened(open("fifo", O_RDONLY));
    case LOCKS: return flock(old, LOCK_EX);
    default: return fcntl(old, F_SETLKW, &all);
    }
}

/* Another process holds a lock on a range: until it is killed, or (briefly) for a while. */
static pid_t holder(int briefly)
{
    struct flock all = {.l_type = F_WRLCK};
    pid_t pid = fork();
    if (!pid) {
        signal(SIGALRM, SIG_IGN);
        fcntl(old, F_SETLK, &all);
        write(ends[1], "h", 1);
        usleep(briefly ? 300000 : 60000000);
        _exit(0);
    }
    char one;
    while (read(ends[0], &one, 1) < 1)
        ;
    return pid;
}

static void waiting(int restarts)
{
    static const char *name[] = {"read", "open of a fifo", "flock", "fcntl"};
    pipe(ends);
    mkfifo("fifo", 0600);
    old = open("old", O_RDWR), again = open("old", O_RDWR);
    flock(again, LOCK_EX);
    for (int what = READS; what <= LOCKS_A_RANGE; what++) {
        pid_t child = what == LOCKS_A_RANGE ? holder(restarts) : restarts ? release_later(what) : 0;
        alarms(restarts, 100000, 50000);
        long r = wait_for(what);
        int why = errno;
        alarms(1, 0, 0);
        if (child && !restarts)
            kill(child, SIGKILL);
        while (child && waitpid(child, NULL, 0) < 0)
            ;
        printf("%s, %s: %s\n", name[what], restarts ? "restarted" : "not restarted", r < 0 ? strerrorname_np(why) : "done");
        fflush(stdout);
    }
    unlink("fifo");
    close(old), close(again), close(ends[0]), close(ends[1]);
}

static void storm(void)
{
    static char room[50000], back[50000];
    int fd = open("old", O_RDWR), bad = 0;
    alarms(0, 300, 300);
    for (int i = 0; i < 2000 || (caught < 20 && i < 1000000); i++) {
        size_t at = i * 977 % 50000;
        memset(room, 'a' + i % 26, sizeof room);
        bad += pwrite(fd, room, sizeof room, at) != (ssize_t)sizeof room;
        bad += pread(fd, back, sizeof back, at) != (ssize_t)sizeof back || memcmp(room, back, sizeof room);
        bad += opened(open("storm", O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0 || rename("storm", "stormed");
    }
    alarms(0, 0, 0);
    printf("in a storm: %d wrong, %s\n", bad, caught >= 20 ? "often" : "seldom");
    close(fd);
}

/* What is ours must leave no trace among the program's descriptors. */
static void few(void)
{
    struct rlimit before, three = {3, 0};
    getrlimit(RLIMIT_NOFILE, &before);
    three.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &three);
    told("no descriptor: open", opened(open("old", O_RDWR)));
    told("no descriptor: truncate", truncate("old", 90000));
    setrlimit(RLIMIT_NOFILE, &before);
    printf("the next is %d\n", opened(open("old", O_RDWR)));
}

int main(int count, char **word)
{
    umask(022);
    if (count == 4) {
        denied(word[2], word[3]);
        return 0;
    }
    waiting(1);
    waiting(0);
    storm();
    few();
    return 0;
}
